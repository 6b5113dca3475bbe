"""The reader of Kineto JSON, as PyTorch's profiler exports it: what its events, keys and top-level values mean.

Three dialects: `kineto`; `kineto-2021`, whose categories are capitalised and whose GPU rows name their stream in `tid`;
`chrome`, the same events without the profiler's header.
"""

import io
import re
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.units import format_count
from lumos_df.schema import STEP_MARK
from lumos_df.schema.codes import (
    ANNOTATION,
    CPU_OP,
    GPU,
    GPU_ANNOTATION,
    KERNEL,
    LATEST,
    MEMCPY,
    MEMSET,
    NONE,
    NULL,
    OTHER_KIND,
    PYTHON,
    RUNTIME,
    SYNC,
)
from lumos_df.trace.group_ranks import rank_list
from lumos_df.trace.json import scanned
from lumos_df.trace.json.file_columns import ScannedTrace
from lumos_df.trace.json.reader import read_trace
from lumos_df.trace.ordered_operators import among
from lumos_df.trace.ranks import RANKS
from lumos_df.trace.recording import (
    ArgsSink,
    Attribute,
    AttributeValues,
    EventType,
    RecordedCounters,
    RecordedDevice,
    RecordedGroup,
    RecordedMemory,
    RecordedOperators,
    RecordedRank,
    Recording,
    Repairs,
)
from lumos_df.trace.stored_file import Readable, StoredFile

_KIND_OF_CATEGORY: Final = {
    "cpu_op": CPU_OP,
    "operator": CPU_OP,
    "kernel": KERNEL,
    "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "cuda_sync": SYNC,
    "user_annotation": ANNOTATION,
    "gpu_user_annotation": GPU_ANNOTATION,
    "python_function": PYTHON,
}
"""Kind of each category in lower case."""
_RUNTIME_CATEGORY: Final = re.compile(r"(?:\w+_)?(?:runtime|driver)")
"""cuda_runtime, cuda_driver, hip_runtime, xpu_runtime, `Runtime` of 2021, ..."""

_ATTRIBUTES: Final = {
    Attribute.COLLECTIVE: "Collective name",
    Attribute.COLLECTIVE_TYPE: "dtype",
    Attribute.COLLECTIVE_NUMBER: "Seq",
    Attribute.COLLECTIVE_INPUTS: "Concrete Inputs",
    Attribute.ELEMENTS_IN: "In msg nelems",
    Attribute.ELEMENTS_OUT: "Out msg nelems",
    Attribute.GROUP: "Process Group Name",
    Attribute.GROUP_SIZE: "Group size",
    Attribute.GROUP_RANKS: "Process Group Ranks",
    Attribute.GROUP_PLACE: "Rank",
    Attribute.GROUP_DESCRIPTION: "Process Group Description",
    Attribute.SEQUENCE_NUMBER: "Sequence number",
    Attribute.FORWARD_THREAD: "Fwd thread id",
    Attribute.BYTES_MOVED: "bytes",
    Attribute.WAIT_STREAM: "wait_on_stream",
    Attribute.WAIT_CORRELATION: "wait_on_cuda_event_record_corr_id",
    Attribute.MODULE: "Module Hierarchy",
}
"""The key of each attribute inside an event's args."""

_METADATA_PHASE: Final = ord("M")
_TYPE_OF_PHASE: Final = {
    **dict.fromkeys(map(ord, "iIR"), EventType.INSTANT),
    ord("C"): EventType.COUNTER,
    _METADATA_PHASE: EventType.METADATA,
    ord("X"): EventType.UNTIMED,
}
"""What a mark of the scanner is, by its `ph`; a complete event (`X`) is one only where it has no start."""
_MEMORY: Final = "[memory]"
"""Name of the instants that the allocator's events are."""


