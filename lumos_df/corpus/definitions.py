"""The statements that make the catalogue of a corpus: its tables over Parquet files, and the views of `sql/`.

Only those of `of_corpus` say where the corpus is; the others are alike in every corpus with the same tables.
"""

import glob
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from lumos_df.corpus.catalog_file import partitioned
from lumos_df.corpus.layout import CATALOG, EMPTY_PARTITION, table_glob
from lumos_df.corpus.view_files import View, macros, views
from lumos_df.schema import STALLS, TABLES, Table

FOLDER: Final = "_corpus_folder"
"""Macro of the folder where the tables lie, as the beginning of a glob."""
_SUMMARIES: Final = "_summary_folder"
"""Macro of the folder of summaries below it."""
_MANY_ROWS: Final = 1_000_000
_FEW_ROWS: Final = 10_000
"""Rows that DuckDB plans a table for: of events of traces, and of anything else.

It would go by the file whose name comes first, which may be the empty one that holds the columns: then it joins by the
trace alone, each row with each other.
"""
_OF_EVENTS: Final = frozenset({"op_id", "event", "args", "src"})
"""Columns of which tables of events have at least one."""
_RARE: Final = frozenset({STALLS.name})
"""Tables of few rows though each names an event: by their planned size DuckDB chooses which side of a join it keeps."""
_DUCKDB_TYPES: Final = {
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}


def of_corpus(corpus: Path, summaries: str, written_in: str) -> tuple[str, str]:
    """Return the macros of the corpus's folder, and of the folder of its summaries in it.

    DuckDB has no setting for the folder of the open database, but derives `temp_directory` from it; any other value
    of that setting means that the catalogue is attached to another database: its folder is where it was `written_in`,
    as the beginning of a glob, or spaces and that.
    """
    mark = quoted(f"{CATALOG}.tmp")
    setting = "current_setting('temp_directory')"
    folder = f"regexp_replace(replace({setting}, {mark}, ''), '([*?[])', '[\\1]', 'g')"
    if partitioned(corpus):
        moved = "the corpus now lies below a folder with = in its name: open it once with lumos-df sql"
        folder = f"CASE WHEN contains({setting}, '=') THEN error({quoted(moved)}) ELSE {folder} END"
    folder = f"CASE WHEN suffix({setting}, {mark}) THEN {folder} ELSE ltrim({quoted(written_in)}) END"
    return (
        f"CREATE OR REPLACE MACRO {FOLDER}() AS {folder}",
        f"CREATE OR REPLACE MACRO {_SUMMARIES}() AS {quoted(f'{summaries}/')}",
    )


def of_tables(corpus: Path, kept: Container[str]) -> Iterator[str]:
    """Give the statements that define every stored table; of those that are `kept`, over their summaries."""
    for table in TABLES:
        if table.name in kept:
            select = f"SELECT {_columns(table)} FROM {_summary(table.name)}"
        elif _has_files(corpus, table):
            select = _rows_of(table, f"{FOLDER}() || {quoted(table_glob(table.name))}", partitioned=partitioned(corpus))
        else:
            select = _no_rows(table)
        yield f"CREATE VIEW {table.name}({_columns(table)}) AS {select}"
        yield from comments(table.name, table.doc, ((column.name, column.doc) for column in table.columns))


def of_files(corpus: Path, table: Table, files: Sequence[Path]) -> str:
    """Return the statement that defines a stored table by some of its files."""
    paths = f"[{', '.join(quoted(glob.escape(str(file.resolve()))) for file in files)}]"
    select = _rows_of(table, paths, partitioned=partitioned(corpus)) if files else _no_rows(table)
    return f"CREATE VIEW {table.name}({_columns(table)}) AS {select}"


def _columns(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


def _rows_of(table: Table, files: str, *, partitioned: bool) -> str:
    """Return the query for a table's rows in `files`, an expression for one glob or a list of them."""
    key, *stored = (f'"{column.name}"' for column in table.columns)
    has_events = table.name not in _RARE and not _OF_EVENTS.isdisjoint(column.name for column in table.columns)
    planned = f"explicit_cardinality = {_MANY_ROWS if has_events else _FEW_ROWS}"
    if partitioned:
        options = f"hive_partitioning = true, hive_types = {{{key}: VARCHAR}}, {planned}"
        return f"SELECT {_columns(table)} FROM read_parquet({files}, {options})"
    trace = f"regexp_extract(filename, 'trace_id=([^/]*)/[^/]*$', 1) AS {key}"
    return f"SELECT {', '.join([trace, *stored])} FROM read_parquet({files}, hive_partitioning = false, {planned})"


def _no_rows(table: Table) -> str:
    return f"SELECT {', '.join(f'NULL::{duckdb_type(column.type)}' for column in table.columns)} WHERE false"


def of_views(kept: Container[str] = ()) -> Iterator[str]:
    """Give the statements that define every view and macro; of the views that are `kept`, over their summaries."""
    for view in views():
        yield _over_summary(view) if view.name in kept else view.sql
        yield from comments(view.name, view.doc, ((column.name, column.doc) for column in view.columns))
    for macro in macros():
        yield macro.sql
        yield f"COMMENT ON MACRO TABLE {macro.name} IS {quoted(macro.doc)}"


def _over_summary(view: View) -> str:
    columns = ", ".join(f'"{column.name}"' for column in view.columns)
    return f"CREATE VIEW {view.name}({columns}) AS SELECT {columns} FROM {_summary(view.name)}"


def _summary(name: str) -> str:
    return f"read_parquet({FOLDER}() || {_SUMMARIES}() || {quoted(f'{name}-*.parquet')}, hive_partitioning = false)"


def _has_files(corpus: Path, table: Table) -> bool:
    """Whether the corpus holds the table; one made before the table was thought of does not."""
    file = f"{table.name}.parquet"
    return (corpus / EMPTY_PARTITION / file).exists() or any(corpus.glob(f"trace_id=*/{file}"))


def duckdb_type(arrow: str) -> str:
    """Return DuckDB's name of a type of `schema`."""
    inner = arrow.removeprefix("list<").removesuffix(">")
    return _DUCKDB_TYPES[inner] + ("[]" if inner != arrow else "")


def comments(name: str, doc: str, columns: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Give the statements that document a view and its columns."""
    yield f"COMMENT ON VIEW {name} IS {quoted(doc)}"
    for column, text in columns:
        yield f'COMMENT ON COLUMN {name}."{column}" IS {quoted(text)}'


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
