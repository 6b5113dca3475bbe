"""The reader of Nsight Systems, as `nsys export --type sqlite` writes it: what its tables and columns mean.

Versions differ in tables and columns: what a file lacks is null [Nsight Systems User Guide, SQLite schema reference].
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import ANNOTATION, GPU, KERNEL, MEMCPY, MEMSET, NONE, NULL, NULL32, OTHER_KIND, RUNTIME, SYNC
from lumos_df.trace import nvtx_texts
from lumos_df.trace.event_args import give
from lumos_df.trace.nsight_session import Session, session
from lumos_df.trace.recorded_processes import ANY, last_places, ranks_of_processes
from lumos_df.trace.recording import (
    ArgsSink,
    Attribute,
    AttributeValues,
    EventType,
    RecordedCounters,
    RecordedOperators,
    RecordedRank,
    Recording,
    Repairs,
)
from lumos_df.trace.sqlite_columns import Database, opened
from lumos_df.trace.stored_file import StoredFile
from lumos_df.trace.text_places import TextPlaces

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_RECORDS: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_METRICS: Final = "GPU_METRICS"
_OTHERS: Final = {"OSRT_API": 0, "CUPTI_ACTIVITY_KIND_OVERHEAD": 2, "PROFILER_OVERHEAD": 2}
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
_LANES: Final = 3
"""Tracks of a thread: what is nested in it, ranges that cross these, what the profiler did in it."""
_PROCESS: Final = 24
_TID: Final = (1 << _PROCESS) - 1
"""A globalTid ends with so many bits of the thread; what stands before them is the process's."""
_PUSH_POP, _START_END = 59, 60
"""NVTX_EVENTS.eventType of ranges."""
_LASTS: Final = f'"end" IS NOT NULL AND "eventType" IN ({_PUSH_POP}, {_START_END})'
_KERNEL_ARGS: Final = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId")

_NULLS: Final = {
    **dict.fromkeys(("event", "ts", "dur", "kind", "thread", "lane"), 0),
    **dict.fromkeys(("name", "input_dims", "grid", "block"), NONE),
    **dict.fromkeys(("device", "stream", "correlation"), NULL),
}
"""What stands in a column of operators where a table says nothing."""
_TYPES: Final = {**dict.fromkeys(("ts", "dur", "stream", "correlation"), np.int64), "kind": np.int8}
"""Types of the columns that are not int32."""
_Columns = dict[str, Any]
"""Arrays by the name of their column."""


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
        return _Reader(database, sink).run()


