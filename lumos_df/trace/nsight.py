"""The reader of Nsight Systems, as `nsys export --type sqlite` writes it: what its tables and columns mean.

Versions differ in tables and columns: what a file lacks is null [Nsight Systems User Guide, SQLite schema reference].
"""

from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import ANNOTATION, KERNEL, MEMCPY, MEMSET, NONE, NULL, OTHER_KIND, RUNTIME, SYNC
from lumos_df.trace import nvtx_texts
from lumos_df.trace.event_args import give
from lumos_df.trace.nsight_session import Session, session
from lumos_df.trace.recorded_processes import last_places
from lumos_df.trace.recording import ArgsSink, Attribute, EventType, Recording
from lumos_df.trace.row_collector import CROSSING, NESTED, PROFILER, TID_BITS, Columns, RowCollector, left, sizes
from lumos_df.trace.sqlite_columns import Database, opened
from lumos_df.trace.stored_file import StoredFile

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_RECORDS: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_METRICS: Final = "GPU_METRICS"
_OTHERS: Final = {"OSRT_API": NESTED, "CUPTI_ACTIVITY_KIND_OVERHEAD": PROFILER, "PROFILER_OVERHEAD": PROFILER}
"""Tables of what lasts on the host beside calls and ranges, each with its lane."""
_INSTANTS: Final = ("CUDA_GRAPH_EVENTS",)
_READ: Final = {_KERNELS, _COPIES, _FILLS, _GRAPHS, _WAITS, _RECORDS, _CALLS, _RANGES, _METRICS, *_OTHERS, *_INSTANTS}

_SPAN: Final = {"ts": '"start"', "dur": '"end" - "start"'}
_ON_GPU: Final = {
    **_SPAN,
    "device": '"deviceId"',
    "stream": '"streamId"',
    "correlation": '"correlationId"',
    "process": '"globalPid" >> 24',
}
_ON_HOST: Final = {**_SPAN, "name": '"nameId"', "thread": '"globalTid"'}
_ENDED: Final = 'WHERE "end" IS NOT NULL'
_SIZES: Final = '("{0}X" << 32) | ("{0}Y" << 16) | "{0}Z"'
"""A grid or block as one number: CUDA bounds x by 2^31 - 1, y and z by 2^16 - 1."""

_COPY_WORDS: Final = (
    *("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD"),
)
_MEMORY_WORDS: Final = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"),
)
"""How Kineto writes CUPTI's kinds of copies and of memory, by Nsight's numbers."""
_WAIT_WORDS: Final = (
    ("StreamWaitEvent", "Stream Wait Event"),
    ("EventSynchronize", "Event Sync"),
    ("StreamSynchronize", "Stream Sync"),
    ("Synchronize", "Context Sync"),
)
"""How Kineto writes what a call waits for. The types of Nsight's rows have other numbers in other versions."""
_NO_ID: Final = (1 << 32) - 1
_VERSION_OF_CALL: Final = "_v[0-9]{4,}$"
"""What Nsight adds to the name of a runtime call: since which CUDA it is so."""
_PUSH_POP, _START_END = 59, 60
"""NVTX_EVENTS.eventType of ranges."""
_LASTS: Final = f'"end" IS NOT NULL AND "eventType" IN ({_PUSH_POP}, {_START_END})'
_KERNEL_ARGS: Final = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId")


def read(file: StoredFile, sink: ArgsSink) -> Recording:
    """Read an exported report.

    Raises:
        TraceError: it is no report, it cannot be read, or it holds nothing that lasts.
    """
    with opened(file) as database:
        if not _READ & database.tables.keys():
            raise TraceError(
                f"{file.name}: SQLite without a table of a profiler that this version knows, such as {_KERNELS} or "
                f"{_RANGES}; write it with: nsys export --type sqlite REPORT.nsys-rep"
            )
        return _ReportReader(database, sink).run()


