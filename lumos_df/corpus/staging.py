"""Writing a corpus: a trace is built in a folder of its own and appears by one rename.

Killed at any moment, a writer leaves what was there before plus an unread folder, which the next writer removes. Two
writers of one trace build the same rows; the first rename wins and the second finds the place taken.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.files import begin_flush, publish_files, publish_folder
from lumos_df.base.locks import hold
from lumos_df.corpus import column_sets, table_files
from lumos_df.corpus.folder import lock_of, trace_ids
from lumos_df.corpus.layout import EMPTY_PARTITION, STAGING, trace_folder, write_manifest
from lumos_df.schema.arrow import arrow_schema

_PACKED: Final = (
    *("ts", "op_id", "parent_id", "correlation", "external_id", "event", "sequence_number"),
    *("dur", "inner_dur"),
)
"""Columns that climb slowly, and whole numbers that are mostly small: stored as differences."""
_FEW: Final = ("rank", "thread", "device", "stream", "step", "layer", "group_size", "occupancy")
"""Columns of few distinct numbers."""
_STATED: Final = ("rank", "op_id", "kind", "ts", "dur", "event")
"""Columns of operators that are never null: nothing is stored that would say so of each row."""
_STATISTICS: Final = ["ts", "op_id", "step", "event"]
"""Columns by which readers skip row groups."""
_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
_COLUMNS: Final[dict[str, Any]] = {"compression": "snappy", "version": "2.6", "max_rows_per_page": 1 << 17}
"""Numbers and dictionaries are small once they are encoded: with zstd a tenth smaller, for a quarter more time.

A page is as long as a row group: with pyarrow's 20,000 rows operators are a tenth larger, and a tenth slower to read.
"""
_TEXTS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    "version": "2.6",
    "data_page_size": 1 << 17,
    "write_batch_size": 1 << 12,
}
"""With pages of pyarrow's megabyte, filled a thousand rows at a time, texts take a tenth longer and no less space."""

_GROUP_BYTES: Final = 6 << 20
"""Bytes of args of a row group: some 60,000 of Kineto, so that who looks for a few need not unpack many."""


def operator_schema() -> pa.Schema:
    """Return the schema in which operators are handed to the writer: texts as dictionaries, stored as they are."""
    fields = arrow_schema(schema.OPERATORS)
    return pa.schema(
        [
            pa.field(field.name, _TEXT if field.type == pa.string() else field.type, nullable=field.name not in _STATED)
            for field in fields
        ]
    )


def encode(columns: pa.Schema, row_groups: Iterable[pa.Table], repeats: int = 1) -> column_sets.EncodedColumns:
    """Encode some columns of the operators, in a thread of its own while others are made; see `column_sets.encode`."""
    return column_sets.encode(columns, row_groups, _options(columns), repeats=repeats)


def _options(columns: pa.Schema) -> dict[str, Any]:
    """Return how a table's columns are written."""
    return {
        "use_dictionary": [
            field.name for field in columns if field.name in _FEW or not pa.types.is_primitive(field.type)
        ],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _PACKED if name in columns.names},
        "write_statistics": _STATISTICS,
        "store_schema": False,
        **_COLUMNS,
    }


def create(corpus: Path) -> None:
    """Lay down the tables' columns before any trace has rows, then the manifest, which makes it a corpus."""
    folder = corpus / EMPTY_PARTITION
    folder.mkdir(exist_ok=True)
    publish_files(folder, {f"{table.name}.parquet": _no_rows(table) for table in schema.TABLES})
    write_manifest(corpus)


@cache
def _no_rows(table: schema.Table) -> bytes:
    """Return a file of no rows, made in memory: pyarrow takes four times as long to find out where to write one."""
    content = pa.BufferOutputStream()
    pq.ParquetWriter(content, arrow_schema(table), **_COLUMNS).close()
    return bytes(content.getvalue())


def holds(corpus: Path, digest: str) -> list[str]:
    """Return the ids of a file's traces if every rank of the file is in, else nothing.

    Raises `CorpusError` where the folder of one does not say it.
    """
    stem = digest[: schema.ID_LENGTH]
    stored = sorted(name for name in trace_ids(corpus) if name.split("-")[0] == stem)
    if not stored:
        return []
    return stored if len(stored) == table_files.about(corpus, stored[0], "ranks_in_file") else []


