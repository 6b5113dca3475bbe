"""What a perfect observer of one rank writes down; all times are true time, ns."""

from dataclasses import dataclass, field
from typing import Final, Literal

from tests.emulator.device import Device
from tests.emulator.engine import Signal
from tests.emulator.model import Shape, Work

FIRST_PROCESS: Final = 4000
"""Process of rank 0, and its main thread; the other ranks follow."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collective:
    """What one rank says about a collective that it takes part in."""

    name: str
    ranks: tuple[int, ...]
    elements: int = 0
    seq: int = 0
    """Number in its group; of a send or receive, among those from the one rank to the other."""
    step: int = 0
    group: str = "0"
    description: str = "default_pg"
    dtype: str = "BFloat16"
    element_bytes: int = 2
    route: tuple[int, int] | None = None
    """Of a send or receive: from which rank to which."""
    members: int = 0
    """How many ranks take part in the simulation; 0: all of them."""

    @property
    def key(self) -> tuple[str, tuple[int, int] | None, int]:
        """Return what all members have in common and no other collective has."""
        return self.group, self.route, self.seq

    @property
    def expected(self) -> int:
        """Return how many have to arrive."""
        return 2 if self.route else self.members or len(self.ranks)


@dataclass(frozen=True, slots=True)
class Event:
    """A mark behind what a stream has been sent so far."""

    stream: int
    correlation: int
    """Of the call that set it."""
    reached: Signal


@dataclass(slots=True)
class HostRow:
    """A stretch of time on a host thread; `end` is known once it is over."""

    kind: Literal["cpu_op", "cuda_runtime", "user_annotation", "python_function"]
    name: str
    thread: int
    start: int
    end: int = 0
    external_id: int | None = None
    correlation: int | None = None
    sequence: int | None = None
    made_on: int = 0
    """Thread that ran the operator whose backward it is, as autograd numbers them; 0: it is no backward."""
    shapes: tuple[Shape | tuple[Shape, ...], ...] = ()
    indices: tuple[int, ...] = ()
    dtype: str = "c10::BFloat16"
    collective: Collective | None = None
    python_id: int | None = None
    python_parent: int | None = None
    stream: int | None = None
    """Which one a wait is about, be it the stream or the host that waits."""
    event: Event | None = None
    """What that stream waits for."""


@dataclass(slots=True)
class GpuRow:
    """A stretch of time on a GPU stream."""

    work: Work
    stream: int
    start: int
    end: int
    correlation: int
    external_id: int | None
    annotations: tuple[HostRow, ...]
    """Annotations that were open around the launch."""
    collective: Collective | None
    node: int | None
    """Place in the CUDA graph that it is of."""


@dataclass(slots=True)
class MemoryRow:
    """A block of GPU memory taken (positive) or given back (negative)."""

    time: int
    thread: int
    address: int
    change_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(slots=True)
class Recording:
    """Everything that happened on one rank."""

    rank: int
    device: Device
    groups: tuple[Group, ...]
    host: list[HostRow] = field(default_factory=list)
    gpu: list[GpuRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)