class _ReportReader:
    """Collects the rows of one table after another."""

    def __init__(self, database: Database, sink: ArgsSink) -> None:
        self._database = database
        self._sink = sink
        self._rows = RowCollector()
        ids = database.numbers("StringIds", {"id": '"id"'})["id"]
        self._values = database.texts("StringIds", '"value"')
        self._by_id = np.argsort(ids[: len(self._values)], kind="stable")
        self._ids = ids[self._by_id]

    def run(self) -> Recording:
        database = self._database
        said = session(database)
        calls = self._calls()
        self._gpu_rows(calls)
        self._waits(calls)
        self._ranges()
        for table, lane in _OTHERS.items():
            rows = database.numbers(table, _ON_HOST, _ENDED)
            rows["name"] = self._named(rows["name"])
            self._rows.add(OTHER_KIND, rows, lane=np.full(len(rows["ts"]), lane))
        for table in _INSTANTS:
            threads = database.numbers(table, {"thread": '"globalTid"'})["thread"]
            self._rows.count(EventType.INSTANT, threads >> TID_BITS)
        self._metrics(said)
        if self._rows.empty:
            raise TraceError(
                f"{database.name}: none of its tables holds anything that lasts; record with --trace=cuda,nvtx"
            )
        return self._rows.recording(
            dialect="nsight",
            rank=said.rank,
            broken_texts=database.broken_texts,
            left_out=[*left(self._unread()), *database.damage],
            clock_origin_ns=said.clock_origin_ns,
            world_size=said.world_size,
            devices=said.devices,
            versions=said.versions,
            metadata=said.metadata,
            truncated=bool(database.damage),
        )

    def _named(self, ids: NDArray[np.int64], superfluous: str = "") -> NDArray[np.int32]:
        """Return the place of the text of each id of StringIds, less what is superfluous; NONE where it lacks one."""
        coded = pa.array(ids).dictionary_encode()
        wanted = coded.dictionary.to_numpy()
        at = np.minimum(np.searchsorted(self._ids, wanted), max(len(self._ids) - 1, 0))
        if not len(self._ids):
            return np.full(len(ids), NONE, np.int32)
        texts = self._values.take(pa.array(self._by_id[at], mask=self._ids[at] != wanted))
        if superfluous:
            texts = pc.replace_substring_regex(texts, superfluous, "")
        places: NDArray[np.int32] = self._rows.texts.places(texts)[coded.indices.to_numpy()]
        return places

    def _calls(self) -> Columns:
        """Take in the calls of CUDA's runtime and driver, and return them."""
        rows = self._database.numbers(_CALLS, {**_ON_HOST, "correlation": '"correlationId"'}, _ENDED)
        rows["name"] = self._named(rows["name"], _VERSION_OF_CALL)
        self._rows.add(RUNTIME, rows)
        return rows

    def _gpu_rows(self, calls: Columns) -> None:
        """Take in what occupied a stream: kernels, copies, fills, and graphs of which no node was recorded."""
        name = 'coalesce("demangledName", "shortName", "mangledName")'
        packed = {size: _SIZES.format(size) for size in ("grid", "block")}
        args = {column: f'"{column}"' for column in self._database.columns(_KERNELS, _KERNEL_ARGS)}
        rows = self._owned(_KERNELS, {**_ON_GPU, "name": name, **packed, **args}, calls)
        rows["name"] = self._named(rows["name"])
        rows |= {size: self._rows.worded(rows[size], sizes) for size in packed}
        raw = pl.DataFrame({column: pl.Series(rows.pop(column)).replace(NULL, None) for column in args})
        give(self._sink, self._rows.add(KERNEL, rows), raw)
        for table, kind, name, word in (
            (_COPIES, MEMCPY, '("copyKind" << 16) | ("srcKind" << 8) | "dstKind"', _copy_name),
            (_FILLS, MEMSET, '"memKind"', _fill_name),
        ):
            rows = self._owned(table, {**_ON_GPU, "name": name, "bytes": '"bytes"'}, calls)
            rows["name"], moved = self._rows.worded(rows["name"], word), rows.pop("bytes")
            self._rows.state(Attribute.BYTES_MOVED, self._rows.add(kind, rows), moved)
        rows = self._owned(_GRAPHS, {**_ON_GPU, "name": '"graphId"'}, calls)
        rows["name"] = self._rows.worded(rows["name"], lambda graph: f"CUDA graph {graph}")
        self._rows.add(KERNEL, rows)

    def _owned(self, table: str, columns: dict[str, str], calls: Columns, tail: str = _ENDED) -> Columns:
        """Read rows of a GPU; those that state no process have that of the call with their correlation, else 0."""
        rows = self._database.numbers(table, columns, tail)
        unknown = rows["process"] == NULL
        if unknown.any():
            place, known = last_places(calls["correlation"], rows["correlation"][unknown])
            rows["process"][unknown] = np.where(known, np.append(calls["thread"], 0)[place] >> TID_BITS, 0)
        return rows

    def _waits(self, calls: Columns) -> None:
        """Take in what calls waited for, with the record of the event where the file has both."""
        event = {"event": '"eventId"', "turn": '"eventSyncId"'}
        records = self._owned(_RECORDS, {**_ON_GPU, **event}, calls, "")
        self._rows.count(EventType.INSTANT, records["process"])
        rows = self._owned(_WAITS, {**_ON_GPU, **event}, calls)
        place, known = last_places(
            *_keys((calls["thread"] >> TID_BITS, calls["correlation"]), (rows["process"], rows["correlation"]))
        )
        kinds = [
            next((word for part, word in _WAIT_WORDS if part in text), "Sync") for text in self._rows.texts.strings
        ]
        words = np.array([self._rows.texts.place(word) for word in (*kinds, "Sync")], np.int32)
        rows["name"] = words[np.where(known, np.append(calls["name"], NONE)[place], NONE)]
        rows["stream"][rows["stream"] == _NO_ID] = NULL
        waited = {name: rows.pop(name) for name in event}
        events = self._rows.add(SYNC, rows)
        at, known = _records_before(records, {**rows, **waited})
        self._rows.state(Attribute.WAIT_STREAM, events[known], records["stream"][at[known]])
        self._rows.state(Attribute.WAIT_CORRELATION, events[known], records["correlation"][at[known]])

    def _ranges(self) -> None:
        """Take in NVTX: ranges as operators and annotations, anything else as instants."""
        numbers = {**_SPAN, "thread": '"globalTid"', "type": '"eventType"'}
        rows = self._database.numbers(_RANGES, numbers, f"WHERE {_LASTS}")
        texts, payloads = (
            self._database.texts(
                _RANGES,
                f'coalesce("{name}", (SELECT value FROM StringIds WHERE id = "{name}Id"))'
                if "StringIds" in self._database.tables
                else f'"{name}"',
                f"WHERE {_LASTS}",
            )
            for name in ("text", "jsonText")
        )
        count = min(len(texts), len(payloads), len(rows["ts"]))  # a damaged file may give fewer of one than of another
        rows, texts, payloads = {name: column[:count] for name, column in rows.items()}, texts[:count], payloads[:count]
        said = nvtx_texts.parts(texts)
        crosses = rows.pop("type") == _START_END
        events = self._rows.add(
            np.where(crosses, np.int8(ANNOTATION), said.kind),
            rows,
            name=self._rows.texts.places(said.name),
            lane=np.where(crosses, CROSSING, NESTED),
            input_dims=self._rows.texts.places(said.sizes),
        )
        numbered = said.sequence != NULL
        self._rows.state(Attribute.SEQUENCE_NUMBER, events, said.sequence)
        self._rows.state(Attribute.FORWARD_THREAD, events[numbered], said.backward[numbered].astype(np.int64))
        called = nvtx_texts.nccl_calls(texts, payloads)
        self._rows.state(Attribute.COLLECTIVE, events[called.row], self._rows.texts.places(called.name))
        self._rows.state(Attribute.COLLECTIVE_BYTES, events[called.row], called.bytes)
        self._rows.state(Attribute.GROUP, events[called.row], self._rows.texts.places(called.communicator))
        give(self._sink, events, pl.DataFrame({"text": pl.Series(texts), "payload": pl.Series(payloads)}))
        others = self._database.numbers(
            _RANGES, {"thread": '"globalTid"', "type": '"eventType"'}, f"WHERE NOT ({_LASTS})"
        )
        self._rows.count(EventType.INSTANT, others["thread"] >> TID_BITS)
        endless = int(np.isin(others["type"], (_PUSH_POP, _START_END)).sum())
        if endless:
            self._rows.warnings.append(f"{format_count(endless, 'NVTX range')} without an end read as instants")

    def _metrics(self, said: Session) -> None:
        """Take in the metrics of GPUs."""
        database = self._database
        rows = database.numbers(
            _METRICS, {"ts": '"timestamp"', "gpu": '"typeId" & 255', "metric": '"metricId"', "value": '"value"'}
        )
        ids = database.numbers("TARGET_INFO_GPU_METRICS", {"metric": '"metricId"'})["metric"].tolist()
        names = dict(zip(ids, database.texts("TARGET_INFO_GPU_METRICS", '"metricName"').to_pylist(), strict=False))
        gpus = pa.array(rows["gpu"]).dictionary_encode()
        devices = np.array([*(said.device_of_gpu.get(gpu, gpu) for gpu in gpus.dictionary.to_pylist()), NONE])
        rows["gpu"] = devices[gpus.indices.to_numpy()]
        self._rows.counters(
            rows, self._rows.worded(rows["metric"], lambda metric: names.get(metric) or f"metric {metric}")
        )

    def _unread(self) -> dict[str, int]:
        """Return the tables of what has a time and is not read, with their rows."""
        return {
            table: self._database.rows(table)
            for table, columns in self._database.tables.items()
            if table not in _READ and {"start", "timestamp", "startedAt"} & columns and not table.startswith("ANALYSIS")
        }


