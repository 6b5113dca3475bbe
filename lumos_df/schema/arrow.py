"""Stored tables in Arrow; a module of its own, so that who asks for names and types alone loads no Arrow."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
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


def each_once(words: Sequence[str]) -> tuple[NDArray[np.int32], pa.Array]:
    """Return (place of each of the words, and NONE behind them; the words, each once).

    Of a dictionary where a word stands twice, pyarrow 26 writes memory that nobody filled into a Parquet file.
    """
    column = pa.array(words, pa.dictionary(pa.int32(), pa.string()))
    return np.append(column.indices, np.int32(NONE)), column.dictionary
