"""The host of one rank: threads that run operators, call the CUDA runtime and take memory."""

from itertools import count
from typing import TYPE_CHECKING, Final

from tests.emulator.engine import Engine, Process
from tests.emulator.gpu import COMPUTE_STREAM, Gpu, Launch
from tests.emulator.hardware import (
    EVENT_CALL_NS,
    LAUNCH_CALL_NS,
    MEMORY_CALL_NS,
    OPERATOR_NS,
    SYNC_RETURN_NS,
    Noise,
    host_pace,
)
from tests.emulator.model import Exchange, Graph, Operator, Shape, Work
from tests.emulator.records import Collective, Event, HostRow, MemoryRow, Recording

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS: Final = {"kernel": "cudaLaunchKernel", "gpu_memcpy": "cudaMemcpyAsync", "gpu_memset": "cudaMemsetAsync"}
_BLOCK_BYTES: Final = 512
_SEGMENT_BYTES: Final = 20 << 20


class Memory:
    """The caching allocator: what it once reserved it keeps."""

    def __init__(self, engine: Engine, recording: Recording, resident_bytes: int) -> None:
        self._engine = engine
        self._recording = recording
        self._allocated = resident_bytes
        self._reserved = 0
        self._next_address = 0x7F00_0000_0000
        self._sizes: dict[int, int] = {}

    def allocate(self, thread: int, size_bytes: int) -> int:
        """Take a block; return its address."""
        address, size = self._next_address, -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        self._next_address += size
        self._sizes[address] = size
        self._change(thread, address, size)
        return address

    def release(self, thread: int, address: int) -> None:
        """Give a block back."""
        self._change(thread, address, -self._sizes.pop(address))

    def _change(self, thread: int, address: int, change_bytes: int) -> None:
        self._allocated += change_bytes
        self._reserved = max(self._reserved, -(-self._allocated // _SEGMENT_BYTES) * _SEGMENT_BYTES)
        row = MemoryRow(self._engine.now, thread, address, change_bytes, self._allocated, self._reserved)
        self._recording.memory.append(row)


class Host:
    """What the threads of one rank share: its GPU, its memory, and the numbers that tie rows together."""

    def __init__(self, engine: Engine, gpu: Gpu, memory: Memory, recording: Recording) -> None:
        self.engine = engine
        self.gpu = gpu
        self.memory = memory
        self.recording = recording
        self.external_ids = count(1)
        self.correlations = count(1)
        self.sequences = count(1)
        self.python_ids = count(1)
        self.blocking = False
        """Whether each launch returns when its work is over."""
        self.exchange: Callable[[Thread, Exchange], Process] | None = None
        """How a thread exchanges data with other ranks."""


class _Opened:
    """A row that is open while a block runs. No generator: there are a hundred thousand of them in a test."""

    __slots__ = ("_host", "_open", "_row")

    def __init__(self, host: Host, is_open: list[HostRow], row: HostRow) -> None:
        self._host = host
        self._open = is_open
        self._row = row

    def __enter__(self) -> HostRow:
        self._host.recording.host.append(self._row)
        self._open.append(self._row)
        return self._row

    def __exit__(self, *_: object) -> None:
        self._open.pop()
        self._row.end = self._host.engine.now


class Thread:
    """A host thread. What takes time is a process: `yield from` it."""

    def __init__(self, host: Host, number: int, seed: int, noise: float = 0.03) -> None:
        self.number = number
        self.loading_ns = 0
        """The next launch first loads code for so long."""
        self._host = host
        self._noise = Noise(f"{seed}/{host.recording.rank}/thread {number}", noise)
        self._pace = host_pace(seed)
        self._open: list[HostRow] = []

    def operator(
        self,
        name: str,
        shapes: tuple[Shape | tuple[Shape, ...], ...] = (),
        *,
        indices: tuple[int, ...] = (),
        dtype: str = "c10::BFloat16",
        sequence: int | None = None,
        made_on: int = 0,
        collective: Collective | None = None,
    ) -> _Opened:
        """Have a framework operator open."""
        row = HostRow("cpu_op", name, self.number, self._host.engine.now, external_id=next(self._host.external_ids))
        row.shapes, row.indices, row.dtype, row.collective = shapes, indices, dtype, collective
        row.sequence, row.made_on = sequence, made_on
        return self._opened(row)

    def annotation(self, name: str) -> _Opened:
        """Have a user's or the framework's annotation open."""
        external_id = next(self._host.external_ids)
        return self._opened(
            HostRow("user_annotation", name, self.number, self._host.engine.now, external_id=external_id)
        )

    def frame(self, name: str) -> _Opened:
        """Have a Python function open."""
        row = HostRow("python_function", name, self.number, self._host.engine.now)
        row.python_id = next(self._host.python_ids)
        row.python_parent = next((up.python_id for up in reversed(self._open) if up.python_id is not None), None)
        return self._opened(row)

    def busy(self, ns: int = OPERATOR_NS) -> tuple[int]:
        """Work for about `ns`: the delay, to be yielded at once."""
        return (self._noise.around(self._pace * ns),)

    def run(self, operator: Operator, sequence: int | None = None) -> Process:
        """Run an operator and what it calls."""
        shapes, indices, dtype = operator.shapes, operator.indices, operator.dtype
        with self.operator(operator.name, shapes, indices=indices, dtype=dtype, sequence=sequence):
            yield from self.busy()
            for called in operator.calls:
                yield from self._call(called)
            yield from self.busy()

    def _call(self, called: Operator | Work | Graph | Exchange) -> Process:
        if isinstance(called, Operator):
            yield from self.run(called)
        elif not isinstance(called, Exchange):
            yield from self.launch(called)
        elif self._host.exchange:
            yield from self._host.exchange(self, called)

    def launch(
        self,
        work: Work | Graph,
        stream: int = COMPUTE_STREAM,
        *,
        call: str = "",
        collective: Collective | None = None,
        awaited: bool = False,
    ) -> Process:
        """Send work to a stream; `call` is the runtime call's name where it is not the usual one. Maybe wait for it."""
        usual = _CALLS[work.kind] if isinstance(work, Work) else "cudaGraphLaunch"
        correlation = next(self._host.correlations)
        with self._runtime(call or usual, correlation) as row:
            yield from self._host.gpu.make_room(stream)
            if self.loading_ns:
                yield self.loading_ns
                self.loading_ns = 0
            annotations = tuple(up for up in self._open if up.kind == "user_annotation")
            launch = Launch(work, row, correlation, row.external_id, annotations, collective)
            self._host.gpu.launch(stream, launch)
            yield from self.busy(LAUNCH_CALL_NS)
            if awaited or self._host.blocking:
                yield self._host.gpu.record(stream)
                yield from self.busy(SYNC_RETURN_NS)

    def order(self, first: int, then: int) -> Process:
        """Let one stream wait for what another has been sent so far."""
        events: list[Event] = []
        yield from self.record(first, events)
        yield from self.hold(then, events[0])

    def hold(self, stream: int, event: Event) -> Process:
        """Let a stream wait for an event."""
        with self._runtime("cudaStreamWaitEvent") as row:
            row.stream, row.event = stream, event
            self._host.gpu.wait(stream, event.reached)
            yield from self.busy(EVENT_CALL_NS)

    def record(self, stream: int, events: list[Event]) -> Process:
        """Record an event behind what the stream has been sent so far, and add it to `events`."""
        correlation = next(self._host.correlations)
        with self._runtime("cudaEventRecord", correlation):
            events.append(Event(stream, correlation, self._host.gpu.record(stream)))
            yield from self.busy(EVENT_CALL_NS)

    def synchronize(self, stream: int | None = None) -> Process:
        """Wait for a stream, or for the whole GPU."""
        with self._runtime("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize") as row:
            row.stream = stream
            gpu = self._host.gpu
            yield from gpu.record_all() if stream is None else (gpu.record(stream),)
            yield from self.busy(SYNC_RETURN_NS)

    def await_event(self, event: Event) -> Process:
        """Wait for an event."""
        with self._runtime("cudaEventSynchronize"):
            yield event.reached
            yield from self.busy(SYNC_RETURN_NS)

    def reclaim(self) -> Process:
        """Ask the driver for memory in vain, wait for what was issued without any call, give memory back, ask again."""
        yield from self._ask_for_memory()
        yield self._host.gpu.record(COMPUTE_STREAM)
        yield from self.busy(SYNC_RETURN_NS)
        with self._runtime("cudaFree"):
            yield from self._host.gpu.record_all()
            yield from self.busy(MEMORY_CALL_NS)
        yield from self._ask_for_memory()

    def _ask_for_memory(self) -> Process:
        with self._runtime("cudaMalloc"):
            yield from self.busy(MEMORY_CALL_NS)

    def allocate(self, size_bytes: int) -> int:
        """Take GPU memory; return its address."""
        return self._host.memory.allocate(self.number, size_bytes)

    def release(self, address: int) -> None:
        """Give GPU memory back."""
        self._host.memory.release(self.number, address)

    def _runtime(self, name: str, correlation: int | None = None) -> _Opened:
        row = HostRow("cuda_runtime", name, self.number, self._host.engine.now)
        row.correlation = next(self._host.correlations) if correlation is None else correlation
        row.external_id = next((up.external_id for up in reversed(self._open) if up.kind == "cpu_op"), None)
        return self._opened(row)

    def _opened(self, row: HostRow) -> _Opened:
        return _Opened(self._host, self._open, row)
