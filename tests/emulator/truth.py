"""The facts that an analysis of the traces has to find, measured while the job runs and not from its rows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tests.emulator.engine import Engine

Activity: TypeAlias = Literal["compute", "communication", "memory"]


@dataclass(frozen=True, slots=True)
class StepTruth:
    """One step of one rank: the last five add up to `step_ns`."""

    rank: int
    step: int
    step_ns: int
    slept_ns: int
    exposed_compute_ns: int
    exposed_communication_ns: int
    overlapped_ns: int
    memory_ns: int
    """Nothing but copies and clears runs."""
    idle_ns: int


@dataclass(frozen=True, slots=True)
class CollectiveTruth:
    """One collective of all its ranks."""

    seq: int
    step: int
    payload_bytes: int
    arrivals_ns: tuple[int, ...]
    """By rank: when its kernel starts, true time."""
    end_ns: int
    """When it ends, on every rank."""

    @property
    def last_rank(self) -> int:
        """The rank that the others wait for."""
        return self.arrivals_ns.index(max(self.arrivals_ns))

    def waited_ns(self, rank: int) -> int:
        """Return how long the kernel of `rank` waits for the last one."""
        return max(self.arrivals_ns) - self.arrivals_ns[rank]


@dataclass(frozen=True, slots=True)
class GpuTruth:
    """The GPU of one rank, from the start of its first row to the end of its last."""

    rank: int
    gpu_rows: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    overlap_ns: int
    exposed_communication_ns: int


@dataclass(frozen=True, slots=True)
class Truth:
    """All facts of a job."""

    steps: tuple[StepTruth, ...]
    collectives: tuple[CollectiveTruth, ...]
    gpus: tuple[GpuTruth, ...]


class Meter:
    """Adds up how long each combination of activities runs on one GPU, step by step."""

    def __init__(self, engine: Engine, rank: int) -> None:
        self._engine = engine
        self._rank = rank
        self._step: int | None = None
        self._running: Counter[Activity] = Counter()
        self._present: frozenset[Activity] = frozenset()
        self._since = 0
        self._spent: Counter[tuple[int | None, frozenset[Activity]]] = Counter()
        self._rows = 0
        self._first = 0
        self._last = 0

    def enter(self, step: int | None) -> None:
        """Count what follows for `step`; None is the time between steps."""
        self._account()
        self._step = step

    def begin(self, activity: Activity) -> None:
        """Count what follows for `activity`, too."""
        self._account()
        if not self._rows:
            self._first = self._engine.now
        self._rows += 1
        self._running[activity] += 1
        self._present |= {activity}

    def end(self, activity: Activity) -> None:
        """Count what follows no longer for `activity`."""
        self._account()
        self._last = self._engine.now
        self._running[activity] -= 1
        if not self._running[activity]:
            self._present -= {activity}

    def step_truth(self, step: int, slept_ns: int) -> StepTruth:
        """Return the facts of a step that is over."""
        spent = {running: ns for (of, running), ns in self._spent.items() if of == step}
        return StepTruth(
            rank=self._rank,
            step=step,
            step_ns=sum(spent.values()),
            slept_ns=slept_ns,
            exposed_compute_ns=_total(spent.items(), {"compute"}, "communication"),
            exposed_communication_ns=_total(spent.items(), {"communication"}, "compute"),
            overlapped_ns=_total(spent.items(), {"compute", "communication"}),
            memory_ns=_total(spent.items(), {"memory"}, "compute", "communication"),
            idle_ns=_total(spent.items(), set(), "compute", "communication", "memory"),
        )

    def gpu_truth(self) -> GpuTruth:
        """Return the facts of everything so far."""
        spent = [(running, ns) for (_, running), ns in self._spent.items()]
        span = self._last - self._first
        busy = sum(ns for running, ns in spent if running)
        return GpuTruth(
            rank=self._rank,
            gpu_rows=self._rows,
            span_ns=span,
            busy_ns=busy,
            idle_ns=span - busy,
            compute_ns=_total(spent, {"compute"}),
            communication_ns=_total(spent, {"communication"}),
            memory_ns=_total(spent, {"memory"}),
            overlap_ns=_total(spent, {"compute", "communication"}),
            exposed_communication_ns=_total(spent, {"communication"}, "compute"),
        )

    def _account(self) -> None:
        self._spent[self._step, self._present] += self._engine.now - self._since
        self._since = self._engine.now


def _total(spent: Iterable[tuple[frozenset[Activity], int]], present: set[Activity], *absent: Activity) -> int:
    return sum(ns for running, ns in spent if present <= running and running.isdisjoint(absent))
