"""DuckDB over a corpus: the stored tables and the views of `sql/`, documented, in one catalogue file.

The catalogue holds views only. Its paths start from the file's own place when it is opened directly, and from the
place where it was written when it is attached to another database, so a moved corpus still opens.
"""

import glob
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import duckdb

from lumos_df.errors import CorpusError, QueryError, nearest
from lumos_df.layout import CATALOG, EMPTY_PARTITION, check, table_glob
from lumos_df.schema import TABLES, Table

_DUCKDB_TYPES: Final = {
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}

_VIEW: Final = re.compile(
    r"-- (?P<first>\S.*)\n-- (?P<second>\S.*)\nCREATE VIEW (?P<name>\w+)\(\n(?P<columns>.*?)\n\) AS\n(?P<body>.+)\Z", re.DOTALL
)
_COLUMN: Final = re.compile(r"""  -- (?P<doc>\S.*)\n  "?(?P<name>\w+)"?(?:,\n|\Z)""")
_SOURCE: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)", re.IGNORECASE)
_COMMENT: Final = re.compile(r"--.*")
_MISSING: Final = re.compile(r"(?:Table|View) with name (\w+) does not exist")


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """One column of a view."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class View:
    """One file of `sql/`."""

    name: str
    folder: str
    """Folder below `sql/`: `base`, `trace`, `sim` or `report`."""
    doc: str
    columns: tuple[ViewColumn, ...]
    sql: str
    """The whole `CREATE VIEW` statement."""

    @property
    def internal(self) -> bool:
        """Whether other views use it and nobody else should."""
        return self.name.startswith("_")


def sql_folder() -> Path:
    """Return the folder of view files: inside an installed package, else at the root of the repository."""
    package = Path(__file__).parent
    installed = package / "sql"
    return installed if installed.is_dir() else package.parent / "sql"


@cache
def views() -> tuple[View, ...]:
    """Return every view of `sql/`, each after the views that it reads.

    Raises `ValueError` when a file breaks the rules of `read_view` or views read one another in a circle.
    """
    found = {view.name: view for view in map(read_view, sorted(sql_folder().glob("*/*.sql")))}
    sources = {view.name: sorted(set(_SOURCE.findall(_COMMENT.sub("", view.sql))) & found.keys()) for view in found.values()}
    try:
        order = tuple(TopologicalSorter(sources).static_order())
    except CycleError as error:
        raise ValueError(f"sql/: views read one another in a circle: {' -> '.join(error.args[1])}") from None
    return tuple(found[name] for name in order)


def read_view(path: Path) -> View:
    """Read one view file: two lines of comment, then `CREATE VIEW <file name>(`, a comment line before each column.

    Raises `ValueError` when the file is not written so.
    """
    match = _VIEW.match(path.read_text("utf-8"))
    if match is None:
        raise ValueError(f"{path}: must be two comment lines, then 'CREATE VIEW {path.stem}(', its columns, ') AS' and the query")
    if match["name"] != path.stem:
        raise ValueError(f"{path}: defines view '{match['name']}'; the file name must be the view name")
    columns = tuple(_COLUMN.finditer(match["columns"]))
    if "".join(column[0] for column in columns) != match["columns"]:
        raise ValueError(f"{path}: every column of the view needs one comment line before it, and a line of its own")
    return View(
        name=path.stem,
        folder=path.parent.name,
        doc=f"{match['first']} {match['second']}",
        columns=tuple(ViewColumn(column["name"], column["doc"]) for column in columns),
        sql=match[0][match.start("second") + len(match["second"]) + 1 :].rstrip().rstrip(";"),
    )


def connect(corpus: str | os.PathLike[str]) -> duckdb.DuckDBPyConnection:
    """Open a corpus for reading, with every stored table and view at hand.

    The catalogue is written anew when it does not fit this version or the corpus has moved; where it cannot be
    written, the views live in memory. Raises `CorpusError` when `corpus` is no corpus that this version reads.
    """
    folder = Path(corpus)
    check(folder)
    fingerprint, script = _script(folder)
    connection = _open(folder, fingerprint)
    if connection is None:
        with suppress(OSError, duckdb.Error):
            _write(folder, script)
        connection = _open(folder, fingerprint)
    if connection is None:
        connection = duckdb.connect()
        _run(connection, script)
    return connection


def write_catalog(corpus: Path) -> None:
    """Write the corpus's `catalog.duckdb`; a reader sees the old file or the new one, never a part.

    Raises `CorpusError` when the file cannot be written, `ValueError` when a view does not fit its documentation.
    """
    _, script = _script(corpus)
    try:
        _write(corpus, script)
    except (OSError, duckdb.IOException) as error:
        raise CorpusError(f"{corpus / CATALOG}: cannot write the catalogue ({_one_line(error)})") from error


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyConnection:
    """Start a query and return the connection to fetch its rows from.

    Raises `QueryError`, one line, when DuckDB refuses it. Rows stream: fetch them inside `one_line_errors` too.
    """
    with one_line_errors(connection):
        return connection.execute(sql)


@contextmanager
def one_line_errors(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Turn an error of DuckDB inside the block into a `QueryError` that names the nearest table or view."""
    try:
        yield
    except duckdb.Error as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise QueryError(f"query: {_one_line(error)}") from None
        known = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND view_name NOT LIKE '\\_%' ESCAPE '\\'"
        names = sorted(name for (name,) in connection.execute(known).fetchall())
        hint = nearest(missing[1], names) or f"; there are: {', '.join(names)}"
        raise QueryError(f"query: no table or view '{missing[1]}'{hint}") from None


