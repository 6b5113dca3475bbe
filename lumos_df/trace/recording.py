"""What a reader of a profiler's file hands over, whatever the profiler: nothing behind this module knows a format.

A reader gives the columns of a `Recording` as it meets them. Their order, parents, steps, phases, modules, families and
collectives are derived from these columns alone, so a format is its reader and one line in `formats`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, auto
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE, NULL, NULL32

ArgsSink = Callable[[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]], None]
"""Takes (events, offsets, text) while a file is read: the args of events[k], a JSON object, are
text[offsets[k]:offsets[k + 1]]. It may keep the arrays: nobody writes to them afterwards."""


class EventType(IntEnum):
    """What an event of a file is."""

    OPERATOR = 0
    """A row of `Recording.operators`."""
    FLOW = auto()
    """An arrow between operators, which says nothing that their columns do not."""
    INSTANT = auto()
    """A mark without a duration that is none of the others."""
    MEMORY = auto()
    """A row of `Recording.memory`."""
    COUNTER = auto()
    """Values in `Recording.counters`."""
    METADATA = auto()
    """A name of a process or thread."""
    UNTIMED = auto()
    """Skipped: it has no start."""
    UNKNOWN = auto()
    """Skipped: this version does not know what it is."""


class Attribute(IntEnum):
    """What few operators state. A text is a place in `Recording.strings`."""

    COLLECTIVE = auto()
    """Text: the collective, however the recorder spells it (`allreduce`, `_allgather_base`)."""
    COLLECTIVE_TYPE = auto()
    """Text: element type of a collective."""
    COLLECTIVE_NUMBER = auto()
    """Number of a collective in its group."""
    COLLECTIVE_INPUTS = auto()
    """Text: JSON list of the values that `record_param_comms` was called with; the number is among them."""
    ELEMENTS_IN = auto()
    """Elements that this rank gives to a collective."""
    ELEMENTS_OUT = auto()
    """Elements that this rank gets from it."""
    COLLECTIVE_BYTES = auto()
    """Bytes of the message, as NCCL counts them, where its elements are not stated: what a rank gives, of a
    reduce-scatter what it gets."""
    GROUP = auto()
    """Text: name of the process group."""
    GROUP_SIZE = auto()
    """Ranks in the process group."""
    GROUP_RANKS = auto()
    """Text: JSON list of its ranks; one that a recorder has shortened is no JSON and not read."""
    GROUP_PLACE = auto()
    """This rank's place among them; of collectives with a root the root's, of sends and receives the peer's."""
    GROUP_DESCRIPTION = auto()
    """Text: what it was made for."""
    SEQUENCE_NUMBER = auto()
    """Autograd's number, which a forward operator shares with its backward operators."""
    FORWARD_THREAD = auto()
    """Autograd's number of the thread that ran the forward; above 0 on backward operators alone."""
    BYTES_MOVED = auto()
    """Bytes of a copy or fill, on its GPU row or on the call."""
    WAIT_STREAM = auto()
    """Sync rows: the stream that was waited for."""
    WAIT_CORRELATION = auto()
    """Sync rows: correlation of the event record that was waited for."""
    MODULE = auto()
    """Text: path of the module around an operator, joined by dots."""


class AttributeValues(NamedTuple):
    """The values of one attribute, ordered by event."""

    event: NDArray[np.int32]
    """The event that states it."""
    value: NDArray[np.int64]
    """Number, or place in `Recording.strings`; never null."""


_NO_INT32: Final = np.zeros(0, np.int32)
_NO_INT64: Final = np.zeros(0, np.int64)

