"""Collects what a reader finds, table by table, into a `Recording`: the events' numbers, tracks, texts and traces."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.base.units import format_count
from lumos_df.schema.codes import EARLIEST, GPU, KERNEL, LATEST, NONE, NULL, NULL32, SYNC
from lumos_df.trace.recorded_processes import ANY, ranks_of_processes
from lumos_df.trace.recording import (
    NO_COUNTERS,
    Attribute,
    AttributeValues,
    EventType,
    RecordedCounters,
    RecordedOperators,
    Recording,
    Repairs,
)
from lumos_df.trace.text_places import TextPlaces

TID_BITS: Final = 24
"""A thread's key is its process, shifted by so many bits, and its id: those of Linux are shorter."""
LANES: Final = 3
"""Tracks of a thread: what is nested in it, ranges that cross these, what the profiler did in it."""
NESTED, CROSSING, PROFILER = range(LANES)

Columns = dict[str, Any]
"""Arrays by the name of their column."""

_NULLS: Final = {
    **dict.fromkeys(("event", "ts", "dur", "kind", "thread", "lane"), 0),
    **dict.fromkeys(("name", "input_dims", "grid", "block"), NONE),
    **dict.fromkeys(("device", "stream", "correlation"), NULL),
}
"""Columns of operators, and what stands in them where a table says nothing."""
_TYPES: Final = {**dict.fromkeys(("ts", "dur", "stream", "correlation"), np.int64), "kind": np.int8}
"""Types of the columns that are not int32."""