def _one_line(error: Exception) -> str:
    """Fold DuckDB's message into one line and keep the line number of a longer query."""
    message, _, place = str(error).partition("\n\nLINE ")
    line = place.partition(":")[0]
    where = f" (line {line})" if line not in {"", "1"} else ""
    return "; ".join(part.strip() for part in message.splitlines() if part.strip()) + where


def _open(corpus: Path, fingerprint: str) -> duckdb.DuckDBPyConnection | None:
    """Open the catalogue file for reading, or return None when it is absent, unreadable or another version's."""
    connection = None
    try:
        connection = duckdb.connect(corpus / CATALOG, read_only=True)
        if connection.execute("SELECT fingerprint FROM _catalog").fetchone() == (fingerprint,):
            return connection
    except duckdb.Error:
        pass
    if connection is not None:
        connection.close()
    return None


def _write(corpus: Path, script: tuple[str, ...]) -> None:
    draft = corpus / f".{CATALOG}.{secrets.token_hex(4)}"
    try:
        with duckdb.connect(draft) as connection:
            _run(connection, script)
        draft.replace(corpus / CATALOG)
    finally:
        draft.unlink(missing_ok=True)


def _run(connection: duckdb.DuckDBPyConnection, script: tuple[str, ...]) -> None:
    """Create the views and check that each has the columns it documents."""
    for statement in script:
        try:
            connection.execute(statement)
        except duckdb.Error as error:
            what = statement.partition("(")[0].partition(" IS ")[0]
            raise CorpusError(f"catalogue: cannot {what.lower()}: {_one_line(error)}") from error
    undocumented = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL ORDER BY ALL"
    ).fetchall()
    if undocumented:
        raise ValueError(f"sql/: undocumented column {'.'.join(undocumented[0])}")


def _script(corpus: Path) -> tuple[str, tuple[str, ...]]:
    """Return the statements that make the catalogue, and a fingerprint of them."""
    statements = [statement for table in TABLES for statement in _table_statements(corpus, table)]
    for view in views():
        statements += [view.sql, *_comments(view.name, view.doc, ((column.name, column.doc) for column in view.columns))]
    fingerprint = hashlib.sha256("\0".join(statements).encode()).hexdigest()
    statements += [
        f"CREATE VIEW _catalog(fingerprint) AS SELECT {_quoted(fingerprint)}",
        *_comments("_catalog", "Which version of the views the catalogue holds.", [("fingerprint", "Hash of their definitions.")]),
    ]
    return fingerprint, tuple(statements)


def _table_statements(corpus: Path, table: Table) -> list[str]:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    if _has_files(corpus, table):
        source = f"SELECT {names} FROM read_parquet({_files(corpus, table)}, hive_partitioning = true, hive_types = {{trace_id: VARCHAR}})"
    else:
        typed = ", ".join(f"CAST(NULL AS {_duckdb_type(column.type)})" for column in table.columns)
        source = f"SELECT {typed} WHERE false"
    return [
        f"CREATE VIEW {table.name}({names}) AS {source}",
        *_comments(table.name, table.doc, ((column.name, column.doc) for column in table.columns)),
    ]


def _has_files(corpus: Path, table: Table) -> bool:
    file = f"{table.name}.parquet"
    return (corpus / EMPTY_PARTITION / file).exists() or any(corpus.glob(f"trace_id=*/{file}"))


def _files(corpus: Path, table: Table) -> str:
    """Return the SQL expression of the glob of a table's files.

    DuckDB has no setting for the folder of the open database, but it derives `temp_directory` from it; any other
    value of that setting means that the catalogue is attached to another database.
    """
    written_in = Path(glob.escape(str(corpus.resolve())))
    there = table_glob(written_in, table.name)
    mark = f"{CATALOG}.tmp"
    below = there.removeprefix(f"{written_in}/")
    here = f"regexp_replace(replace(current_setting('temp_directory'), '{mark}', ''), '([*?[])', '[\\1]', 'g') || '{below}'"
    return f"CASE WHEN suffix(current_setting('temp_directory'), '{mark}') THEN {here} ELSE {_quoted(there)} END"


def _duckdb_type(arrow: str) -> str:
    inner = arrow.removeprefix("list<").removesuffix(">")
    return _DUCKDB_TYPES[inner] + ("[]" if inner != arrow else "")


def _comments(name: str, doc: str, columns: "Iterator[tuple[str, str]] | list[tuple[str, str]]") -> Iterator[str]:
    yield f"COMMENT ON VIEW {name} IS {_quoted(doc)}"
    for column, text in columns:
        yield f'COMMENT ON COLUMN {name}."{column}" IS {_quoted(text)}'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
