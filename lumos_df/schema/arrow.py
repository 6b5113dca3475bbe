"""The Arrow schema of a stored table; a module of its own, so that who asks for names and types alone loads no Arrow."""

from typing import Final

import pyarrow as pa

from lumos_df.schema.table import Table

_TYPES: Final[dict[str, pa.DataType]] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "list<string>": pa.list_(pa.string()),
    "list<int32>": pa.list_(pa.int32()),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table's files: every column but `trace_id`, the partition key."""
    return pa.schema([(column.name, _TYPES[column.type]) for column in table.columns if column.name != "trace_id"])
