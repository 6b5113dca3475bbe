"""DuckDB over a corpus: the stored tables and the views of `sql/`, documented, in one catalogue file.

The catalogue holds views only. Their paths start from the file's own folder when it is opened directly, and from the
folder where it was written when it is attached to another database, so a corpus that was moved still opens.
"""

import errno
import hmac
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lumos_df.base.errors import ROOM, CorpusError, QueryError, nearest, shortage
from lumos_df.base.files import publish_file
from lumos_df.base.kernel_cache import folder as cache_folder
from lumos_df.corpus import definitions, summaries
from lumos_df.corpus.catalog_file import MARK, digest_of, folder_of, offer, placed, publish, signature
from lumos_df.corpus.engine import engine
from lumos_df.corpus.layout import CATALOG, SIGNATURE, check
from lumos_df.corpus.object_store import opened
from lumos_df.corpus.view_files import views
from lumos_df.schema import TABLES

if TYPE_CHECKING:
    import duckdb

_LOG: Final = f"{CATALOG}.wal"
_MISSING: Final = re.compile(r"Table with name (\w+) does not exist")
_CHANGED: Final = re.compile(
    r"Cannot open file .*: No such file|TProtocolException|invalid TType|don't know what type|bytes outside file"
)
"""What DuckDB says of a Parquet file that went, or whose place another took, after it was asked for its columns."""
_ANEW: Final = "if another command is changing the corpus, ask again; else ingest its traces into a new folder"


_CLOSED: Final = ("autoinstall_known_extensions", "autoload_known_extensions")
"""Settings that go off: no query fetches code. It may read other files, as one that compares a corpus with them does;
views that a corpus of somebody else brings along are never run."""


def connect(corpus: str | os.PathLike[str]) -> "duckdb.DuckDBPyConnection":
    """Open a corpus for reading, with every stored table and view at hand.

    The catalogue is written anew when it does not fit this version or the corpus has moved; where it cannot be
    written, the views live in memory. A corpus on a store, named by its URL, is copied to this machine before.

    Raises `CorpusError` when `corpus` is no corpus that this version reads, or its store cannot be read.
    """
    import duckdb  # noqa: F401, PLC0415 - gives connections their relations

    return connect_engine(corpus)


