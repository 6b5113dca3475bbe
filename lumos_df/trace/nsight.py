"""The reader of Nsight Systems, as `nsys export` writes SQLite and Parquet: what its tables and columns mean.

Versions differ in tables and columns: what a file lacks is null [Nsight Systems User Guide, SQLite schema reference].
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import ANNOTATION, KERNEL, MEMCPY, MEMSET, NONE, NULL, OTHER_KIND, RUNTIME, SYNC
from lumos_df.trace import nccl_ranges, nvtx_payloads, nvtx_scopes, nvtx_texts
from lumos_df.trace.event_args import give
from lumos_df.trace.nsight_session import Session, session
from lumos_df.trace.nsight_words import WAIT_WORDS, copy_name, fill_name
from lumos_df.trace.parquet_columns import ParquetFolder
from lumos_df.trace.recorded_processes import last_places
from lumos_df.trace.recording import ArgsSink, Attribute, EventType, Recording
from lumos_df.trace.row_collector import CROSSING, NESTED, PROFILER, TID_BITS, Columns, RowCollector, left, sizes
from lumos_df.trace.sqlite_columns import opened
from lumos_df.trace.stored_file import StoredFile
from lumos_df.trace.stored_tables import StoredTables

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_RECORDS: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_METRICS: Final = "GPU_METRICS"
_CARD_METRICS: Final = "NET_NIC_METRIC"
_OTHERS: Final = {"OSRT_API": NESTED, "CUPTI_ACTIVITY_KIND_OVERHEAD": PROFILER, "PROFILER_OVERHEAD": PROFILER}
"""Tables of what lasts on the host beside calls and ranges, each with its lane."""
_INSTANTS: Final = ("CUDA_GRAPH_EVENTS",)
_READ: Final = {
    *(_KERNELS, _COPIES, _FILLS, _GRAPHS, _WAITS, _RECORDS, _CALLS, _RANGES, _METRICS, _CARD_METRICS),
    *_OTHERS,
    *_INSTANTS,
}

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

_CARD: Final = {
    "ts": '"start"',
    "value": '"value"',
    "card": '"globalId"',
    "list": '"metricsListId"',
    "metric": '"metricsIdx"',
}
"""Columns of the metrics of network cards."""
_NO_ID: Final = (1 << 32) - 1
_VERSION_OF_CALL: Final = "_v[0-9]{4,}$"
"""What Nsight adds to the name of a runtime call: since which CUDA it is so."""
_RANGE: Final = {
    "ts": '"start"',
    "end": '"end"',
    "thread": '"globalTid"',
    "type": '"eventType"',
    "text_id": '"textId"',
    "json_id": '"jsonTextId"',
    "domain": '"domainId"',
    "category": '"category"',
}
_RANGE_TEXTS: Final = {"text": '"text"', "json": '"jsonText"'}
_PUSH_POP, _START_END = 59, 60
"""NVTX_EVENTS.eventType of ranges."""
_KERNEL_ARGS: Final = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId")


def read(file: StoredFile, sink: ArgsSink) -> Recording:
    """Read an exported report.

    Raises:
        TraceError: it is no report, it cannot be read, or it holds nothing that lasts.
    """
    with opened(file) as database:
        return _read(database, "SQLite", "sqlite", sink)


def read_folder(file: StoredFile, sink: ArgsSink) -> Recording:
    """Read a report that was exported as a folder of Parquet files.

    Raises:
        TraceError: it is no report, it cannot be read, or it holds nothing that lasts.
    """
    if not Path(file.name).is_dir():
        raise TraceError(f"{file.name}: one table of an export; name the folder that it lies in")
    return _read(ParquetFolder(file.name), "Parquet", "parquetdir", sink)


def _read(database: StoredTables, form: str, export: str, sink: ArgsSink) -> Recording:
    if not _READ & database.tables.keys():
        raise TraceError(
            f"{database.name}: {form} without a table of a profiler that this version knows, such as {_KERNELS} or "
            f"{_RANGES}; write it with: nsys export --type {export} REPORT.nsys-rep"
        )
    return _ReportReader(database, sink).run()


class _ReportReader:
    """Collects the rows of one table after another."""

    def __init__(self, database: StoredTables, sink: ArgsSink) -> None:
        self._database = database
        self._sink = sink
        self._rows = RowCollector()
        self._nccl_ranks: list[nccl_ranges.NcclRank] = []
        self._guessed = 0
        words = database.read("StringIds", {"id": '"id"'}, {"value": '"value"'})
        self._values = words["value"]
        self._by_id = np.argsort(words["id"], kind="stable")
        self._ids = words["id"][self._by_id]

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
        self._rows.warnings.extend(said.warnings)
        if self._guessed:
            self._rows.warnings.append(
                f"{format_count(self._guessed, 'row')} of GPUs may be another process's: they do not say whose, "
                "and several processes may have made the call of their correlation; record each process by itself"
            )
        if self._rows.empty:
            raise TraceError(
                f"{database.name}: none of its tables holds anything that lasts; record with --trace=cuda,nvtx"
            )
        return self._rows.recording(
            dialect="nsight",
            rank=said.rank,
            nccl_ranks={(one.process, one.device): one.rank for one in self._nccl_ranks},
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
        texts = self._by_ids(coded.dictionary.to_numpy())
        if superfluous:
            texts = pc.replace_substring_regex(texts, superfluous, "")
        places: NDArray[np.int32] = self._rows.texts.places(texts)[coded.indices.to_numpy()]
        return places

    def _by_ids(self, ids: NDArray[np.int64]) -> pa.Array:
        """Return the text of each id of StringIds, null where it lacks one."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.string())
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._values.take(pa.array(self._by_id[at], mask=self._ids[at] != ids))

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
            (_COPIES, MEMCPY, '("copyKind" << 16) | ("srcKind" << 8) | "dstKind"', copy_name),
            (_FILLS, MEMSET, '"memKind"', fill_name),
        ):
            rows = self._owned(table, {**_ON_GPU, "name": name, "bytes": '"bytes"'}, calls)
            rows["name"], moved = self._rows.worded(rows["name"], word), rows.pop("bytes")
            self._rows.state(Attribute.BYTES_MOVED, self._rows.add(kind, rows), moved)
        rows = self._owned(_GRAPHS, {**_ON_GPU, "name": '"graphId"'}, calls)
        rows["name"] = self._rows.worded(rows["name"], lambda graph: f"CUDA graph {graph}")
        self._rows.add(KERNEL, rows)

    def _owned(self, table: str, columns: dict[str, str], calls: Columns, tail: str = _ENDED) -> Columns:
        """Read rows of a GPU; those that state no process have that of the call with their correlation.

        Those without such a call have the only one that the file knows, else 0.
        """
        rows = self._database.numbers(table, columns, tail)
        unknown = rows["process"] == NULL
        if unknown.any():
            place, known = last_places(calls["correlation"], rows["correlation"][unknown])
            process = rows["process"].copy()
            only = int(self._processes[0]) if len(self._processes) == 1 else 0
            process[unknown] = np.where(known, np.append(calls["thread"], 0)[place] >> TID_BITS, only)
            rows["process"] = process
            if len(np.unique(calls["thread"] >> TID_BITS)) > 1:  # each counts its own correlations
                self._guessed += int(unknown.sum())
            elif not only:
                self._guessed += int(np.count_nonzero(~known))
        return rows

    @cached_property
    def _processes(self) -> NDArray[np.int64]:
        """The processes that called CUDA or made ranges."""
        owner = {"process": f'"globalTid" >> {TID_BITS}'}
        rows = [self._database.numbers(table, owner)["process"] for table in (_CALLS, _RANGES)]
        every = np.concatenate(rows)
        processes: NDArray[np.int64] = np.unique(every[every != NULL])
        return processes

    def _waits(self, calls: Columns) -> None:
        """Take in what calls waited for, with the record of the event where the file has both."""
        event = {"event": '"eventId"', "turn": '"eventSyncId"'}
        records = self._owned(_RECORDS, {**_ON_GPU, **event}, calls, "")
        self._rows.count(EventType.INSTANT, records["process"])
        rows = self._owned(_WAITS, {**_ON_GPU, **event}, calls)
        place, known = last_places(
            *_keys((calls["thread"] >> TID_BITS, calls["correlation"]), (rows["process"], rows["correlation"]))
        )
        kinds = [next((word for part, word in WAIT_WORDS if part in text), "Sync") for text in self._rows.texts.strings]
        words = np.array([self._rows.texts.place(word) for word in (*kinds, "Sync")], np.int32)
        rows["name"] = words[np.where(known, np.append(calls["name"], NONE)[place], NONE)]
        rows["stream"] = np.where(rows["stream"] == _NO_ID, NULL, rows["stream"])
        waited = {name: rows.pop(name) for name in event}
        events = self._rows.add(SYNC, rows)
        at, known = _records_before(records, {**rows, **waited})
        self._rows.state(Attribute.WAIT_STREAM, events[known], records["stream"][at[known]])
        self._rows.state(Attribute.WAIT_CORRELATION, events[known], records["correlation"][at[known]])

    def _ranges(self) -> None:
        """Take in NVTX: ranges as operators and annotations, anything else as instants."""
        rows = self._database.read(_RANGES, _RANGE, _RANGE_TEXTS, {"binary": '"binaryData"'})
        is_range = np.isin(rows["type"], (_PUSH_POP, _START_END))
        lasts = is_range & (rows["end"] != NULL)
        self._rows.count(EventType.INSTANT, rows["thread"][~lasts] >> TID_BITS)
        endless = int(np.count_nonzero(is_range & ~lasts))
        if endless:
            self._rows.warnings.append(f"{format_count(endless, 'NVTX range')} without an end read as instants")
        rows["text"] = pc.coalesce(rows["text"], self._by_ids(rows.pop("text_id")))
        scopes = nvtx_scopes.scopes(rows, rows["text"], lasts)
        if not lasts.all():
            kept = pa.array(lasts)
            rows = {
                name: column[lasts] if isinstance(column, np.ndarray) else column.filter(kept)
                for name, column in rows.items()
            }
        rows["dur"] = rows.pop("end") - rows["ts"]
        texts = rows.pop("text")
        binary = nvtx_payloads.as_json(self._database, rows.pop("binary"))
        payloads = pc.coalesce(rows.pop("json"), self._by_ids(rows.pop("json_id")), binary)
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
        ranges = nccl_ranges.frame(texts, payloads, rows["thread"], rows["ts"])
        called = nccl_ranges.calls(ranges)
        self._rows.state(Attribute.COLLECTIVE, events[called.row], self._rows.texts.places(called.name))
        self._rows.state(Attribute.COLLECTIVE_BYTES, events[called.row], called.bytes)
        self._rows.state(Attribute.GROUP, events[called.row], self._rows.texts.places(called.communicator))
        self._rows.state(Attribute.GROUP_SIZE, events[called.row], called.size)
        self._nccl_ranks = nccl_ranges.ranks(ranges)
        said_of_all = {"payload": pl.Series(payloads)} if payloads.null_count < len(payloads) else {}
        give(self._sink, events, pl.DataFrame({"text": pl.Series(texts), **said_of_all, **scopes}))

    def _metrics(self, said: Session) -> None:
        """Take in the metrics of GPUs, and of network cards, which are those of every process."""
        database = self._database
        rows = database.numbers(
            _METRICS, {"ts": '"timestamp"', "gpu": '"typeId" & 255', "metric": '"metricId"', "value": '"value"'}
        )
        names = self._names("TARGET_INFO_GPU_METRICS", ("metricId",), "metricName")
        gpus = pa.array(rows["gpu"]).dictionary_encode()
        devices = np.array([*(said.device_of_gpu.get(gpu, gpu) for gpu in gpus.dictionary.to_pylist()), NONE])
        rows["gpu"] = devices[gpus.indices.to_numpy()]
        name = self._rows.worded(rows.pop("metric"), lambda metric: names.get((metric,)) or f"metric {metric}")
        cards = database.numbers(_CARD_METRICS, _CARD)
        cards["gpu"] = np.full(len(cards["ts"]), NULL)
        of_card = self._card_metrics(*(cards.pop(column) for column in ("card", "list", "metric")))
        self._rows.counters(
            {column: np.concatenate((rows[column], cards[column])) for column in rows}, np.concatenate((name, of_card))
        )

    def _card_metrics(
        self, card: NDArray[np.int64], metrics: NDArray[np.int64], metric: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the place of `card metric` for values of network cards."""
        numbers = dict(
            zip(*self._database.numbers("NIC_ID_MAP", {"id": '"globalId"', "card": '"nicId"'}).values(), strict=True)
        )
        cards = self._names("TARGET_INFO_NIC_INFO", ("nicId",), "name")
        names = self._names("TARGET_INFO_NETWORK_METRICS", ("metricsListId", "metricsIdx"), "name")
        distinct, inverse = np.unique(np.stack((card, metrics, metric)), axis=1, return_inverse=True)
        places = [
            self._rows.texts.place(
                f"{cards.get((numbers.get(of_card, of_card),)) or f'NIC {of_card}'} "
                f"{names.get((of_list, index)) or f'metric {index}'}"
            )
            for of_card, of_list, index in distinct.T.tolist()
        ]
        return np.array(places, np.int32)[inverse.reshape(-1)]

    def _names(self, table: str, keys: Sequence[str], name: str) -> dict[tuple[int, ...], str | None]:
        """Return the names that a small table gives to numbers."""
        numbers = self._database.numbers(table, {key: f'"{key}"' for key in keys})
        rows = zip(*(column.tolist() for column in numbers.values()), strict=True)
        return dict(zip(rows, self._database.texts(table, f'"{name}"').to_pylist(), strict=False))

    def _unread(self) -> dict[str, int]:
        """Return the tables of what has a time, or the calls around it, and is not read, with their rows."""
        return {
            table: self._database.rows(table)
            for table, columns in self._database.tables.items()
            if table not in _READ
            and ({"start", "timestamp", "startedAt"} & columns or table.endswith("_CALLCHAINS"))
            and not table.startswith("ANALYSIS")
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