def read(file: StoredFile, sink: ArgsSink) -> Recording:
    """Read a file of Kineto JSON.

    Raises:
        TraceError: not JSON, no event list, no event, or the file cannot be read.
    """
    trace = read_trace(file, sink)
    kinds, threads, types = _kinds(trace), _thread_ids(trace), _event_types(trace)
    operators = _operators(trace, kinds, threads)
    distributed = trace.metadata.get("distributedInfo")
    info: dict[str, Any] = distributed if isinstance(distributed, dict) else {}
    counts = trace.counts.tolist()
    origin = schema.within(trace.metadata.get("baseTimeNanoseconds"), 64) or 0
    end = int((operators.ts + operators.dur).max(initial=0))
    memory = _memory(trace, threads, types)
    ranks = _ranks(trace, info)
    return Recording(
        dialect=_dialect(trace),
        clock_origin_ns=origin if 0 <= origin <= LATEST - end else 0,
        resolution_ns=_resolution(operators),
        strings=trace.strings,
        threads=threads,
        event_types=types,
        operators=operators,
        attributes={attribute: trace.stated[key] for attribute, key in _ATTRIBUTES.items()},
        memory=memory,
        counters=_counters(trace, types),
        ranks=ranks,
        world_size=schema.within(info.get("world_size"), 32),
        backend=_text(info.get("backend")),
        nccl_version=_text(info.get("nccl_version")),
        groups=_groups(info),
        devices=_devices(trace.metadata),
        versions={key: value for key, value in trace.metadata.items() if "ersion" in key},
        metadata=trace.metadata,
        repairs=Repairs(
            numbers=counts[scanned.NUMBERS],
            controls=counts[scanned.CONTROLS],
            utf8=counts[scanned.UTF8],
            negative_durations=counts[scanned.NEGATIVE],
            no_durations=counts[scanned.NO_DURATION],
            cut_names=counts[scanned.CUT],
            non_events=counts[scanned.NOT_OBJECTS],
        ),
        truncated=trace.truncated,
        warnings=(*trace.warnings, *_without_bytes(memory), *_of_other_processes(trace, kinds, ranks)),
    )


def _without_bytes(memory: RecordedMemory) -> list[str]:
    """Tell of changes of memory that do not say by how much."""
    silent = int(np.count_nonzero(memory.change_bytes == NULL))
    return [f"{format_count(silent, 'memory event')} without 'Bytes': how much changed is unknown"] if silent else []


def _of_other_processes(trace: ScannedTrace, kinds: NDArray[np.int8], ranks: Sequence[RecordedRank]) -> list[str]:
    """Tell of a rank's GPU rows whose correlation calls of several processes have: each process counts its own."""
    if len(ranks) > 1:
        return []
    correlation = trace.wide[scanned.WIDE_CORRELATION]
    calls = np.flatnonzero((kinds == RUNTIME) & (correlation != NULL))
    process = trace.tracks[:, 0][trace.narrow[scanned.NARROW_TRACK][calls]]
    if not len(calls) or (process == process[0]).all():
        return []
    pairs = np.unique(np.stack((correlation[calls], process)), axis=1)[0]
    shared = pairs[1:][pairs[1:] == pairs[:-1]]
    guessed = int(np.isin(correlation[among(kinds, GPU)], shared).sum())
    several = "calls of several processes have their correlation; record each process by itself"
    return [f"{format_count(guessed, 'GPU row')} may be another process's: {several}"] if guessed else []


def compile_scanner() -> None:
    """Compile the scanner once, in this process, before every worker would; it is most of the kernels' time."""
    event = b'{"ph": "X", "ts": 0, "name": "", "cat": "", "args": {}}'
    stream = io.BytesIO(b'{"begin": 0, "traceEvents": [%b]}' % event)
    read_trace(StoredFile(cast("Readable", stream), "warm-up"), lambda *_: None)


def kind_of(category: str) -> int:
    """Return the kind of a category, as a code; case does not matter."""
    category = category.lower()
    return _KIND_OF_CATEGORY.get(category, RUNTIME if _RUNTIME_CATEGORY.fullmatch(category) else OTHER_KIND)


def _kinds(trace: ScannedTrace) -> NDArray[np.int8]:
    """Return the kind of each operator, from its category's text; a missing category (-1) is `other`."""
    categories = trace.narrow[scanned.NARROW_CATEGORY]
    table = np.full(len(trace.strings) + 1, OTHER_KIND, np.int8)
    used = np.flatnonzero(np.bincount(categories - NONE)[1:])
    table[used] = [kind_of(trace.strings[number]) for number in used.tolist()]
    kinds: NDArray[np.int8] = table.take(categories)
    # The 2021 dialect has no category for annotations: the profiler's own are told by their names.
    if any(trace.strings[number] == "Operator" for number in used.tolist()):
        is_mark = [bool(STEP_MARK.match(text)) or text.startswith("Optimizer.") for text in trace.strings]
        named = np.array([*is_mark, False], np.bool_)
        kinds[(kinds == CPU_OP) & named.take(trace.narrow[scanned.NARROW_NAME])] = ANNOTATION
    return kinds