NO_VALUES: Final = AttributeValues(_NO_INT32, _NO_INT64)
"""An attribute that no event states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOperators:
    """The operators of a file, in any order: columns of n rows, made by `of` where a format lacks some.

    Null is `NULL` in int64 columns, `NULL32` in int32 columns, and `NONE` in columns of places.
    """

    event: NDArray[np.int32]
    """Number of the event in the file, below `len(Recording.event_types)`; each once. The key into the raw args."""
    ts: NDArray[np.int64]
    """Start, ns on the recording's clock; never null."""
    dur: NDArray[np.int64]
    """Duration, ns; neither null nor negative."""
    kind: NDArray[np.int8]
    """Place in `schema.KINDS` (see `schema.codes`); never null."""
    name: NDArray[np.int32]
    """Place in `Recording.strings`."""
    track: NDArray[np.int32]
    """Place in `Recording.threads`: the thread that ran a host row. Rows of one track lie in one another or apart."""
    device: NDArray[np.int32]
    """Index of a GPU row's device."""
    stream: NDArray[np.int64]
    """Stream of a GPU or sync row."""
    correlation: NDArray[np.int64]
    """What a runtime call shares with the GPU and sync rows that it caused; a number for one rank alone."""
    external_id: NDArray[np.int64]
    """What a CPU operator shares with the GPU rows that it issued, for those without a runtime call."""
    input_dims: NDArray[np.int32]
    """Place in `strings` of a JSON list: the inputs' shapes, `[]` for what is no tensor."""
    input_types: NDArray[np.int32]
    """Place in `strings` of a JSON list: the inputs' types."""
    grid: NDArray[np.int32]
    """Place in `strings` of a JSON list of three: the kernel's grid."""
    block: NDArray[np.int32]
    """Place in `strings` of a JSON list of three: its block."""
    occupancy: NDArray[np.int32]
    """Estimated achieved occupancy, hundredths of a percent."""

    def __post_init__(self) -> None:
        lengths = {column.name: len(getattr(self, column.name)) for column in fields(self)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of one length are wanted, not {lengths}")

    def __len__(self) -> int:
        return len(self.ts)

    @classmethod
    def of(cls, *, event: NDArray[np.int32], **columns: NDArray[Any]) -> Self:
        """Return the columns that a format has, the others null; a column of nulls takes no memory."""
        absent = {name: np.broadcast_to(null, len(event)) for name, null in _NULLS.items() if name not in columns}
        return cls(event=event, **absent, **columns)

    def after(self, *, event: NDArray[np.int32], **columns: NDArray[Any]) -> Self:
        """Return others, which are given as to `of`, and these rows after them; of rows alike the first is outside."""
        others = self.of(event=event, **columns)
        size = len(self) + len(event)
        return replace(
            self,
            **{
                name: np.broadcast_to(mine[:1], size)
                if name in _NULLS and name not in columns and mine.strides == (0,)
                else np.append(getattr(others, name).astype(mine.dtype), mine)
                for name, mine in ((column.name, getattr(self, column.name)) for column in fields(self))
            },
        )


_NULLS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("name", "track", "input_dims", "input_types", "grid", "block"), np.int32(NONE)),
    **dict.fromkeys(("device", "occupancy"), np.int32(NULL32)),
    **dict.fromkeys(("stream", "correlation", "external_id"), np.int64(NULL)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMemory:
    """Allocations and releases that the framework's allocator saw: columns of n rows; null is `NULL`."""

    event: NDArray[np.int32]
    ts: NDArray[np.int64]
    """When, ns on the recording's clock; never null."""
    thread: NDArray[np.int64]
    """Thread id as recorded."""
    device_type: NDArray[np.int64]
    """PyTorch's `c10::DeviceType`: 0 is the host, 1 a GPU."""
    device: NDArray[np.int32]
    """Index of the device; NONE for the host."""
    address: NDArray[np.int64]
    change_bytes: NDArray[np.int64]
    """Bytes allocated (positive) or released (negative)."""
    allocated_bytes: NDArray[np.int64]
    """Total allocated after the event."""
    reserved_bytes: NDArray[np.int64]
    """Total reserved by the allocator after the event."""


NO_MEMORY: Final = RecordedMemory(
    event=_NO_INT32,
    ts=_NO_INT64,
    thread=_NO_INT64,
    device_type=_NO_INT64,
    device=_NO_INT32,
    address=_NO_INT64,
    change_bytes=_NO_INT64,
    allocated_bytes=_NO_INT64,
    reserved_bytes=_NO_INT64,
)
"""The allocations of a format that records none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCounters:
    """Values of counters: columns of n rows, none of them null. One event may have several."""

    event: NDArray[np.int32]
    ts: NDArray[np.int64]
    """When, ns on the recording's clock."""
    name: NDArray[np.int32]
    """Place in `Recording.strings`."""
    series: NDArray[np.int32]
    """Which of the counter's values: place in `Recording.strings`."""
    value: NDArray[np.float64]


NO_COUNTERS: Final = RecordedCounters(
    event=_NO_INT32, ts=_NO_INT64, name=_NO_INT32, series=_NO_INT32, value=np.zeros(0)
)
"""The counters of a format that records none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRank:
    """One process of a file: it becomes a trace of its own."""

    rank: int = NONE
    """Its rank; NONE where the file does not state it: then it states that of none of its processes."""
    source: str = ""
    """Where the rank is known from, as `traces.rank_source` has it."""
    events: NDArray[np.bool_] | None = None
    """Which of the file's events are its own, one entry an event; None for all of them."""


class RecordedDevice(NamedTuple):
    """A GPU that the file lists."""

    number: int | None
    """Its index, as operators name it; None where the file does not say."""
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """A process group that the file lists; None is unknown."""

    name: str
    description: str | None
    backend: str | None
    size: int | None
    ranks: tuple[int, ...] | None
    """Global ranks, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """How often a reader mended something in a file."""

    numbers: int = 0
    """NaN and Infinity read as null."""
    controls: int = 0
    """Raw control characters inside strings."""
    utf8: int = 0
    """Sequences of bytes that are no UTF-8."""
    negative_durations: int = 0
    """Durations below 0 read as 0."""
    no_durations: int = 0
    """Durations that are missing, or no number, taken as 0."""
    cut_names: int = 0
    """Names cut, because no profiler writes such long ones."""
    non_events: int = 0
    """Entries of the list of events that are none; they have no number among the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One file of a profiler, as its reader hands it over."""

    dialect: str
    """What the file is written in, as `traces.dialect` has it."""
    clock_origin_ns: int
    """What to add to a time to get Unix time; 0 where the file does not say."""
    resolution_ns: int
    """Finest step of the file's clock."""
    strings: list[str]
    """Every distinct text once."""
    threads: NDArray[np.int64]
    """Thread id of each track as recorded; `NULL` where it is no number. Two processes never share a track."""
    event_types: NDArray[np.int8]
    """What each event of the file is (`EventType`), by its number."""
    operators: RecordedOperators
    attributes: Mapping[Attribute, AttributeValues] = field(default_factory=dict)
    """What few operators state; an attribute that none does may be left out."""
    memory: RecordedMemory = NO_MEMORY
    counters: RecordedCounters = NO_COUNTERS
    ranks: tuple[RecordedRank, ...] = (RecordedRank(),)
    """The processes of the file, in the order of their ranks."""
    world_size: int | None = None
    """Ranks in the job, where the file states it."""
    backend: str | None = None
    """Backend of torch.distributed as stated."""
    nccl_version: str | None = None
    """Version of NCCL or RCCL as stated."""
    groups: tuple[RecordedGroup, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    """Stored tables that only some formats fill, by name: each a `pyarrow.Table` as in `schema`, without a rank."""
    devices: tuple[RecordedDevice, ...] = ()
    versions: dict[str, Any] = field(default_factory=dict)
    """Every other version that the file states, as JSON values."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """What the file says of itself beside its events, as JSON values; credentials may still be among it."""
    repairs: Repairs = Repairs()
    truncated: bool = False
    """Whether the file ended in the middle; every complete event before that was read."""
    states_steps: bool = True
    """Whether steps are marked as torch.profiler marks them, or not at all; False: ranges that repeat may be steps."""
    warnings: tuple[str, ...] = ()
    """What a user should know about the file, a sentence each."""

    def where(self, wanted: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Return for each of `strings` whether `wanted` holds; one entry more, False, which NONE finds."""
        return np.array([*map(wanted, self.strings), False], np.bool_)

    def used(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """Return which of `strings` some places name, ascending; NONE, and what is below it, names nothing."""
        if places.max(initial=NONE) < 0:  # of a column that no event has, and there are such in most files
            return np.zeros(0, np.int64)
        named = np.zeros(len(self.strings) + 1, np.bool_)
        named[np.maximum(places, NONE)] = True
        return np.flatnonzero(named[:NONE])

    def attribute(self, attribute: Attribute) -> AttributeValues:
        """Return the values of an attribute."""
        return self.attributes.get(attribute, NO_VALUES)

    def texts(self, places: NDArray[Any]) -> list[str]:
        """Return the texts at a few places, empty where there is none."""
        return [self.strings[place] if place >= 0 else "" for place in places.tolist()]