class SideWriter:
    """A Parquet file that a thread writes: a table is written while the next one is made."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lumos-df-writer")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_table(self, rows: pa.Table) -> None:
        """Begin to write a table, once the one before is written; raises what became of that."""
        self._wait()
        self._writing = self._thread.submit(self._writer.write_table, rows)

    def close(self) -> None:
        """End the file; raises what became of its last table."""
        try:
            self._wait()
        finally:
            self._thread.shutdown()
            self._writer.close()

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing:
            writing.result()


class Staging:
    """A folder in which the traces of one file are built; gone at the end, whatever happened."""

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus
        self._folder = corpus / STAGING / secrets.token_hex(8)
        self._texts: list[pa.Table] = []
        """Args that are not written yet."""
        self._text_bytes = 0

    def __enter__(self) -> Self:
        self._folder.parent.mkdir(exist_ok=True)
        self._lock = hold(lock_of(self._folder))
        try:
            self._folder.mkdir()
            self._args = self._args_writer()
        except OSError:
            self._remove()
            raise
        return self

    @property
    def args_file(self) -> Path:
        """Return the file of the raw args, whole once they are closed."""
        return self._folder / "args.parquet"

    def _args_writer(self) -> SideWriter:
        return SideWriter(
            pq.ParquetWriter(
                self.args_file,
                arrow_schema(schema.ARGS),
                use_dictionary=False,
                write_statistics=["event"],
                column_encoding={"event": "DELTA_BINARY_PACKED"},
                **_TEXTS,
            )
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._args.close()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        lock_of(self._folder).unlink(missing_ok=True)
        os.close(self._lock)

    def add_args(self, events: NDArray[np.int32], offsets: NDArray[np.int32], text: NDArray[np.uint8]) -> None:
        """Append raw args, as `ArgsSink` of a recording does; they are written from these arrays, later."""
        texts = pa.StringArray.from_buffers(
            len(events), pa.py_buffer(offsets.astype(np.int32, copy=False)), pa.py_buffer(text)
        )
        self._texts.append(pa.table([pa.array(events), texts], names=["event", "args"]))
        self._text_bytes += len(text)
        if self._text_bytes >= _GROUP_BYTES:
            self._write_args()

    def _write_args(self) -> None:
        self._args.write_table(pa.concat_tables(self._texts))
        self._texts, self._text_bytes = [], 0

    def close_args(self) -> None:
        """End the args file; nothing can be added after."""
        if self._texts:
            self._write_args()
        self._args.close()
        begin_flush(self.args_file)

    def write(self, trace_id: str, table: schema.Table, rows: pa.Table) -> None:
        """Write a whole table, unless it has no rows."""
        if rows.num_rows:
            columns = arrow_schema(table)
            with pq.ParquetWriter(self._file(trace_id, table), columns, **_options(columns)) as writer:
                writer.write_table(rows)

    def write_operators(self, trace_id: str, sets: Sequence[column_sets.EncodedColumns]) -> None:
        """Write the operators, of sets of columns that `encode` made."""
        columns = operator_schema()
        column_sets.write(self._file(trace_id, schema.OPERATORS), columns, sets, _options(columns))

    def _file(self, trace_id: str, table: schema.Table) -> Path:
        folder = self._folder / trace_id
        folder.mkdir(exist_ok=True)
        return folder / f"{table.name}.parquet"

    def share_args(self, trace_id: str, events: NDArray[np.bool_] | None) -> None:
        """Give the trace its args: those of the events that are marked, or the whole file for None."""
        source, target = self.args_file, self._file(trace_id, schema.ARGS)
        if events is None:
            source.replace(target)
            return
        with pq.ParquetFile(source) as file, pq.ParquetWriter(target, arrow_schema(schema.ARGS), **_TEXTS) as writer:
            for batch in file.iter_batches():
                writer.write_batch(batch.filter(pa.array(events[batch["event"].to_numpy()])))

    def publish(self, trace_id: str) -> bool:
        """Make a trace visible, all its tables at once; return False when another writer was first."""
        return publish_folder(self._folder / trace_id, trace_folder(self._corpus, trace_id))
