"""What the graph adds to a corpus: one Parquet file a table and trace, written in one step."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lumos_df.base.errors import CorpusError, UnwritableError
from lumos_df.base.files import draft_of, unreadable, unwritable
from lumos_df.corpus.folder import trace_ids, traces_without
from lumos_df.corpus.layout import EMPTY_PARTITION, ESTIMATE, trace_folder
from lumos_df.schema import (
    ADVICE_ROWS,
    ADVISED_JOBS,
    CLOCKS,
    COLLECTIVE_MEMBERS,
    CRITICAL_PATH,
    EDGES,
    GAINS,
    JOB_ADVICE,
    REPLAY_STEPS,
    REPLAYS,
    STALLS,
    TABLES,
    Table,
)
from lumos_df.schema.arrow import arrow_schema

OF_JOBS: Final = (
    CLOCKS,
    COLLECTIVE_MEMBERS,
    EDGES,
    REPLAYS,
    REPLAY_STEPS,
    CRITICAL_PATH,
    GAINS,
    STALLS,
    JOB_ADVICE,
    ADVISED_JOBS,
    ADVICE_ROWS,
)
"""Tables of what was found of a trace beside the other ranks of its job."""


def write(corpus: Path, trace_id: str, table: Table, columns: dict[str, Any]) -> bool:
    """Write a trace's rows of one table, over those of an earlier run, and return whether they differ from those.

    Args:
        corpus: the corpus folder.
        trace_id: the trace.
        table: the table.
        columns: a value for every column but `trace_id`: an array, a list, or a pyarrow array.

    Raises `UnwritableError` when it cannot be written, or its trace has been removed.
    """
    folder = trace_folder(corpus, trace_id)
    gone = f"{folder}: removed while the command ran; run it again, or ingest the trace again"
    try:
        make_known(corpus, table)
        differ = write_in(folder, table, columns)
    except OSError as error:
        raise UnwritableError(unwritable(corpus, error) if folder.exists() else gone) from None
    if not trace_id.startswith(ESTIMATE) and not (folder / "traces.parquet").exists():
        # Who removes a folder does not see what comes in meanwhile: a trace of nothing but this would stay.
        remove(corpus, trace_id, table)
        remove_replay(corpus, trace_id)
        with suppress(OSError):
            folder.rmdir()
        raise UnwritableError(gone)
    return differ


def make_known(corpus: Path, table: Table) -> None:
    """Give a table its columns in a corpus that was made before it was known. Raise `OSError` when that fails."""
    empty = corpus / EMPTY_PARTITION / f"{table.name}.parquet"
    if not empty.exists():
        _publish(empty, arrow_schema(table).empty_table())


@cache
def check_columns(corpus: Path) -> None:
    """Raise `CorpusError` where a table lacks a column, or has another in its place: no reader has to expect that.

    Such are corpora of other states of one format. It looks once.
    """
    for table in TABLES:
        try:
            with pq.ParquetFile(corpus / EMPTY_PARTITION / f"{table.name}.parquet") as file:
                stored = {field.name: field.type for field in file.schema_arrow}
        except (OSError, pa.ArrowException):  # made before the table was known; what does not read is told by who reads
            continue
        for field in arrow_schema(table):
            if stored.get(field.name) != field.type:
                raise CorpusError(
                    f"{corpus}: its table {table.name} has no column {field.name} of type {field.type}: another state "
                    "of lumos-df made it; ingest the traces again into a new folder"
                )


def write_in(folder: Path, table: Table, columns: dict[str, Any]) -> bool:
    """Write the rows of one table to the folder of their trace, as `write` does. Raise `OSError` when that fails."""
    schema = arrow_schema(table)
    rows = pa.table({field.name: _column(columns[field.name], field.type) for field in schema})
    path = folder / f"{table.name}.parquet"
    differ = not _holds(path, rows, schema)
    if differ:
        _publish(path, rows)
    return differ


def remove(corpus: Path, trace_id: str, table: Table) -> bool:
    """Remove a trace's rows of one table and return whether there were any. Raise `UnwritableError` when that fails."""
    try:
        (trace_folder(corpus, trace_id) / f"{table.name}.parquet").unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnwritableError(unwritable(corpus, error)) from None
    return True


def remove_replay(corpus: Path, trace_id: str) -> None:
    """Remove what was found of a trace beside the other ranks of its job. Raise `UnwritableError` when that fails."""
    for table in OF_JOBS:
        remove(corpus, trace_id, table)


def remove_replays_of_job(corpus: Path, job: str) -> None:
    """Remove what was found of a job that is about to grow: it is of fewer ranks than the job will have.

    Raises `UnwritableError` when a file cannot be removed, `CorpusError` as `about` does.
    """
    known = {trace_id for trace_id in trace_ids(corpus) if not trace_id.startswith(ESTIMATE)}
    played = {trace_id for table in OF_JOBS for trace_id in known - traces_without(corpus, table)}
    for trace_id in sorted(played):
        if about(corpus, trace_id, "job") == job:
            remove_replay(corpus, trace_id)


def about(corpus: Path, trace_id: str, column: str) -> Any:
    """Return what a trace's row of `traces` says in a column. Raise `CorpusError` where there is none that reads."""
    file = trace_folder(corpus, trace_id) / "traces.parquet"
    try:
        with pq.ParquetFile(file) as stored:
            return stored.read([column])[column][0].as_py()
    except (OSError, IndexError, pa.ArrowException) as error:
        raise CorpusError(unreadable(file, error, "remove the folder around it and ingest the trace again")) from None


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    """Return values as a column of that type; words that stand once each, as a dictionary, go into a file as such."""
    if not isinstance(values, pa.Array):
        return pa.array(values, kind)
    # Not cast to what it is: that loads all of pyarrow's functions.
    return values if values.type == kind or pa.types.is_dictionary(values.type) else values.cast(kind)


def _holds(path: Path, rows: pa.Table, schema: pa.Schema) -> bool:
    """Return whether a file has these very rows; one that cannot be read has not."""
    try:
        # Not `read_table`: to look at a folder as a dataset costs more than a small file's rows.
        with pq.ParquetFile(path) as file:
            return bool(file.read().cast(schema).equals(rows.cast(schema)))
    except (OSError, ValueError, pa.ArrowException):
        return False


def _publish(path: Path, rows: pa.Table) -> None:
    # Most whole numbers here climb slowly or are small: as differences they take less time and space than by value.
    packed = {field.name: "DELTA_BINARY_PACKED" for field in rows.schema if pa.types.is_integer(field.type)}
    with draft_of(path) as draft:
        pq.write_table(
            rows,
            draft,
            compression="zstd",
            compression_level=1,
            use_dictionary=[field.name for field in rows.schema if not pa.types.is_primitive(field.type)],
            column_encoding=packed,
            store_schema=False,
        )