class _Reader:
    """Collects the rows of one table after another."""

    def __init__(self, database: Database, sink: ArgsSink) -> None:
        self._database = database
        self._sink = sink
        self._texts = TextPlaces()
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _NULLS}
        """Columns of the operators, table by table."""
        self._attributes: dict[Attribute, list[AttributeValues]] = {}
        self._types: list[NDArray[np.int8]] = []
        self._process: list[NDArray[np.int64]] = []
        """Of every event."""
        self._events = 0
        self._warnings: list[str] = []
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
            self._add(OTHER_KIND, rows, lane=np.full(len(rows["ts"]), lane))
        for table in _INSTANTS:
            self._count(EventType.INSTANT, database.numbers(table, {"thread": '"globalTid"'})["thread"] >> 24)
        counters, gpu_of_counter = self._metrics(said)
        columns: _Columns = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        self._parts.clear()
        if not len(columns["ts"]):
            raise TraceError(
                f"{database.name}: none of its tables holds anything that lasts; record with --trace=cuda,nvtx"
            )
        ranks, others = self._ranks(columns, counters, gpu_of_counter)
        left_out = [*self._unread(), *others, *database.damage]
        if left_out:
            self._warnings.append(f"left out: {', '.join(left_out)}")
        if not np.isin(columns["kind"], GPU).any():
            self._warnings.append("no row of a GPU: the report has no kernels; record with --trace=cuda,nvtx")
        negative = columns["dur"] < 0
        columns["dur"][negative] = 0
        coded = pa.array(columns.pop("thread")).dictionary_encode()
        track = coded.indices.to_numpy() * _LANES + columns.pop("lane")
        threads = np.repeat(coded.dictionary.to_numpy() & _TID, _LANES)
        threads[np.arange(len(threads)) % _LANES > 0] = NULL
        columns["track"] = np.where(np.isin(columns["kind"], (*GPU, SYNC)), NONE, track)
        columns["device"] = np.where(columns["device"] == NULL, NULL32, columns["device"])
        return Recording(
            dialect="nsight",
            clock_origin_ns=said.clock_origin_ns,
            resolution_ns=1,
            strings=self._texts.strings,
            threads=threads,
            event_types=np.concatenate(self._types),
            operators=RecordedOperators.of(
                **{name: column.astype(_TYPES.get(name, np.int32), copy=False) for name, column in columns.items()}
            ),
            attributes={
                attribute: AttributeValues(*map(np.concatenate, zip(*stated, strict=True)))
                for attribute, stated in self._attributes.items()
            },
            counters=counters,
            ranks=(replace(ranks[0], rank=said.rank, source="environment"),)
            if len(ranks) == 1 and said.rank != NONE
            else ranks,
            world_size=said.world_size if len(ranks) == 1 else None,
            devices=said.devices,
            versions=said.versions,
            metadata=said.metadata,
            repairs=Repairs(utf8=database.broken_texts, negative_durations=int(negative.sum())),
            truncated=bool(database.damage),
            warnings=tuple(self._warnings),
            states_steps=False,
        )

    def _count(self, kind: EventType, process: NDArray[np.int64]) -> NDArray[np.int32]:
        """Take events in, and return their numbers."""
        events = np.arange(self._events, self._events + len(process), dtype=np.int32)
        self._events += len(process)
        self._types.append(np.full(len(process), kind, np.int8))
        self._process.append(process)
        return events

    def _add(
        self, kind: int | NDArray[np.int8], rows: Mapping[str, NDArray[Any]], **more: NDArray[Any]
    ) -> NDArray[np.int32]:
        """Take operators in, and return their events."""
        columns = {**rows, **more, "kind": np.asarray(kind, np.int8)}
        process = columns.pop("process") if "process" in columns else columns["thread"] >> _PROCESS
        columns["event"] = self._count(EventType.OPERATOR, process)
        for name, null in _NULLS.items():
            self._parts[name].append(np.broadcast_to(columns.get(name, np.int64(null)), len(process)))
        return columns["event"]

    def _state(self, attribute: Attribute, event: NDArray[np.int32], value: NDArray[Any]) -> None:
        """Take in what events state; NULL states nothing, nor does NONE of a place."""
        known = value != (NONE if value.dtype == np.int32 else NULL)
        self._attributes.setdefault(attribute, []).append(AttributeValues(event[known], value[known].astype(np.int64)))

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
        places: NDArray[np.int32] = self._texts.places(texts)[coded.indices.to_numpy()]
        return places

    def _calls(self) -> _Columns:
        """Take in the calls of CUDA's runtime and driver, and return them."""
        rows = self._database.numbers(_CALLS, {**_ON_HOST, "correlation": '"correlationId"'}, _ENDED)
        rows["name"] = self._named(rows["name"], _VERSION_OF_CALL)
        self._add(RUNTIME, rows)
        return rows

    def _gpu_rows(self, calls: _Columns) -> None:
        """Take in what occupied a stream: kernels, copies, fills, and graphs of which no node was recorded."""
        name = 'coalesce("demangledName", "shortName", "mangledName")'
        sizes = {size: _SIZES.format(size) for size in ("grid", "block")}
        args = {column: f'"{column}"' for column in self._database.columns(_KERNELS, _KERNEL_ARGS)}
        rows = self._owned(_KERNELS, {**_ON_GPU, "name": name, **sizes, **args}, calls)
        rows["name"] = self._named(rows["name"])
        rows |= {size: self._worded(rows[size], _sizes) for size in sizes}
        raw = pl.DataFrame({column: pl.Series(rows.pop(column)).replace(NULL, None) for column in args})
        give(self._sink, self._add(KERNEL, rows), raw)
        for table, kind, name, word in (
            (_COPIES, MEMCPY, '("copyKind" << 16) | ("srcKind" << 8) | "dstKind"', _copy_name),
            (_FILLS, MEMSET, '"memKind"', _fill_name),
        ):
            rows = self._owned(table, {**_ON_GPU, "name": name, "bytes": '"bytes"'}, calls)
            rows["name"], moved = self._worded(rows["name"], word), rows.pop("bytes")
            self._state(Attribute.BYTES_MOVED, self._add(kind, rows), moved)
        rows = self._owned(_GRAPHS, {**_ON_GPU, "name": '"graphId"'}, calls)
        rows["name"] = self._worded(rows["name"], lambda graph: f"CUDA graph {graph}")
        self._add(KERNEL, rows)

    def _owned(self, table: str, columns: dict[str, str], calls: _Columns, tail: str = _ENDED) -> _Columns:
        """Read rows of a GPU; those that state no process have that of the call with their correlation, else 0."""
        rows = self._database.numbers(table, columns, tail)
        unknown = rows["process"] == NULL
        if unknown.any():
            place, known = last_places(calls["correlation"], rows["correlation"][unknown])
            rows["process"][unknown] = np.where(known, np.append(calls["thread"], 0)[place] >> _PROCESS, 0)
        return rows

    def _worded(self, numbers: NDArray[np.int64], word: Callable[[int], str]) -> NDArray[np.int32]:
        """Return the places of the words of numbers; NONE of NULL."""
        coded = pa.array(numbers).dictionary_encode()
        places = [
            NONE if number == NULL else self._texts.place(word(number)) for number in coded.dictionary.to_pylist()
        ]
        column: NDArray[np.int32] = np.array([*places, NONE], np.int32)[coded.indices.to_numpy()]
        return column

    def _waits(self, calls: _Columns) -> None:
        """Take in what calls waited for, with the record of the event where the file has both."""
        event = {"event": '"eventId"', "turn": '"eventSyncId"'}
        records = self._owned(_RECORDS, {**_ON_GPU, **event}, calls, "")
        self._count(EventType.INSTANT, records["process"])
        rows = self._owned(_WAITS, {**_ON_GPU, **event}, calls)
        place, known = last_places(
            *_keys((calls["thread"] >> _PROCESS, calls["correlation"]), (rows["process"], rows["correlation"]))
        )
        kinds = [next((word for part, word in _WAIT_WORDS if part in text), "Sync") for text in self._texts.strings]
        words = np.array([self._texts.place(word) for word in (*kinds, "Sync")], np.int32)
        rows["name"] = words[np.where(known, np.append(calls["name"], NONE)[place], NONE)]
        rows["stream"][rows["stream"] == _NO_ID] = NULL
        waited = {name: rows.pop(name) for name in event}
        events = self._add(SYNC, rows)
        at, known = _records_before(records, {**rows, **waited})
        self._state(Attribute.WAIT_STREAM, events[known], records["stream"][at[known]])
        self._state(Attribute.WAIT_CORRELATION, events[known], records["correlation"][at[known]])

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
        events = self._add(
            np.where(crosses, np.int8(ANNOTATION), said.kind),
            rows,
            name=self._texts.places(said.name),
            lane=crosses.astype(np.int64),
            input_dims=self._texts.places(said.sizes),
        )
        numbered = said.sequence != NULL
        self._state(Attribute.SEQUENCE_NUMBER, events, said.sequence)
        self._state(Attribute.FORWARD_THREAD, events[numbered], said.backward[numbered].astype(np.int64))
        called = nvtx_texts.nccl_calls(texts, payloads)
        self._state(Attribute.COLLECTIVE, events[called.row], self._texts.places(called.name))
        self._state(Attribute.COLLECTIVE_BYTES, events[called.row], called.bytes)
        self._state(Attribute.GROUP, events[called.row], self._texts.places(called.communicator))
        give(self._sink, events, pl.DataFrame({"text": pl.Series(texts), "payload": pl.Series(payloads)}))
        others = self._database.numbers(
            _RANGES, {"thread": '"globalTid"', "type": '"eventType"'}, f"WHERE NOT ({_LASTS})"
        )
        self._count(EventType.INSTANT, others["thread"] >> _PROCESS)
        endless = int(np.isin(others["type"], (_PUSH_POP, _START_END)).sum())
        if endless:
            self._warnings.append(f"{format_count(endless, 'NVTX range')} without an end read as instants")

    def _metrics(self, said: Session) -> tuple[RecordedCounters, NDArray[np.int64]]:
        """Take in the metrics of GPUs, and return the GPU of each."""
        database = self._database
        rows = database.numbers(
            _METRICS, {"ts": '"timestamp"', "gpu": '"typeId" & 255', "metric": '"metricId"', "value": '"value"'}
        )
        ids = database.numbers("TARGET_INFO_GPU_METRICS", {"metric": '"metricId"'})["metric"].tolist()
        names = dict(zip(ids, database.texts("TARGET_INFO_GPU_METRICS", '"metricName"').to_pylist(), strict=False))
        gpus = pa.array(rows["gpu"]).dictionary_encode()
        devices = np.array([*(said.device_of_gpu.get(gpu, gpu) for gpu in gpus.dictionary.to_pylist()), NONE])
        return RecordedCounters(
            event=self._count(EventType.COUNTER, np.full(len(rows["ts"]), ANY)),
            ts=rows["ts"],
            name=self._worded(rows["metric"], lambda metric: names.get(metric) or f"metric {metric}"),
            series=np.full(len(rows["ts"]), self._texts.place("value"), np.int32),
            value=rows["value"].astype(np.float64),
        ), devices[gpus.indices.to_numpy()]

    def _ranks(
        self, columns: _Columns, counters: RecordedCounters, gpu_of_counter: NDArray[np.int64]
    ) -> tuple[tuple[RecordedRank, ...], list[str]]:
        """Return the traces of the file, and what is in none of them."""
        device, correlation, kind = np.full((3, self._events), NULL)
        kind[:] = NONE
        kind[columns["event"]] = columns["kind"]
        device[columns["event"]] = columns["device"]
        device[counters.event] = gpu_of_counter
        correlation[columns["event"]] = columns["correlation"]
        return ranks_of_processes(np.concatenate(self._process), device, kind, correlation)

    def _unread(self) -> list[str]:
        """Return the tables of what has a time and is not read, with their rows."""
        timed = [
            table
            for table, columns in self._database.tables.items()
            if table not in _READ and {"start", "timestamp", "startedAt"} & columns and not table.startswith("ANALYSIS")
        ]
        return [
            f"{table} ({format_count(count, 'row')})"
            for table in sorted(timed)
            if (count := self._database.rows(table))
        ]


def _keys(
    known: tuple[NDArray[np.int64], ...], wanted: tuple[NDArray[np.int64], ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one number for each row of columns, of two tables: equal where the rows are."""
    columns = [np.concatenate(pair) for pair in zip(known, wanted, strict=True)]
    numbers = pl.DataFrame({str(place): column for place, column in enumerate(columns)})
    keys = numbers.select(pl.struct(pl.all()).rank("dense")).to_series().cast(pl.Int64).to_numpy()
    return keys[: len(known[0])], keys[len(known[0]) :]


def _records_before(records: _Columns, waits: _Columns) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
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


def _sizes(packed: int) -> str:
    return str([packed >> 32, packed >> 16 & 0xFFFF, packed & 0xFFFF])


def _copy_name(packed: int) -> str:
    kind, source, target = packed >> 16, packed >> 8 & 0xFF, packed & 0xFF
    return f"Memcpy {_word(_COPY_WORDS, kind)} ({_word(_MEMORY_WORDS, source)} -> {_word(_MEMORY_WORDS, target)})"


def _fill_name(kind: int) -> str:
    return f"Memset ({_word(_MEMORY_WORDS, kind)})"


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else "Unknown"