def connect_engine(corpus: str | os.PathLike[str]) -> "duckdb.DuckDBPyConnection":
    """Open a corpus as `connect` does, for `execute` alone: to import relations takes as long as to open it."""
    folder = opened(corpus)
    check(folder)
    script = _script(folder)
    connection = _open(folder, script)
    if connection is None:
        with suppress(OSError, engine.Error, CorpusError):
            _write(folder, script)
        connection = _open(folder, script)
    if connection is None:
        connection = engine.connect()
        _define(connection, script)
    for setting in _CLOSED:
        connection.execute(f"SET {setting} = false")
    # DuckDB 2.0 fails inside where it reads columns of the first rows last: a filter on trace_id, ORDER BY, LIMIT.
    connection.execute("SET disabled_optimizers = 'late_materialization'")
    # DuckDB would draw it on standard output, between the rows of a query that takes two seconds. In a notebook
    # without ipywidgets it draws none, and refuses to be asked for that.
    with suppress(engine.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


def write_catalog(corpus: Path, *, new: bool = False) -> None:
    """Make sure that the corpus's `catalog.duckdb` fits; a reader sees the old file or the new one, never a part.

    Args:
        corpus: the corpus folder.
        new: this command began it, so that its tables are as this version writes them. They are not looked at, which
            takes a third of the time.

    Raises `CorpusError` when it cannot be written or a table cannot be read, `ValueError` for an undocumented column.
    """
    script = _script(corpus)
    current = _open(corpus, script)
    if current is not None:
        current.close()
        return
    try:
        _write(corpus, script, new=new)
    except (OSError, engine.Error) as error:
        raise CorpusError(
            f"{corpus / CATALOG}: cannot be written{_because(error, 'check space, permissions')}"
        ) from error


def blank() -> "duckdb.DuckDBPyConnection":
    """Return a database in memory that has every stored table, empty, and every view over them."""
    import duckdb  # noqa: F401, PLC0415 - as above

    connection = engine.connect()
    for table in TABLES:
        columns = ", ".join(f'"{column.name}" {definitions.duckdb_type(column.type)}' for column in table.columns)
        connection.execute(f"CREATE TABLE {table.name}({columns})")
    _define(connection, tuple(definitions.of_views()))
    return connection


def query(connection: "duckdb.DuckDBPyConnection", sql: str) -> "duckdb.DuckDBPyConnection":
    """Start a query and return the connection to fetch its rows from.

    Raises `QueryError` when DuckDB refuses it. Rows stream, so fetch them inside `one_line_errors` too.
    """
    with one_line_errors():
        return connection.execute(sql)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error of DuckDB inside the block into a `QueryError`: one line, with the nearest table or view."""
    try:
        yield
    except engine.Error as error:
        raise refused(error) from None


def refused(error: Exception) -> QueryError:
    """Return what an error of DuckDB says in one line: with the nearest table or view, or what to do about a file."""
    if short := shortage(error):
        return QueryError(f"query: {short}; {ROOM}")
    missing = _MISSING.search(str(error))
    if missing is not None:
        names = sorted({table.name for table in TABLES} | {view.name for view in views() if not view.internal})
        hint = nearest(missing[1], names) or f"; there are {', '.join(names)}"
        return QueryError(f"query: no table or view '{missing[1]}'{hint}")
    remedy = f"; {_ANEW}" if _CHANGED.search(str(error)) else ""
    return QueryError(f"query: {_one_line(error)}{remedy}")


def _because(error: Exception, remedy: str) -> str:
    """Return the end of a line: why something failed, and what to do; one short of memory has a remedy of its own."""
    short = shortage(error)
    return f": {short}; {ROOM}" if short else f" ({_one_line(error)}); {remedy}"


def _one_line(error: Exception) -> str:
    """Fold a message into one line; of DuckDB's drawing of the query, keep the line number of a longer one."""
    message, _, place = str(error).partition("\n\nLINE ")
    line = place.partition(":")[0]
    where = f" (line {line})" if line not in {"", "1"} else ""
    return "; ".join(part.strip() for part in message.splitlines() if part.strip()) + where


def _open(corpus: Path, script: tuple[str, ...]) -> "duckdb.DuckDBPyConnection | None":
    """Open the catalogue file for reading, or return None unless this user had it made by this script, as it is.

    DuckDB sees the file only then: to ask a view of it by whom it was made would run that view.
    """
    with suppress(OSError, engine.Error):
        stated, content = (corpus / SIGNATURE).read_bytes(), (corpus / CATALOG).read_bytes()
        if _has_log(corpus) or not hmac.compare_digest(stated, signature(corpus, _digest(corpus, script), content)):
            return None
        return engine.connect(corpus / CATALOG, read_only=True)
    return None


def _has_log(corpus: Path) -> bool:
    """Say whether changes lie beside the catalogue, which DuckDB would take in."""
    return os.path.lexists(corpus / _LOG)


def _write(corpus: Path, script: tuple[str, ...], *, new: bool = False) -> None:
    """Write the catalogue: of one with the same views that is kept, or else of nothing."""
    of_corpus, of_all = script[:2], script[2:]
    # To bind all views takes most of the time that a small trace takes to ingest, and they are alike in every corpus.
    kept = cache_folder() / f"views-{digest_of((engine.__version__, _marked(corpus), *of_all))[:12]}.duckdb"
    tables_read = () if new else ("FROM " + ", ".join(f"(SELECT 1 FROM {table.name} LIMIT 0)" for table in TABLES),)
    content = b""
    with suppress(OSError, engine.Error, CorpusError):
        content = _content(corpus, (*of_corpus, *tables_read), kept.read_bytes())
    if not content:
        content = _content(corpus, (_marked(corpus), *script[1:]))
        if MARK.encode() not in content:  # DuckDB writes a text in two pieces where a part of a block ends
            content = _content(corpus, (_marked(corpus, before=" " * len(MARK)), *script[1:]))
        with suppress(OSError):
            publish_file(kept, content)
        content = _content(corpus, of_corpus, content)
    (corpus / _LOG).unlink(missing_ok=True)
    publish(corpus, _digest(corpus, script), content)
    if new:
        _offer(corpus, _digest(corpus, script), kept)


def _marked(corpus: Path, *, before: str = "") -> str:
    """Return the macro of the corpus's folder with the mark in its place, and some spaces before."""
    return definitions.of_corpus(corpus, "", before + MARK)[0]


def _digest(corpus: Path, script: tuple[str, ...]) -> str:
    """Return the digest of what makes a catalogue, wherever its corpus is."""
    return digest_of((_marked(corpus), *script[1:]))


def _offer(corpus: Path, digest: str, kept: Path) -> None:
    """Offer the catalogue that is kept to new corpora, if DuckDB reads what is made of it without DuckDB."""
    with suppress(OSError, ValueError, engine.Error), tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.duckdb"
        copy.write_bytes(placed(kept.read_bytes(), folder_of(corpus)))
        with engine.connect(copy, read_only=True) as connection:
            if connection.execute(f"SELECT {definitions.FOLDER}()").fetchall() == [(folder_of(corpus),)]:
                offer(corpus, digest, kept)


def _content(corpus: Path, script: tuple[str, ...], kept: bytes = b"") -> bytes:
    """Return a catalogue file: `kept`, or an empty one, and what a script makes of it."""
    # Made elsewhere and then published whole: DuckDB writes a second file next to it, and not below every folder name.
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / CATALOG
        if kept:
            draft.write_bytes(kept)
        # One thread, one transaction: half the time of a commit a statement. The views are bound where they will lie.
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "temp_directory": str(corpus.resolve() / f"{CATALOG}.tmp"),
        }
        with engine.connect(draft, config=config) as connection:
            connection.begin()
            (_run if kept else _define)(connection, script)
            connection.commit()
        return draft.read_bytes()


def _run(connection: "duckdb.DuckDBPyConnection", script: tuple[str, ...]) -> None:
    for statement in script:
        try:
            connection.execute(statement)
        except engine.Error as error:
            what = statement.partition("(")[0].partition(" IS ")[0]
            remedy = "if another state of lumos-df made the corpus, ingest the traces again into a new folder"
            if os.strerror(errno.EACCES) in str(error):
                remedy = "check its permissions"
            raise CorpusError(f"catalogue: cannot {what.lower()}{_because(error, remedy)}") from error


def _define(connection: "duckdb.DuckDBPyConnection", script: tuple[str, ...]) -> None:
    """Run statements that define views; raises `ValueError` for a column of one that is not documented."""
    _run(connection, script)
    bare = connection.execute(
        "SELECT table_name || '.' || column_name FROM duckdb_columns() "
        "WHERE NOT internal AND comment IS NULL AND table_name IN (SELECT view_name FROM duckdb_views())"
    ).fetchall()
    if bare:
        raise ValueError(f"sql/: column {bare[0][0]} is not in the view's list of columns")


def _script(corpus: Path) -> tuple[str, ...]:
    """Return the statements that make the catalogue of a corpus; only the first two say where it is."""
    folder, kept = summaries.current(corpus)
    return (
        *definitions.of_corpus(corpus, folder, folder_of(corpus)),
        *definitions.of_tables(corpus, kept),
        *definitions.of_views(kept),
    )
