"""GPUs: streams that work off what the host sends them, in order, and collectives that bring GPUs together."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from tests.emulator.engine import Engine, Process, Signal
from tests.emulator.hardware import KERNEL_GAP_NS, LAUNCH_LATENCY_NS, Noise, gpu_pace
from tests.emulator.model import Graph, Work
from tests.emulator.processors import Processors
from tests.emulator.records import Collective, GpuRow, HostRow, Recording
from tests.emulator.truth import Activity, CollectiveTruth, Meter

COMPUTE_STREAM: Final = 7
COMMUNICATION_STREAM: Final = 20
COPY_STREAM: Final = 24
APART_STREAM: Final = 28
SIDE_STREAM: Final = 32
GATHER_STREAM: Final = 36

_Key: TypeAlias = tuple[str, tuple[int, int] | None, int]


class Timing(Protocol):
    """What a job says of how its GPU work is timed."""

    @property
    def seed(self) -> int:
        """Seed of the noise."""

    @property
    def jitter_ns(self) -> int:
        """A launch reaches the GPU up to this much later than usual."""

    @property
    def barrier_ns(self) -> int:
        """A stream that had to wait for another one goes on so long after it was free to."""

    @property
    def kernel_noise(self) -> float:
        """Kernels take at most this share more or less than usual."""

    @property
    def queue_depth(self) -> int:
        """How much a stream's queue holds before the host has to wait; 0: any number."""

    @property
    def slow_first(self) -> tuple[tuple[str, float], ...]:
        """(text, factor): the first work of each step with that text in its name takes so many times as long."""

    def factor(self, name: str, blocks: int) -> float:
        """Return how many times as long work of that name and so many blocks takes."""


class Fabric:
    """What connects the GPUs: a collective transfers once its last member is there, and ends for all together."""

    def __init__(self, engine: Engine, transfer_ns: Callable[[Collective], float]) -> None:
        self.truth: list[CollectiveTruth] = []
        self._engine = engine
        self._transfer_ns = transfer_ns
        self._arrivals: dict[_Key, dict[int, int]] = {}
        self._over: dict[_Key, Signal] = {}

    def join(self, collective: Collective, rank: int, factor: float) -> Signal:
        """Let `rank` arrive now for a transfer that takes `factor` times the usual; return what happens at the end."""
        arrivals = self._arrivals.setdefault(collective.key, {})
        over = self._over.setdefault(collective.key, Signal())
        arrivals[rank] = self._engine.now
        if len(arrivals) == collective.expected:
            del self._arrivals[collective.key], self._over[collective.key]
            self._engine.start(self._transfer(collective, arrivals, over, factor))
        return over

    def _transfer(self, collective: Collective, arrivals: dict[int, int], over: Signal, factor: float) -> Process:
        yield round(factor * self._transfer_ns(collective))
        self.truth.append(
            CollectiveTruth(
                seq=collective.seq,
                step=collective.step,
                payload_bytes=collective.elements * collective.element_bytes,
                arrivals_ns=tuple(arrivals[rank] for rank in sorted(arrivals)),
                end_ns=self._engine.now,
            )
        )
        self._engine.fire(over)


@dataclass(slots=True)
class Launch:
    """A piece of work on its way to the GPU, and who sent it."""

    work: Work | Graph
    call: HostRow
    correlation: int
    external_id: int | None
    annotations: tuple[HostRow, ...]
    collective: Collective | None


@dataclass(slots=True)
class _Stream:
    number: int
    noise: Noise
    queue: deque[Process] = field(default_factory=deque)
    wake: Signal = field(default_factory=Signal)
    room: Signal = field(default_factory=Signal)


