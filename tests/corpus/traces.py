"""Traces of a corpus that no profiler wrote: rows of its tables as a test names them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lumos_df.corpus import layout
from lumos_df.schema import TABLES
from lumos_df.schema.arrow import arrow_schema


def put_trace(corpus: Path, trace_id: str, **rows: Sequence[Mapping[str, Any]]) -> None:
    """Put a trace into a corpus: rows by table, each with the columns that are not null."""
    folder = layout.trace_folder(corpus, trace_id)
    folder.mkdir(parents=True)
    for table in TABLES:
        made = pa.Table.from_pylist(list(rows.get(table.name, ())), schema=arrow_schema(table))
        pq.write_table(made, folder / f"{table.name}.parquet")
