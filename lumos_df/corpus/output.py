"""Write what a query gives: a table, CSV, JSON or Parquet, to a file or to standard output.

The command line needs `Format` at once, so DuckDB is imported only where a query is run.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from lumos_df.base.errors import LumosError
from lumos_df.base.files import draft_of

if TYPE_CHECKING:
    import duckdb

Result = TypeVar("Result")


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"

    @property
    def suffix(self) -> str:
        """What a file of this format is called after the dot."""
        return "txt" if self is Format.TABLE else self.value


_COPY_OPTIONS: Final = {
    Format.CSV: "FORMAT csv, HEADER true, USE_TMP_FILE false",
    Format.JSON: "FORMAT json, ARRAY true, USE_TMP_FILE false",
    Format.PARQUET: "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false",
}

_FORMULA: Final = r"^[-=+@\t\r\n\x{FF0B}\x{FF0D}\x{FF1D}\x{FF20}]"
"""How a cell begins that a spreadsheet takes for a formula (OWASP, "CSV Injection"); the last four are wide forms."""
_NUMBER: Final = r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?"
"""A text that is a number, and stays one."""
_JSON_DIGITS: Final = 12
"""Significant digits of a number in JSON."""
_TEXT_TYPE: Final = "VARCHAR"
_ROWS_ON_TERMINAL: Final = 40
PIPED_COLUMNS: Final = 100
"""Columns of a screen that is written to a file or a pipe."""
_CELL: Final = 20
"""Columns of a screen that a text may have before it goes on in the next line."""
_TYPES: Final = {"TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64"}
"""What stands on a screen for a type whose name is longer."""
_LAST: Final = ("trace_id", "path")
"""Columns that a screen has only where there is room behind all others."""
_TEXT: Final = 3 * _CELL
"""Characters of a text that a screen shows."""
_NARROWEST: Final = 80
"""Columns of the narrowest table that DuckDB fits texts into; on a narrower screen they are cut before."""
_BETWEEN: Final = 3
"""Columns between one cell's text and the next one's."""
_WITHOUT_LIMIT: Final = 10**9
_REFUSED: Final = re.compile(r'Could not write file .*"errno":"(\d+)"', re.DOTALL)


def choose_format(form: Format | None, output: Path | None) -> Format | None:
    """Return the format asked for, else the one that the file's name says; None is a table on one screen."""
    if form is None and output is not None:
        named = {known.suffix: known for known in Format}.get(output.suffix.lower().removeprefix("."))
        if named is None:
            endings = ", ".join(f".{known.suffix}" for known in Format)
            raise LumosError(f"{output}: its name does not say the format ({endings}); add --format")
        return named
    return form


def write(connection: "duckdb.DuckDBPyConnection", sql: str, form: Format | None, output: Path | None) -> None:
    """Run `sql`, which may hold several statements, and write the rows of the last one.

    A file appears whole or not at all; without `output` the rows go to standard output. Without `form` they are a table
    as wide as the terminal, 100 columns in a pipe; the columns that do not fit are named. JSON is one
    array, in which NaN and infinity are null. Ctrl-C ends the query. Raises `QueryError` when DuckDB refuses the query,
    `LumosError` when there is none, and `OSError` when the file cannot be written.
    """
    if output is None and form is Format.PARQUET and sys.stdout.isatty():
        raise LumosError("parquet is not for a terminal; name a file with --output")
    interruptible(connection, lambda: _write(connection, sql, form, output))


def write_rows(
    connection: "duckdb.DuckDBPyConnection", sql: str, types: Mapping[str, str], form: Format, draft: Path
) -> None:
    """Write the rows of one query to a draft of a file, as `write` does.

    The types of its columns are known, those of text as VARCHAR: DuckDB need not plan the query to say them. Texts may
    come as ENUMs, as `kept_rows` keeps them, of which a table and Parquet would say so.
    """
    from lumos_df.corpus.catalog import one_line_errors  # noqa: PLC0415 - imports DuckDB

    texts = ", ".join(
        f'"{name}"::{kind} AS "{name}"' for name, kind in types.items() if kind.removesuffix("[]") == _TEXT_TYPE
    )
    as_texts = f"SELECT * REPLACE ({texts}) FROM ({sql})" if texts else sql

    def written() -> None:
        if form is Format.TABLE:
            import duckdb  # noqa: F401, PLC0415 - gives connections their relations

            _save(connection, connection.sql(as_texts), form, draft)
        else:
            connection.execute(_copy(f"({as_texts if form is Format.PARQUET else sql})", types, form, draft))

    with one_line_errors(), _refusals(draft):
        interruptible(connection, written)