class Gpu:
    """The GPU of one rank."""

    def __init__(
        self,
        engine: Engine,
        fabric: Fabric,
        recording: Recording,
        meter: Meter,
        job: Timing,
        processors: Processors | None = None,
    ) -> None:
        """Take what the GPU works with; `processors`: those that communication takes from the kernels beside it."""
        self._engine = engine
        self._fabric = fabric
        self._recording = recording
        self._meter = meter
        self._job = job
        self._processors = processors
        self.pace = gpu_pace(job.seed, recording.rank)
        """Kernels and copies take so many times as long as usual."""
        self._streams: dict[int, _Stream] = {}
        self._had: set[tuple[str, tuple[int, ...]]] = set()
        for number in (COMPUTE_STREAM, COMMUNICATION_STREAM, COPY_STREAM, APART_STREAM):
            self._stream(number)

    def _stream(self, number: int) -> _Stream:
        if number not in self._streams:
            noise = Noise(f"{self._job.seed}/{self._recording.rank}/stream {number}", self._job.kernel_noise)
            self._streams[number] = _Stream(number, noise)
            self._engine.start(self._serve(self._streams[number]))
        return self._streams[number]

    def launch(self, stream: int, launch: Launch) -> None:
        """Queue the work."""
        self._submit(stream, self._run(self._stream(stream), launch))

    def make_room(self, number: int) -> Process:
        """Wait until the queue of a stream has room."""
        stream = self._stream(number)
        while self._job.queue_depth and len(stream.queue) >= self._job.queue_depth:
            yield stream.room

    def record(self, stream: int) -> Signal:
        """Return what happens once everything queued so far is over."""
        event = Signal()
        self._submit(stream, self._reach(event))
        return event

    def wait(self, stream: int, event: Signal) -> None:
        """Hold back what is queued from now on until the event happens."""
        self._submit(stream, self._hold(event))

    def record_all(self) -> tuple[Signal, ...]:
        """Return one event a stream."""
        return tuple(self.record(stream) for stream in self._streams)

    def _submit(self, number: int, process: Process) -> None:
        stream = self._stream(number)
        stream.queue.append(process)
        self._engine.fire(stream.wake)

    def _serve(self, stream: _Stream) -> Process:
        while True:
            while not stream.queue:
                stream.wake = Signal()
                yield stream.wake
            yield from stream.queue.popleft()
            if stream.room.waiting:
                room, stream.room = stream.room, Signal()
                self._engine.fire(room)

    def _run(self, stream: _Stream, launch: Launch) -> Process:
        late = stream.noise.up_to(self._job.jitter_ns)
        yield max(0, launch.call.start + LAUNCH_LATENCY_NS + late - self._engine.now)
        if isinstance(launch.work, Work):
            yield from self._execute(stream, launch, launch.work, None)
        else:
            for node, work in enumerate(launch.work.nodes):
                yield from self._execute(stream, launch, work, node)

    def _execute(self, stream: _Stream, launch: Launch, work: Work, node: int | None) -> Process:
        start = self._engine.now
        activity: Activity = "memory"
        if work.kind == "kernel":
            activity = "communication" if launch.collective else "compute"
        self._meter.begin(activity)
        factor = self._job.factor(work.name, work.blocks) * self._first_factor(launch, work.name)
        if launch.collective:
            self._take(work.blocks)
            yield self._fabric.join(launch.collective, self._recording.rank, factor)
            self._take(-work.blocks)
        else:
            ns = stream.noise.around(self.pace * factor * work.ns)
            yield self._processors.work(ns) if self._processors and activity == "compute" else ns
        self._meter.end(activity)
        self._recording.gpu.append(
            GpuRow(
                work=work,
                stream=stream.number,
                start=start,
                end=self._engine.now,
                correlation=launch.correlation,
                external_id=launch.external_id,
                annotations=launch.annotations,
                collective=launch.collective,
                node=node,
            )
        )
        yield KERNEL_GAP_NS

    def _first_factor(self, launch: Launch, name: str) -> float:
        factor = 1.0
        for text, times in self._job.slow_first:
            first = text, tuple(annotation.start for annotation in launch.annotations[:1])
            if text in name and first not in self._had:
                self._had.add(first)
                factor *= times
        return factor

    def _take(self, blocks: int) -> None:
        if self._processors:
            self._processors.take(blocks)

    def _reach(self, event: Signal) -> Process:
        self._engine.fire(event)
        yield from ()

    def _hold(self, event: Signal) -> Process:
        if not event.happened:
            yield event
            yield self._job.barrier_ns
