"""What several views of one run read: read, joined and sorted once, kept in temporary tables.

A temporary table or view hides the one of its name, also from the views of the catalogue. The trace's id becomes an
ENUM in all of them, which DuckDB compares as a number: most joins, groups and sorts go by it. So do the names of GPU
rows, which are few and long: as texts, these rows took a tenth longer to keep, to join and to group.
"""

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from lumos_df.corpus.catalog import one_line_errors
from lumos_df.corpus.view_files import queries_over, read_by, read_once, readers, views
from lumos_df.schema import OPERATORS, RECORDED, TABLES, TRACES, Table

if TYPE_CHECKING:
    import duckdb

_TRACE: Final = "_trace"
"""Type of a trace's id."""
_GPU: Final = "_gpu"
"""View of the GPU rows."""
_NAME: Final = "_name"
"""Type of their names."""


def recorded(names: Iterable[str]) -> list[str]:
    """Return those of some views that read nothing but what is stored when a file is read."""
    computed = frozenset[str]().union(*(readers(table.name) for table in TABLES if table not in RECORDED))
    return [name for name in names if name not in computed]


def keep_recorded(connection: "duckdb.DuckDBPyConnection", names: Iterable[str]) -> None:
    """Keep what several of some views read; of views the columns that these name: first what was recorded.

    From then on the connection knows the traces that are there now and no others, and `trace_id` is an ENUM. Raises
    `QueryError` where a table cannot be read.
    """
    asked = set(names)
    with one_line_errors():
        connection.execute(
            f"CREATE TEMP TYPE {_TRACE} AS ENUM (SELECT DISTINCT trace_id FROM {TRACES.name} ORDER BY trace_id)"
        )
    _keep(connection, asked, RECORDED, recorded(read_once(asked)))


def keep_computed(connection: "duckdb.DuckDBPyConnection", names: Iterable[str]) -> None:
    """Then keep the rest, as it is stored now. Raises as `keep_recorded` does."""
    asked = set(names)
    of_recorded = recorded(read_once(asked))
    computed = [table for table in TABLES if table not in RECORDED]
    _keep(connection, asked, computed, [name for name in read_once(asked) if name not in of_recorded])


def _keep(
    connection: "duckdb.DuckDBPyConnection", asked: Collection[str], tables: Iterable[Table], kept: Iterable[str]
) -> None:
    """Keep some stored tables that the asked views read, and some views below these."""
    below = read_by(asked)
    columns = {view.name: [column.name for column in view.columns] for view in views()}
    with one_line_errors():
        ((stored,),) = connection.execute("SELECT current_database()").fetchall()
        for table in tables:
            if table.name in below:
                # Operators are many, and views need few of them.
                often = len(queries_over(table.name, below)) > 1 and table is not OPERATORS
                others = [column.name for column in table.columns if column.name != "trace_id"]
                # A trace that came since has a part of its rows in no table.
                number = f"TRY_CAST(trace_id AS {_TRACE})"
                connection.execute(
                    f"CREATE TEMP {'TABLE' if often else 'VIEW'} {table.name} AS "
                    f"SELECT {', '.join([f'{number} AS trace_id', *_quoted(others)])} "
                    f'FROM "{stored}".main.{table.name} WHERE {number} IS NOT NULL'
                )
        for name in kept:
            read = _quoted(_named(columns[name], queries_over(name, below)))
            if name == _GPU:
                names = f"SELECT DISTINCT name FROM {_GPU} WHERE name IS NOT NULL ORDER BY name"
                connection.execute(f"CREATE TEMP TYPE {_NAME} AS ENUM ({names})")
                read = [f"name::{_NAME} AS name" if column == '"name"' else column for column in read]
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {', '.join(read)} FROM {name}")


def _named(columns: Iterable[str], queries: Iterable[str]) -> list[str]:
    """Return the columns that some query names."""
    words = {word for query in queries for word in re.findall(r"\w+", query)}
    return [column for column in columns if column in words]


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