def _dialect(trace: ScannedTrace) -> str:
    if any(text in trace.strings for text in ("Operator", "Kernel", "Runtime")) and "cpu_op" not in trace.strings:
        return "kineto-2021"
    return "kineto" if "schemaVersion" in trace.metadata else "chrome"


def _thread_ids(trace: ScannedTrace) -> NDArray[np.int64]:
    """Return the thread id of each track, NULL where it is a name; a `stream 7` gives 7."""
    threads = trace.tracks[:, 1].copy()
    for track in np.flatnonzero((threads >= scanned.TEXT_ID) & (threads < scanned.LOWEST_ID)).tolist():
        digits = re.search(r"\d+$", trace.strings[int(threads[track]) - scanned.TEXT_ID])
        threads[track] = int(digits.group()) if digits and len(digits.group()) < 19 else NULL
    return threads


def _event_types(trace: ScannedTrace) -> NDArray[np.int8]:
    """Return what each event is: an operator, what its mark says, or a flow, of which the scanner keeps nothing."""
    types = np.full(int(trace.counts[scanned.EVENTS]), EventType.FLOW, np.int8)
    types[trace.narrow[scanned.NARROW_EVENT]] = EventType.OPERATOR
    type_of_phase = np.full(256, EventType.UNKNOWN, np.int8)
    type_of_phase[list(_TYPE_OF_PHASE)] = list(_TYPE_OF_PHASE.values())
    phases = trace.marks[scanned.MARK_PHASE]
    of_marks = type_of_phase[phases]
    untimed = (trace.marks[scanned.MARK_TS] == NULL) & (of_marks != EventType.METADATA)
    of_marks[untimed & (of_marks != EventType.UNKNOWN)] = EventType.UNTIMED
    names_memory = np.array([*(text == _MEMORY for text in trace.strings), False], np.bool_)
    is_memory = (of_marks == EventType.INSTANT) & names_memory[trace.marks[scanned.MARK_NAME]]
    of_marks[is_memory] = EventType.MEMORY
    types[trace.marks[scanned.MARK_EVENT]] = of_marks
    return types


def _operators(trace: ScannedTrace, kinds: NDArray[np.int8], threads: NDArray[np.int64]) -> RecordedOperators:
    wide, narrow = trace.wide, trace.narrow
    track, stream = narrow[scanned.NARROW_TRACK], wide[scanned.WIDE_STREAM]
    silent = np.flatnonzero((stream == NULL) & among(kinds, GPU))
    stream[silent] = threads[track[silent]]  # GPU rows without a stream among their args have it as their thread
    return RecordedOperators(
        event=narrow[scanned.NARROW_EVENT],
        ts=wide[scanned.WIDE_TS],
        dur=wide[scanned.WIDE_DUR],
        kind=kinds,
        name=narrow[scanned.NARROW_NAME],
        track=track,
        device=narrow[scanned.NARROW_DEVICE],
        stream=stream,
        correlation=wide[scanned.WIDE_CORRELATION],
        external_id=wide[scanned.WIDE_EXTERNAL_ID],
        input_dims=narrow[scanned.NARROW_INPUT_DIMS],
        input_types=narrow[scanned.NARROW_INPUT_TYPES],
        grid=narrow[scanned.NARROW_GRID],
        block=narrow[scanned.NARROW_BLOCK],
        occupancy=narrow[scanned.NARROW_OCCUPANCY],
    )


def _resolution(operators: RecordedOperators) -> int:
    """Return the clock's finest step, ns: 1000 where every start and duration is a whole microsecond, else 1."""
    few = slice(0, 1000)  # a finer clock shows at once; only a coarse one has to be looked at in full
    for rows in (few, slice(None)):
        if (operators.ts[rows] % 1000).any() or (operators.dur[rows] % 1000).any():
            return 1
    return 1000 if len(operators) else 1


def _marks_of(trace: ScannedTrace, types: NDArray[np.int8], wanted: EventType) -> NDArray[np.int64]:
    """Return the columns of the marks of one type, ordered by event."""
    return trace.marks[:, types[trace.marks[scanned.MARK_EVENT]] == wanted]