def write_table(rows: object, form: Format | None, output: Path | None, sql: str = "FROM _rows") -> None:
    """Write a pyarrow table or a polars frame, or what a query over `_rows` makes of it, as `write` does."""
    import duckdb  # noqa: PLC0415 - only where rows are written

    with duckdb.connect() as connection:
        connection.register("_rows", rows)
        write(connection, sql, form, output)


def write_json(value: object, output: Path | None) -> None:
    """Write one JSON value to a file, whole or not at all, or to standard output. Raises as `write` does."""
    text = json.dumps(_clean_value(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    with whole_file(output) as draft:
        draft.write_text(text, "utf-8")


def screen_columns() -> int:
    """Return how wide the screen is: as COLUMNS says, else the terminal, else `PIPED_COLUMNS`."""
    return shutil.get_terminal_size((PIPED_COLUMNS, 0)).columns


def interruptible(connection: "duckdb.DuckDBPyConnection", work: Callable[[], Result]) -> Result:
    """Return `work()`, which queries `connection`; on Ctrl-C end its query and raise `KeyboardInterrupt`."""
    # DuckDB looks for a signal now and then, and not at all in some statements; a thread that waits sees it at once.
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


@contextmanager
def whole_file(path: Path, *, listed: bool = True) -> Iterator[Path]:
    """Give a draft of a file that a user has named, as `draft_of` does; the folders that it lies in are made.

    Raises `LumosError` where the name is a folder's.
    """
    if path.is_dir():
        raise LumosError(f"{path}: a folder; name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path, listed=listed) as draft:
        yield draft


def _write(connection: "duckdb.DuckDBPyConnection", sql: str, form: Format | None, output: Path | None) -> None:
    from lumos_df.corpus.catalog import one_line_errors  # noqa: PLC0415 - imports DuckDB

    with one_line_errors():
        rows = _rows(connection, sql)
        if rows is None:  # the last statement gives none
            return
        if output is not None:
            with whole_file(output) as draft:
                _save(connection, rows, form or Format.TABLE, draft)
        elif form is None:
            _show(connection, rows)
        elif form is Format.TABLE:
            rows.show(max_width=_WITHOUT_LIMIT, max_rows=_WITHOUT_LIMIT)
        else:
            # Not straight to /dev/stdout: that truncates a file it is redirected to, and exists on few systems.
            with tempfile.TemporaryDirectory() as folder:
                draft = Path(folder) / f"rows.{form.suffix}"
                _save(connection, rows, form, draft)
                with draft.open("rb") as file:
                    shutil.copyfileobj(file, sys.stdout.buffer)


def _show(connection: "duckdb.DuckDBPyConnection", rows: "duckdb.DuckDBPyRelation") -> None:
    """Print rows as a table no wider than the screen, long texts cut, and say which columns are left out."""
    whole = connection.from_arrow(rows.to_arrow_table())
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in whole.columns}
    most_text = _TEXT if screen_columns() >= _NARROWEST else _CELL
    cut = (
        f"if(length({name}) > {most_text}, left({name}, {most_text} - 1) || '…', {name}) AS {name}"
        if str(kind) == "VARCHAR"
        else name
        for name, kind in zip(quoted.values(), whole.types, strict=True)
    )
    shown = whole.project(", ".join(cut))
    ((*longest,),) = shown.aggregate(", ".join(f"max(length({name}::VARCHAR))" for name in quoted.values())).fetchall()
    values = {
        name: max(length or 0, len(_TYPES.get(str(kind), str(kind))))
        for name, length, kind in zip(quoted, longest, whole.types, strict=True)
    }
    # Ids and paths tell a person least; the other columns stand in the order of what they say.
    room, kept = screen_columns() - 1, set[str]()
    for name in sorted(quoted, key=lambda name: name in _LAST):
        room -= max(len(name), min(values[name], _CELL)) + _BETWEEN
        if room < 0 and kept:
            break
        kept.add(name)
    most = _ROWS_ON_TERMINAL if sys.stdout.isatty() else _WITHOUT_LIMIT
    columns = ", ".join(quoted[name] for name in quoted if name in kept)
    shown.project(columns).show(max_width=screen_columns(), max_rows=most)
    if left := [name for name in quoted if name not in kept]:
        text = f"left out: {', '.join(left)}; every column: --format table, csv or json"
        sys.stdout.write(textwrap.fill(text, screen_columns(), break_long_words=False, break_on_hyphens=False) + "\n")


def _rows(connection: "duckdb.DuckDBPyConnection", sql: str) -> "duckdb.DuckDBPyRelation | None":
    statements = connection.extract_statements(sql)
    if not statements:
        raise LumosError("the query is empty; lumos-df sql --help shows how to ask")
    for statement in statements[:-1]:
        connection.execute(statement).fetchall()  # DuckDB starts nothing while rows are waiting
    return connection.sql(statements[-1].query)


def _save(connection: "duckdb.DuckDBPyConnection", rows: "duckdb.DuckDBPyRelation", form: Format, path: Path) -> None:
    if form is Format.TABLE:
        with path.open("w", encoding="utf-8") as file, redirect_stdout(file):
            rows.show(max_width=_WITHOUT_LIMIT, max_rows=_WITHOUT_LIMIT)
        return
    _result = rows  # the query below finds it by the name of the variable
    types = {
        name: _TEXT_TYPE if kind.id in {"varchar", "enum"} else str(kind)
        for name, kind in zip(rows.columns, rows.types, strict=True)
    }
    with _refusals(path):
        connection.execute(_copy("_result", types, form, path))


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Raise `OSError` where the system refuses to write a file, which DuckDB says in words and once more in JSON."""
    from lumos_df.corpus.engine import engine  # noqa: PLC0415 - only where rows are written

    try:
        yield
    except engine.IOException as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        raise OSError(int(refused[1]), os.strerror(int(refused[1])), str(path)) from None


def _copy(source: str, types: Mapping[str, str], form: Format, path: Path) -> str:
    """Return the statement that writes the rows of a table, or query in parentheses, to a file."""
    columns = _clean(types) if form is Format.JSON else _as_text(types) if form is Format.CSV else "*"
    target = os.fspath(path).replace("'", "''")
    return f"COPY (SELECT {columns} FROM {source}) TO '{target}' ({_COPY_OPTIONS[form]})"


def _as_text(types: Mapping[str, str]) -> str:
    """Return the select list of which a spreadsheet runs nothing: an apostrophe stands before what begins a formula."""
    texts = ('"' + name.replace('"', '""') + '"' for name, kind in types.items() if kind == _TEXT_TYPE)
    mended = ", ".join(
        f"if(regexp_matches({name}::VARCHAR, '{_FORMULA}') AND NOT regexp_full_match({name}::VARCHAR, '{_NUMBER}'), "
        f"'''' || {name}::VARCHAR, {name}::VARCHAR) AS {name}"
        for name in texts
    )
    return f"* REPLACE ({mended})" if mended else "*"


def _clean(types: Mapping[str, str]) -> str:
    """Return the select list that JSON can say: 12 digits of every float, and null for NaN and infinity.

    Further digits are noise of the arithmetic, 0.30000000000000004, and of 32-bit floats, 0.10000000149011612.
    """
    digits = {"FLOAT": 7, "DOUBLE": _JSON_DIGITS}
    names = (('"' + name.replace('"', '""') + '"', digits[kind]) for name, kind in types.items() if kind in digits)
    replaced = ", ".join(
        f"CASE WHEN isfinite({name}) THEN printf('%.{shown}g', {name}::DOUBLE)::DOUBLE END AS {name}"
        for name, shown in names
    )
    return f"* REPLACE ({replaced})" if replaced else "*"


def _clean_value(value: object) -> object:
    """Return a JSON value with 12 digits of every float."""
    if isinstance(value, float):
        return float(f"{value:.{_JSON_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _clean_value(inner) for key, inner in value.items()}
    return [_clean_value(inner) for inner in value] if isinstance(value, list | tuple) else value
