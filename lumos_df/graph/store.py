"""What the graph adds to a corpus: one Parquet file a table and trace, written in one step."""

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lumos_df.errors import CorpusError
from lumos_df.layout import EMPTY_PARTITION, trace_folder
from lumos_df.schema import Table
from lumos_df.schema.arrow import arrow_schema


def write(corpus: Path, trace_id: str, table: Table, columns: dict[str, Any]) -> None:
    """Write a trace's rows of one table, over those of an earlier run. Raise `CorpusError` when it cannot be written.

    Args:
        corpus: the corpus folder.
        trace_id: the trace.
        table: the table.
        columns: a value for every column but `trace_id`: an array, a list, or a pyarrow array.
    """
    schema = arrow_schema(table)
    rows = pa.table(
        [
            pa.array(columns[field.name], field.type)
            if not isinstance(columns[field.name], pa.Array)
            else columns[field.name].cast(field.type)
            for field in schema
        ],
        schema=schema,
    )
    try:
        # A corpus made before this table was known has no columns for it yet.
        empty = corpus / EMPTY_PARTITION / f"{table.name}.parquet"
        if not empty.exists():
            _publish(empty, schema.empty_table())
        _publish(trace_folder(corpus, trace_id) / f"{table.name}.parquet", rows)
    except OSError as error:
        raise _unwritable(corpus, error) from None


def remove(corpus: Path, trace_id: str, table: Table) -> None:
    """Remove a trace's rows of one table, if there are any. Raise `CorpusError` when they cannot be removed."""
    try:
        (trace_folder(corpus, trace_id) / f"{table.name}.parquet").unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(corpus, error) from None


def _unwritable(corpus: Path, error: OSError) -> CorpusError:
    return CorpusError(f"{corpus}: cannot be written ({error.strerror or error}); give a folder that you may write to")


def _publish(path: Path, rows: pa.Table) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        pq.write_table(rows, draft, compression="zstd", compression_level=1, store_schema=False)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