def _memory(trace: ScannedTrace, threads: NDArray[np.int64], types: NDArray[np.int8]) -> RecordedMemory:
    marks = _marks_of(trace, types, EventType.MEMORY)
    events = marks[scanned.MARK_EVENT]

    def stated(key: str) -> NDArray[np.int64]:
        return _at(trace.stated[key], events)

    device = stated("Device Id")
    return RecordedMemory(
        event=events.astype(np.int32),
        ts=marks[scanned.MARK_TS],
        thread=threads[marks[scanned.MARK_TRACK]],
        device_type=stated("Device Type"),
        device=np.where((device >= 0) & (device < 1 << 31), device, NONE).astype(np.int32),
        address=stated("Addr"),
        change_bytes=stated("Bytes"),
        allocated_bytes=stated("Total Allocated"),
        reserved_bytes=stated("Total Reserved"),
    )


def _at(stated: AttributeValues, events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the value that each event states, NULL where it states none."""
    column = np.full(len(events), NULL, np.int64)
    if len(stated.event):
        place = np.searchsorted(stated.event, events)
        place[place == len(stated.event)] = 0
        hit = stated.event[place] == events
        column[hit] = stated.value[place[hit]]
    return column


def _counters(trace: ScannedTrace, types: NDArray[np.int8]) -> RecordedCounters:
    marks = _marks_of(trace, types, EventType.COUNTER)
    values = np.flatnonzero(types[trace.counter_event] == EventType.COUNTER)
    events = trace.counter_event[values]
    place = np.searchsorted(marks[scanned.MARK_EVENT], events)
    return RecordedCounters(
        event=events,
        ts=marks[scanned.MARK_TS][place],
        name=marks[scanned.MARK_NAME][place].astype(np.int32),
        series=trace.counter_series[values],
        value=trace.counter_value[values],
    )


def _ranks(trace: ScannedTrace, info: dict[str, Any]) -> tuple[RecordedRank, ...]:
    """Return the ranks that the file states: several where the files of several ranks were merged into it."""
    events, values = trace.stated["rank"]
    known = (values >= 0) & (values < RANKS)
    events, values = events[known], values[known].astype(np.int32)
    ranks = np.unique(values).tolist()
    if len(ranks) > 1:
        stated = np.full(int(trace.counts[scanned.EVENTS]), NONE, np.int32)
        stated[events] = values
        rank_of_event = _with_every_event(trace, stated, ranks[0])
        return tuple(RecordedRank(rank=rank, source="args", events=rank_of_event == rank) for rank in ranks)
    in_header = info.get("rank")
    if isinstance(in_header, int) and 0 <= in_header < RANKS:
        return (RecordedRank(rank=in_header, source="distributedInfo"),)
    return (RecordedRank(rank=ranks[0], source="args"),) if ranks else (RecordedRank(),)


def _with_every_event(trace: ScannedTrace, stated: NDArray[np.int32], first: int) -> NDArray[np.int32]:
    """Give the events that state no rank that of their process, else the file's first rank."""
    events = np.concatenate((trace.narrow[scanned.NARROW_EVENT], trace.marks[scanned.MARK_EVENT].astype(np.int32)))
    tracks = np.concatenate((trace.narrow[scanned.NARROW_TRACK], trace.marks[scanned.MARK_TRACK].astype(np.int32)))
    processes, process_of_track = np.unique(trace.tracks[:, 0], return_inverse=True)
    rank_of_process = np.full(len(processes), NONE, np.int32)
    rank = stated[events]
    rank_of_process[process_of_track[tracks[rank >= 0]]] = rank[rank >= 0]
    filled = stated.copy()
    filled[events[rank < 0]] = rank_of_process[process_of_track[tracks[rank < 0]]]
    filled[filled < 0] = first
    return filled


def _groups(info: dict[str, Any]) -> tuple[RecordedGroup, ...]:
    config = info.get("pg_config")
    entries = [entry for entry in config if isinstance(entry, dict)] if isinstance(config, list) else []
    return tuple(
        RecordedGroup(
            name=str(entry["pg_name"]),
            description=None if (description := entry.get("pg_desc")) is None else str(description),
            backend=None if (backend := entry.get("backend_config")) is None else str(backend),
            size=schema.within(entry.get("pg_size"), 32),
            ranks=rank_list(entry.get("ranks")),
        )
        for entry in entries
        if "pg_name" in entry
    )


def _devices(metadata: dict[str, Any]) -> tuple[RecordedDevice, ...]:
    listed = metadata.get("deviceProperties")
    return tuple(
        RecordedDevice(number if isinstance(number := device.get("id"), int) else None, _text(device.get("name")))
        for device in (listed if isinstance(listed, list) else [])
        if isinstance(device, dict)
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value).encode("utf-8", "replace").decode()
