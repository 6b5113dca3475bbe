"""The interactive prompt of `lumos-df sql`: statements end with `;`, commands begin with a dot."""

import os
import readline
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb

from lumos_df import __version__
from lumos_df.base.errors import LumosError, nearest
from lumos_df.cli.screens.terminal import console, say, say_row
from lumos_df.corpus.catalog import one_line_errors
from lumos_df.corpus.output import Format, write
from lumos_df.corpus.view_files import macros, views
from lumos_df.schema import TABLES

HISTORY_LINES: Final = 10_000

HELP: Final = """\
A statement may span lines and ends with ';'.
  .tables         tables and views
  .schema [NAME]  columns of one of them, or of all, and what they mean
  .help           this text
  .quit           leave (so does Ctrl-D)"""


def run(connection: duckdb.DuckDBPyConnection, form: Format | None, before: Callable[[str], None]) -> None:
    """Read statements and commands from the terminal and print what they give, until the user leaves.

    `before` is called with each statement before it runs. Ctrl-C drops the statement at hand or ends the running query.
    What was typed is kept for the next time.
    """
    history = _history_file()
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES)
    print(f"lumos-df {__version__}; .help for help", file=sys.stderr)
    try:
        while (text := _read()) is not None:
            try:
                _answer(connection, text, form, before)
            except KeyboardInterrupt:
                print("interrupted", file=sys.stderr)
            except LumosError as error:
                print(error, file=sys.stderr)
    finally:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lumos-df" / "history"


def _read() -> str | None:
    """Read a dot command or a whole statement; return None when the user leaves."""
    lines: list[str] = []
    while True:
        try:
            lines.append(input("   ...> " if lines else "lumos> "))
        except EOFError:
            print(file=sys.stderr)
            return None
        except KeyboardInterrupt:
            print(file=sys.stderr)
            lines.clear()
            continue
        text = "\n".join(lines).strip()
        if text in {".quit", ".exit"}:
            return None
        if text.startswith(".") or text.endswith(";"):
            return text
        if not text:
            lines.clear()


def _answer(
    connection: duckdb.DuckDBPyConnection, text: str, form: Format | None, before: Callable[[str], None]
) -> None:
    if text.startswith("."):
        command(connection, text)
        return
    before(text)
    write(connection, text, form, None)


def command(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Print what a command that begins with a dot says. Raise `LumosError` for one that there is not."""
    name, _, argument = text.rstrip(" ;").partition(" ")
    if name == ".tables":
        _tables()
    elif name == ".schema":
        _schema(connection, argument.strip())
    elif name == ".help":
        print(HELP)
    else:
        did_you_mean = nearest(name, [".tables", ".schema", ".help", ".quit"])
        raise LumosError(f"no command '{name}'{did_you_mean or '; .help lists them'}")


def _tables() -> None:
    """Print what there is, and of each what fits on its line."""
    stored = [(table.name, table.doc) for table in TABLES]
    shown = [(view.name, view.doc) for view in views() if not view.internal]
    public = sorted([*shown, *((macro.name, macro.doc) for macro in macros())])
    width = max(len(name) for name, _ in stored + public)
    screen = console()
    for name, doc in stored + public:
        say_row(screen, f"{name:<{width}}  ", doc)


def _schemas(connection: duckdb.DuckDBPyConnection) -> None:
    """Print every table and view, one line each, with the columns that fit on it."""
    public = [table.name for table in TABLES] + sorted(view.name for view in views() if not view.internal)
    with one_line_errors():
        columns = dict(
            connection.execute(
                "SELECT table_name, string_agg(column_name, ', ' ORDER BY column_index) FROM duckdb_columns() "
                "GROUP BY table_name"
            ).fetchall()
        )
    width = max(map(len, public))
    screen = console()
    for name in public:
        say_row(screen, f"{name:<{width}}  ", columns[name])
    say(screen, "the columns of one, and what they mean: .schema NAME")


def _schema(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    if not name:
        _schemas(connection)
        return
    with one_line_errors():
        columns = connection.execute(
            "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index",
            [name],
        ).fetchall()
    if not columns:
        names = [table.name for table in TABLES] + [view.name for view in views()]
        raise LumosError(f"no table or view '{name}'{nearest(name, names)}")
    widths = [max(len(column[field]) for column in columns) for field in (0, 1)]
    screen = console()
    for column, kind, doc in columns:
        say(screen, doc, before=f"{column:<{widths[0]}}  {kind:<{widths[1]}}  ")
