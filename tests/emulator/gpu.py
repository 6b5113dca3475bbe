"""GPUs: streams that work off what the host sends them, in order, and collectives that bring GPUs together."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tests.emulator.engine import Engine, Process, Signal
from tests.emulator.hardware import KERNEL_GAP_NS, LAUNCH_LATENCY_NS, Noise, all_reduce_ns
from tests.emulator.job import DTYPE_BYTES, Job
from tests.emulator.model import Work
from tests.emulator.records import Collective, GpuRow, HostRow, Recording
from tests.emulator.truth import Activity, CollectiveTruth, Meter

COMPUTE_STREAM: Final = 7
COMMUNICATION_STREAM: Final = 20
COPY_STREAM: Final = 24
APART_STREAM: Final = 28


class Fabric:
    """What connects the GPUs: a collective transfers once its last member is there, and ends for all together."""

    def __init__(self, engine: Engine) -> None:
        self.truth: list[CollectiveTruth] = []
        self._engine = engine
        self._arrivals: dict[int, dict[int, int]] = {}
        self._over: dict[int, Signal] = {}

    def join(self, collective: Collective, rank: int, factor: float) -> Signal:
        """Let `rank` arrive now for a transfer that takes `factor` times the usual; return what happens at the end."""
        arrivals = self._arrivals.setdefault(collective.seq, {})
        over = self._over.setdefault(collective.seq, Signal())
        arrivals[rank] = self._engine.now
        if len(arrivals) == len(collective.ranks):
            self._engine.start(self._transfer(collective, arrivals, over, factor))
        return over

    def _transfer(self, collective: Collective, arrivals: dict[int, int], over: Signal, factor: float) -> Process:
        payload_bytes = collective.elements * DTYPE_BYTES
        yield round(factor * all_reduce_ns(payload_bytes, len(collective.ranks)))
        self.truth.append(
            CollectiveTruth(
                seq=collective.seq,
                step=collective.step,
                payload_bytes=payload_bytes,
                arrivals_ns=tuple(arrivals[rank] for rank in collective.ranks),
                end_ns=self._engine.now,
            )
        )
        self._engine.fire(over)


@dataclass(frozen=True, slots=True)
class Launch:
    """A piece of work on its way to the GPU, and who sent it."""

    work: Work
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


class Gpu:
    """The GPU of one rank."""

    def __init__(self, engine: Engine, fabric: Fabric, recording: Recording, meter: Meter, job: Job) -> None:
        self._engine = engine
        self._fabric = fabric
        self._recording = recording
        self._meter = meter
        self._job = job
        self._streams = {
            number: _Stream(number, Noise(f"{job.seed}/{recording.rank}/stream {number}"))
            for number in (COMPUTE_STREAM, COMMUNICATION_STREAM, COPY_STREAM, APART_STREAM)
        }
        for stream in self._streams.values():
            engine.start(self._serve(stream))

    def launch(self, stream: int, launch: Launch) -> None:
        """Queue the work."""
        self._submit(stream, self._run(self._streams[stream], launch))

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
        stream = self._streams[number]
        stream.queue.append(process)
        self._engine.fire(stream.wake)

    def _serve(self, stream: _Stream) -> Process:
        while True:
            while not stream.queue:
                stream.wake = Signal()
                yield stream.wake
            yield from stream.queue.popleft()

    def _run(self, stream: _Stream, launch: Launch) -> Process:
        late = stream.noise.up_to(self._job.jitter_ns)
        yield max(0, launch.call.start + LAUNCH_LATENCY_NS + late - self._engine.now)
        start = self._engine.now
        activity: Activity = "memory"
        if launch.work.kind == "kernel":
            activity = "communication" if launch.collective else "compute"
        self._meter.begin(activity)
        factor = self._job.factor(launch.work.name)
        if launch.collective:
            yield self._fabric.join(launch.collective, self._recording.rank, factor)
        else:
            yield stream.noise.around(factor * launch.work.ns)
        self._meter.end(activity)
        self._recording.gpu.append(
            GpuRow(
                work=launch.work,
                stream=stream.number,
                start=start,
                end=self._engine.now,
                correlation=launch.correlation,
                external_id=launch.external_id,
                annotations=launch.annotations,
                collective=launch.collective,
            )
        )
        yield KERNEL_GAP_NS

    def _reach(self, event: Signal) -> Process:
        self._engine.fire(event)
        yield from ()

    def _hold(self, event: Signal) -> Process:
        yield event
