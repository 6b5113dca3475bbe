"""Reports of Nsight Systems written out in a test: the tables that a test needs, with the columns that it needs."""

import os
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

PROFILES: Final = Path(os.environ.get("LUMOS_PROFILES", Path(__file__).parents[3] / "shared" / "profiles"))
"""Where recorded files of other profilers lie; tests that read them skip where it is absent."""

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
WORDS: Final = ("ampere_sgemm", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamWaitEvent_v3020", "poll")
"""StringIds of every file, from 0."""
GEMM, LAUNCH, COPY, WAIT, POLL = range(5)

Rows = Sequence[tuple[Any, ...]]


def gid(pid: int, tid: int = 0) -> int:
    """Return the globalTid of a thread, the globalPid of thread 0."""
    return 1 << 48 | pid << 24 | tid


def write(path: Path, **tables: tuple[str, Rows]) -> Path:
    """Write a file: `table=("column, column", rows)`; a column's type does not matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    words = ("id INTEGER PRIMARY KEY, value", list(enumerate(WORDS)))
    with closing(sqlite3.connect(path)) as database, database:
        for name, (columns, rows) in {"StringIds": words, **tables}.items():
            database.execute(f"CREATE TABLE {name} ({columns})")
            marks = ", ".join("?" * len(columns.split(",")))
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    return path


def kernels(*rows: tuple[Any, ...]) -> tuple[str, Rows]:
    """Return kernels of (start, end, device, stream, correlation, pid)."""
    columns = "start, end, deviceId, streamId, correlationId, globalPid, demangledName, gridX, gridY, gridZ"
    return columns, [(*row[:5], gid(row[5]), GEMM, 80, 2, 1) for row in rows]


def calls(*rows: tuple[Any, ...]) -> tuple[str, Rows]:
    """Return calls of (start, end, pid, tid, correlation, id of the name)."""
    return "start, end, globalTid, correlationId, nameId", [(*row[:2], gid(*row[2:4]), *row[4:]) for row in rows]


def ranges(*rows: tuple[Any, ...], kind: int = 59) -> tuple[str, Rows]:
    """Return NVTX ranges of (start, end, pid, tid, text), then the JSON and the binary payload if there is one."""
    columns = "start, end, globalTid, text, eventType, textId, jsonText, binaryData"
    return columns, [(*row[:2], gid(*row[2:4]), row[4], kind, None, *row[5:], *[None] * (7 - len(row))) for row in rows]


def export_parquet(sqlite: Path, folder: Path) -> Path:
    """Write a file's tables as `nsys export --type parquetdir` does: one file each, keys of processes unsigned."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(sqlite)) as database:
        database.text_factory = bytes
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = database.execute(f"SELECT * FROM {table.decode()}")
            names = [column[0] for column in cursor.description]
            columns = dict(zip(names, map(list, zip(*cursor.fetchall(), strict=True)), strict=True))
            arrays = {name: _parquet_column(name, values) for name, values in columns.items()}
            pq.write_table(pa.table(arrays), folder / f"{table.decode()}.parquet")
    return folder


def _parquet_column(name: str, values: list[Any]) -> pa.Array:
    if not any(isinstance(value, bytes) for value in values):
        return pa.array(values, pa.uint64() if name.startswith("global") or name == "start" else pa.int64())
    texts = pa.array(values, pa.large_binary())
    validity, offsets, data = texts.buffers()  # Nsight's texts need be no UTF-8
    return pa.LargeStringArray.from_buffers(len(texts), offsets, data, validity, texts.null_count)


def payload(domain: int, schema: int, form: str, *numbers: int) -> bytes:
    """Return a binary payload of NVTX of numbers in `struct`'s form, with Nsight's header."""
    said = struct.pack("<" + form, *numbers)
    return struct.pack("<4Q", domain, schema, len(said), 32 + len(said)) + said