class RowCollector:
    """Takes rows in, and gives a recording."""

    def __init__(self) -> None:
        self.texts = TextPlaces()
        self.warnings: list[str] = []
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _NULLS}
        self._attributes: dict[Attribute, list[AttributeValues]] = {}
        self._types: list[NDArray[np.int8]] = []
        self._process: list[NDArray[np.int64]] = []
        """Of every event."""
        self._events = 0
        self._counters = NO_COUNTERS
        self._gpu_of_counter = np.zeros(0, np.int64)

    @property
    def empty(self) -> bool:
        """Return whether there is no operator."""
        return not any(map(len, self._parts["ts"]))

    def count(self, kind: EventType, process: NDArray[np.int64]) -> NDArray[np.int32]:
        """Take events in, each of a process, and return their numbers."""
        events = np.arange(self._events, self._events + len(process), dtype=np.int32)
        self._events += len(process)
        self._types.append(np.full(len(process), kind, np.int8))
        self._process.append(process)
        return events

    def add(self, kind: int | NDArray[np.int8], rows: Mapping[str, Any], **more: Any) -> NDArray[np.int32]:
        """Take operators in, and return their events.

        Args:
            kind: place in `schema.KINDS`, of all or of each.
            rows: columns of `RecordedOperators`, int64 with NULL; `process`, or of host rows `thread`, a key.
            more: others, also `lane`, the track of the thread.
        """
        columns = {**rows, **more, "kind": np.asarray(kind, np.int8)}
        process = columns.pop("process", None)
        events = self.count(EventType.OPERATOR, columns["thread"] >> TID_BITS if process is None else process)
        columns["event"] = events
        for name, null in _NULLS.items():
            self._parts[name].append(np.broadcast_to(columns.get(name, np.int64(null)), len(events)))
        return events

    def state(self, attribute: Attribute, event: NDArray[np.int32], value: NDArray[Any]) -> None:
        """Take in what events state, later events later; NULL states nothing, nor does NONE of a place (int32)."""
        known = value != (NONE if value.dtype == np.int32 else NULL)
        self._attributes.setdefault(attribute, []).append(AttributeValues(event[known], value[known].astype(np.int64)))

    def counters(self, rows: Columns, name: NDArray[np.int32]) -> None:
        """Take in values of counters: `ts`, `gpu` (its index, NULL where it is of none), `value`."""
        self._counters = RecordedCounters(
            event=self.count(EventType.COUNTER, np.full(len(rows["ts"]), ANY)),
            ts=rows["ts"],
            name=name,
            series=np.full(len(rows["ts"]), self.texts.place("value"), np.int32),
            value=rows["value"].astype(np.float64),
        )
        self._gpu_of_counter = rows["gpu"]

    def worded(self, numbers: NDArray[np.int64], word: Callable[[int], str | None]) -> NDArray[np.int32]:
        """Return the places of the words of numbers; NONE of NULL, and where there is no word."""
        coded = pa.array(numbers).dictionary_encode()
        words = [None if number == NULL else word(number) for number in coded.dictionary.to_pylist()]
        places = [NONE if text is None else self.texts.place(text) for text in words]
        column: NDArray[np.int32] = np.array([*places, NONE], np.int32)[coded.indices.to_numpy()]
        return column

    def recording(
        self,
        *,
        dialect: str,
        rank: int = NONE,
        nccl_ranks: Mapping[tuple[int, int], int] | None = None,
        broken_texts: int = 0,
        left_out: list[str],
        **more: Any,
    ) -> Recording:
        """Return all that was taken in.

        Args:
            dialect: as in `Recording`.
            rank: rank of the process, if the file is of one and says it.
            nccl_ranks: ranks by process and GPU, NULL for any of its GPUs, as NCCL's communicators have them.
            broken_texts: texts that were no UTF-8.
            left_out: what was not read, a clause each.
            more: fields of `Recording`; `world_size` holds for a file of one process.
        """
        # One after the other: what was taken in may be a third of all memory that an ingest takes.
        columns: Columns = {name: np.concatenate(self._parts.pop(name)) for name in list(self._parts)}
        types = np.concatenate(self._types)
        timed = (columns["ts"] >= EARLIEST) & (columns["ts"] <= LATEST)
        timed &= columns["dur"] <= LATEST - np.where(timed, columns["ts"], 0)
        types[columns["event"][~timed]] = EventType.UNTIMED
        if not timed.all():
            columns = {name: column[timed] for name, column in columns.items()}
        ranks, others = self._ranks(columns, nccl_ranks or {})
        left_out = [*left_out, *others]
        on_gpu = np.isin(columns["kind"], GPU)
        warnings = [f"left out: {', '.join(left_out)}"] if left_out else []
        if not on_gpu.any():
            warnings.append("no row of a GPU in the file: nothing that ran on one was recorded")
        elif not (columns["kind"] == KERNEL).any():
            rows = format_count(int(on_gpu.sum()), "row")
            warnings.append(f"no kernel in the file: of its GPUs copies and fills alone are known ({rows})")
        negative = columns["dur"] < 0
        columns["dur"][negative] = 0
        coded = pa.array(columns.pop("thread")).dictionary_encode()
        track = coded.indices.to_numpy() * LANES + columns.pop("lane")
        threads = np.repeat(coded.dictionary.to_numpy() & ((1 << TID_BITS) - 1), LANES)
        threads[np.arange(len(threads)) % LANES > 0] = NULL
        columns["track"] = np.where(on_gpu | (columns["kind"] == SYNC), NONE, track)
        columns["device"] = np.where(columns["device"] == NULL, NULL32, columns["device"])
        if len(ranks) > 1:
            more.pop("world_size", None)
        elif rank != NONE:
            ranks = (replace(ranks[0], rank=rank, source="environment"),)
        return Recording(
            dialect=dialect,
            resolution_ns=1,
            strings=self.texts.strings,
            threads=threads,
            event_types=types,
            operators=RecordedOperators.of(
                **{name: column.astype(_TYPES.get(name, np.int32), copy=False) for name, column in columns.items()}
            ),
            attributes={
                attribute: AttributeValues(*map(np.concatenate, zip(*stated, strict=True)))
                for attribute, stated in self._attributes.items()
            },
            counters=self._counters,
            ranks=ranks,
            repairs=Repairs(utf8=broken_texts, negative_durations=int(negative.sum())),
            warnings=(*self.warnings, *warnings),
            states_steps=False,
            **more,
        )

    def _ranks(self, columns: Columns, nccl_ranks: Mapping[tuple[int, int], int]) -> Any:
        """Return the traces of the file, and what is in none of them."""
        device, correlation, thread, kind = np.full((4, self._events), NULL)
        kind[:] = NONE
        kind[columns["event"]] = columns["kind"]
        device[columns["event"]] = columns["device"]
        device[self._counters.event] = self._gpu_of_counter
        correlation[columns["event"]] = columns["correlation"]
        thread[columns["event"]] = np.where(np.isin(columns["kind"], (*GPU, SYNC)), NULL, columns["thread"])
        return ranks_of_processes(np.concatenate(self._process), device, kind, correlation, thread, nccl_ranks)


def sizes(packed: int) -> str:
    """Return the text of a grid or block that is packed into a number: x above y above z, of 16 bits each."""
    return str([packed >> 32, packed >> 16 & 0xFFFF, packed & 0xFFFF])


def left(tables: Mapping[str, int]) -> list[str]:
    """Return tables that were not read as clauses, with their rows, if any."""
    return [f"{table} ({format_count(rows, 'row')})" for table, rows in sorted(tables.items()) if rows]
