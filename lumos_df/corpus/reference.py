"""The SQL reference: every stored table and view with its columns, as Markdown."""

from collections.abc import Iterable, Iterator
from typing import Final

from lumos_df.corpus.catalog import blank
from lumos_df.corpus.view_files import Macro, macros, views
from lumos_df.schema import TABLES

_HEAD: Final = """\
# SQL reference

Generated from `lumos_df/schema/` and `sql/`; edit those.

A corpus answers SQL in three ways, with the same tables and views in each:

- `lumos-df sql "SELECT * FROM gpu_time" --corpus DIR`
- `lumos_df.connect("DIR").sql("SELECT * FROM gpu_time")` in Python
- any DuckDB 2 client that opens the file `DIR/catalog.duckdb`; `duckdb_views()` and `duckdb_columns()` explain
  themselves there too

Times are whole nanoseconds: `ts` is a start on the trace's own clock (add `traces.clock_origin_ns` for Unix time),
`dur` a duration, `*_ns` any other time. Every other quantity bears its unit in its name: `_bytes`, `_pct` (percent),
`_gbps` (10^9 bytes a second). An operator is known by `(trace_id, op_id)`.
Every view over traces begins with their `job`.

A trace's rows lie in files of its own, and DuckDB opens those of other traces only where it must. Of many ranks, one is
asked for by its trace. A stored table takes `WHERE trace_id IN (SELECT trace_id FROM traces WHERE rank = 3)`; a view
that joins tables has to have the id before it begins:

```sql
SET VARIABLE trace = (SELECT trace_id FROM traces WHERE rank = 3);
FROM kernel WHERE trace_id = getvariable('trace')
```

With `WHERE rank = 3` alone DuckDB looks into the files of all ranks, as it does for views that compare ranks or steps.
"""

_FOLDERS: Final = {
    "report": ("Report views", "Summaries; `lumos-df report` exports these."),
    "sim": ("Simulated views", "Estimates, alone and compared with what was measured."),
    "trace": ("Row-level views", "One row an event, interval or instant."),
    "base": ("Base views", "What other views build on."),
}


def sql_reference() -> str:
    """Return the reference as Markdown text that ends with a newline."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    with blank() as database:
        types: dict[tuple[str, str], str] = {
            (table, column): type_name
            for table, column, type_name in database.execute(
                "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
            ).fetchall()
        }
        # No table is needed to know the types of a macro's columns, only the name of one.
        database.execute("CREATE TABLE _none(nothing INTEGER)")
        for macro in macros():
            for column, type_name, *_ in database.execute(f"DESCRIBE FROM {_call(macro, '_none')}").fetchall():
                types[macro.name, column] = type_name
    public = sorted((view for view in views() if not view.internal), key=lambda view: view.name)
    yield _HEAD
    for folder, (title, what) in _FOLDERS.items():
        chosen = [view for view in public if view.folder == folder]
        if chosen:
            yield f"## {title}\n\n{what}\n"
        for view in chosen:
            yield from _section(view.name, view.doc, ((column.name, column.doc) for column in view.columns), types)
        for macro in macros():
            if macro.folder == folder:
                yield from _macro(macro, types)
    yield "## Stored tables\n\nParquet files, one set a trace: `DIR/trace_id=<id>/<table>.parquet`.\n"
    for table in TABLES:
        yield from _section(table.name, table.doc, ((column.name, column.doc) for column in table.columns), types)


def _macro(macro: Macro, types: dict[tuple[str, str], str]) -> Iterator[str]:
    yield f"### `{macro.name}`\n\n{macro.doc}\n\n| parameter | what |\n|---|---|"
    for parameter in macro.parameters:
        default = " := ..." if parameter.name in macro.optional else ""
        yield f"| `{parameter.name}{default}` | {parameter.doc} |"
    yield "\n| column | type | what |\n|---|---|---|"
    for column in macro.columns:
        yield f"| `{column.name}` | {types[macro.name, column.name]} | {column.doc} |"
    yield ""


def _call(macro: Macro, table: str) -> str:
    """Return a call of a table macro with the same table for every parameter without a default."""
    needed = len(macro.parameters) - len(macro.optional)
    return macro.name + "(" + ", ".join([f"'{table}'"] * needed) + ")"


def _section(
    name: str, doc: str, columns: Iterable[tuple[str, str]], types: dict[tuple[str, str], str]
) -> Iterator[str]:
    yield f"### `{name}`\n\n{doc}\n\n| column | type | what |\n|---|---|---|"
    for column, text in columns:
        yield f"| `{column}` | {types[name, column]} | {text} |"
    yield ""