def _keys(
    known: tuple[NDArray[np.int64], ...], wanted: tuple[NDArray[np.int64], ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one number for each row of columns, of two tables: equal where the rows are."""
    columns = [np.concatenate(pair) for pair in zip(known, wanted, strict=True)]
    numbers = pl.DataFrame({str(place): column for place, column in enumerate(columns)})
    keys = numbers.select(pl.struct(pl.all()).rank("dense")).to_series().cast(pl.Int64).to_numpy()
    return keys[: len(known[0])], keys[len(known[0]) :]


def _records_before(records: Columns, waits: Columns) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each wait the last record of its event that was made before it, 0 for none, and whether there is one.

    Correlations of a process ascend in the order of its calls.
    """
    event = [("process", "event", "turn")] * 2
    key, wanted = _keys(
        *(tuple(table[name] for name in names) for table, names in zip((records, waits), event, strict=True))
    )
    order = np.lexsort((records["correlation"], key))
    ordered = pl.DataFrame({"key": key[order], "correlation": records["correlation"][order], "place": order})
    asked = pl.DataFrame({"key": wanted, "correlation": waits["correlation"], "row": np.arange(len(wanted))})
    found = asked.sort("correlation").join_asof(
        ordered.sort("correlation"), on="correlation", by="key", strategy="backward", check_sortedness=False
    )
    place = found.sort("row")["place"]
    known = place.is_not_null().to_numpy() & (waits["event"] != NULL) & (waits["event"] != _NO_ID)
    return place.fill_null(0).to_numpy(), known


def _copy_name(packed: int) -> str:
    kind, source, target = packed >> 16, packed >> 8 & 0xFF, packed & 0xFF
    return f"Memcpy {_word(_COPY_WORDS, kind)} ({_word(_MEMORY_WORDS, source)} -> {_word(_MEMORY_WORDS, target)})"


def _fill_name(kind: int) -> str:
    return f"Memset ({_word(_MEMORY_WORDS, kind)})"


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else "Unknown"
