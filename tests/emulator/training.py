"""The training loop of one rank, as DistributedDataParallel runs it."""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Final

from tests.emulator.capture import captured
from tests.emulator.engine import Engine, Process, Signal
from tests.emulator.gpu import (
    APART_STREAM,
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    COPY_STREAM,
    SIDE_STREAM,
    Fabric,
    Gpu,
)
from tests.emulator.hardware import DEVICE, PYTHON_NS, THREAD_HANDOFF_NS, all_reduce_ns
from tests.emulator.host import Host, Memory, Thread
from tests.emulator.job import DTYPE_BYTES, Job
from tests.emulator.model import (
    Function,
    Module,
    Operator,
    Shape,
    Work,
    elementwise,
    fused_adamw,
    memcpy,
    memset,
    parameter_count,
    transformer,
)
from tests.emulator.records import FIRST_PROCESS, Collective, Event, Group, Recording
from tests.emulator.truth import Meter, StepTruth, Truth

FIRST_STEP: Final = 2
"""The profiler's usual schedule leaves out one step and warms up in another."""
_RESIDENT_TENSORS: Final = 4
"""Parameters, gradients and the optimizer's two moments stay in GPU memory."""
_ALL_REDUCE: Final = Work("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 24)
_COUNT: Final = Work("kernel", "void at::native::kernelHistogram1D<float>", 30_000, 8)
_JOINED_BYTES: Final = (6_000_000, 2_000_000)
"""Copies that a layer waits for, by turns."""
_JOINED_KERNEL: Final = Work("kernel", "void at::native::triu_tril_kernel<float>", 160_000, 8)
_METRICS: Final = 16
"""Numbers that the ranks average."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened on every rank, and the facts about it."""

    job: Job
    recordings: tuple[Recording, ...]
    truth: Truth


def simulate(job: Job) -> Outcome:
    """Run the job."""
    engine = Engine()
    fabric = Fabric(engine, _transfer_ns)
    trainers = [_Trainer(job, rank, engine, fabric) for rank in range(job.ranks)]
    for trainer in trainers:
        engine.start(trainer.train())
    engine.run()
    return Outcome(
        job=job,
        recordings=tuple(trainer.recording for trainer in trainers),
        truth=Truth(
            steps=tuple(step for trainer in trainers for step in trainer.steps),
            collectives=tuple(fabric.truth),
            gpus=tuple(trainer.meter.gpu_truth() for trainer in trainers),
        ),
    )


def _transfer_ns(collective: Collective) -> float:
    return all_reduce_ns(collective.elements * DTYPE_BYTES, len(collective.ranks))


@dataclass(frozen=True, slots=True)
class _Saved:
    """What the forward pass leaves for the backward."""

    function: Function
    sequence: int
    activation: int


class _Trainer:
    def __init__(self, job: Job, rank: int, engine: Engine, fabric: Fabric) -> None:
        self.recording = Recording(rank, DEVICE, (Group("0", "default_pg", tuple(range(job.ranks))),))
        self.meter = Meter(engine, rank)
        self.steps: list[StepTruth] = []
        self._job = job
        self._rank = rank
        self._engine = engine
        self._model = captured(transformer(job), job.captured)
        self._parameters = parameter_count(self._model)
        gpu = Gpu(engine, fabric, self.recording, self.meter, job)
        memory = Memory(engine, self.recording, _RESIDENT_TENSORS * self._parameters * DTYPE_BYTES)
        host = Host(engine, gpu, memory, self.recording)
        self._main = Thread(host, FIRST_PROCESS + rank, job.seed)
        self._autograd = Thread(host, FIRST_PROCESS + job.ranks + rank, job.seed)
        self._sequences = host.sequences
        self._collectives = 0
        self._loading_ns = 0

    def train(self) -> Process:
        with self._main.frame("train.py(1): <module>"):
            for step in range(FIRST_STEP, FIRST_STEP + self._job.steps):
                self.meter.enter(step)
                with self._main.annotation(f"ProfilerStep#{step}"):
                    yield from self._main.busy(PYTHON_NS)
                    if self._is_late and step > FIRST_STEP:
                        yield from self._average_metrics(step - 1)
                    with self._main.frame("train.py(20): train_step"):
                        yield from self._step(step)
                    if self._job.late_metrics_rank is not None and not self._is_late:
                        yield from self._average_metrics(step)
                    yield from self._main.busy(PYTHON_NS)
                self.meter.enter(None)
                self.steps.append(self.meter.step_truth(step, self._sleep_ns))
                yield from self._main.busy(PYTHON_NS)
            if self._is_late:
                yield from self._average_metrics(step)
            yield from self._main.synchronize()

    @property
    def _is_late(self) -> bool:
        return self._rank == self._job.late_metrics_rank

    @property
    def _sleep_ns(self) -> int:
        return self._job.sleep_ns if self._rank == self._job.sleep_rank else 0

    def _step(self, step: int) -> Process:
        yield from self._main.busy(PYTHON_NS)
        if self._sleep_ns:
            with self._main.frame("<built-in function sleep>"):
                yield self._sleep_ns
        if self._job.silence_ns:
            yield self._job.silence_ns
        if self._job.loader_ns:
            with (
                self._main.frame("torch/utils/data/dataloader.py(725): __next__"),
                self._main.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
            ):
                yield self._job.loader_ns
        batch_bytes = self._job.prefetch_bytes or 8 * self._job.tokens
        batch = self._main.allocate(batch_bytes)
        if self._job.prefetch_bytes:
            with self._main.operator("aten::copy_"):
                yield from self._main.launch(memcpy("HtoD (Pinned -> Device)", batch_bytes), COPY_STREAM)
        else:
            yield from self._main.run(_copy_in(self._job, batch_bytes))
        with self._main.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
            yield from self._main.busy(PYTHON_NS)
            clear = memset(self._parameters * DTYPE_BYTES)
            yield from self._main.run(Operator("aten::zero_", ((self._parameters,),), (clear,)))
        if self._job.prefetch_bytes:
            yield from self._main.order(COPY_STREAM, COMPUTE_STREAM)
        tape: list[_Saved] = []
        with self._main.frame("nn.Module: DistributedDataParallel_0"):
            yield from self._main.busy(PYTHON_NS)
            with self._main.annotation("DistributedDataParallel.forward"):
                self._loading_ns = self._job.loading_ns if step == FIRST_STEP + 1 else 0
                yield from self._forward(self._model, tape, Counter())
        if self._job.scarce_memory:
            with self._main.operator("aten::empty"):
                yield from self._main.reclaim()
        finished = Signal()
        self._engine.start(self._backward(step, tape, finished), THREAD_HANDOFF_NS)
        yield finished
        yield THREAD_HANDOFF_NS
        with self._main.annotation("Optimizer.step#AdamW.step"):
            yield from self._main.busy(PYTHON_NS)
            yield from self._main.run(Operator("aten::_fused_adamw_", (), (fused_adamw(self._parameters),)))
        yield from self._read_number()
        self._main.release(batch)

    def _forward(self, module: Module, tape: list[_Saved], numbers: Counter[str]) -> Process:
        name = f"nn.Module: {module.kind}_{numbers[module.kind]}"
        numbers[module.kind] += 1
        yield from self._main.busy(self._job.python_ns)
        with self._main.frame(name):
            yield from self._main.busy(self._job.python_ns)
            if module.kind == "Block":
                self._main.loading_ns = self._loading_ns
            for part in module.parts:
                if isinstance(part, Module):
                    if self._job.joined and part.kind == "Block":
                        yield from self._join_streams(_JOINED_BYTES[numbers["Block"] % len(_JOINED_BYTES)])
                    if self._job.reads and part.kind == "Block":
                        yield from self._read_number()
                    yield from self._forward(part, tape, numbers)
                else:
                    yield from self._apply(part, tape)
            yield from self._main.busy(self._job.python_ns)

    def _join_streams(self, copied_bytes: int) -> Process:
        with self._main.operator("aten::copy_"):
            yield from self._main.launch(memcpy("HtoD (Pinned -> Device)", copied_bytes), COPY_STREAM)
        with self._main.operator("aten::triu"):
            yield from self._main.launch(_JOINED_KERNEL, SIDE_STREAM)
        for stream in (COPY_STREAM, SIDE_STREAM):
            yield from self._main.order(stream, COMPUTE_STREAM)

    def _apply(self, function: Function, tape: list[_Saved]) -> Process:
        sequence = next(self._sequences)
        forward = function.forward
        with ExitStack() as wrappers:
            for name in function.wrappers:
                wrappers.enter_context(self._main.operator(name, forward.shapes, indices=forward.indices))
                yield from self._main.busy()
            activation = self._main.allocate(function.output_bytes)
            yield from self._main.run(forward, sequence)
        if self._job.apart:
            with self._main.operator("aten::histc"):
                yield from self._main.launch(_COUNT, APART_STREAM)
        tape.append(_Saved(function, sequence, activation))

    def _backward(self, step: int, tape: list[_Saved], finished: Signal) -> Process:
        thread = self._autograd
        reduced: list[Event] = []
        ready, missing = 0, self._parameters
        gradient = thread.allocate(tape[-1].function.output_bytes)
        for saved in reversed(tape):
            made = thread.allocate(saved.function.gradient_bytes)
            yield from self._differentiate(saved)
            thread.release(saved.activation)
            thread.release(gradient)
            gradient = made
            for shape in saved.function.parameters:
                ready, missing = ready + prod(shape), missing - prod(shape)
                with thread.operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    yield from thread.busy()
                    yield from thread.run(Operator("torch::autograd::AccumulateGrad", (shape,)))
                    yield from thread.run(_average(shape))
                    if ready * DTYPE_BYTES >= self._job.bucket_bytes or not missing:
                        yield from self._all_reduce(thread, step, ready, reduced)
                        ready = 0
        thread.release(gradient)
        for event in reduced:
            with thread.operator("record_param_comms", collective=Collective("wait", ())):
                yield from thread.busy()
                yield from thread.hold(COMPUTE_STREAM, event)
        self._engine.fire(finished)

    def _differentiate(self, saved: _Saved) -> Process:
        thread, node = self._autograd, saved.function.node
        evaluate = f"autograd::engine::evaluate_function: {node}"
        with thread.operator(evaluate, sequence=saved.sequence, backward=True):
            yield from thread.busy()
            with thread.operator(node, sequence=saved.sequence, backward=True):
                yield from thread.busy()
                for operator in saved.function.backward:
                    yield from thread.run(operator)
                yield from thread.busy()

    def _average_metrics(self, step: int) -> Process:
        yield from self._all_reduce(self._main, step, _METRICS, [])

    def _all_reduce(self, thread: Thread, step: int, elements: int, reduced: list[Event]) -> Process:
        ranks = tuple(range(self._job.ranks))
        self._collectives += 1
        collective = Collective("allreduce", ranks, elements, self._collectives, step)
        with thread.operator("c10d::allreduce_", (((elements,),), (), (), (), (), ())):
            yield from thread.busy()
            with thread.operator("record_param_comms", ((elements,),), collective=collective):
                yield from thread.busy()
                yield from thread.order(COMPUTE_STREAM, COMMUNICATION_STREAM)
                with thread.annotation("nccl:all_reduce"):
                    yield from thread.busy()
                    yield from thread.launch(
                        _ALL_REDUCE, COMMUNICATION_STREAM, call="cudaLaunchKernelExC", collective=collective
                    )
                yield from thread.record(COMMUNICATION_STREAM, reduced)
            yield from thread.busy()

    def _read_number(self) -> Process:
        with self._main.operator("aten::item", ((),)):
            yield from self._main.busy()
            with self._main.operator("aten::_local_scalar_dense", ((),)):
                yield from self._main.launch(memcpy("DtoH (Device -> Pageable)", DTYPE_BYTES))
                yield from self._main.synchronize(COMPUTE_STREAM)
            yield from self._main.busy()


def _copy_in(job: Job, batch_bytes: int) -> Operator:
    shapes = ((job.batch, job.sequence),)
    copy = Operator("aten::copy_", shapes * 2, (memcpy("HtoD (Pinned -> Device)", batch_bytes),), indices=(0, 1))
    return Operator("aten::to", shapes, (Operator("aten::_to_copy", shapes, (copy,), indices=(0,)),), indices=(0,))


def _average(shape: Shape) -> Operator:
    scale = Operator("aten::mul", (shape, ()), (elementwise("MulFunctor", prod(shape), 2),))
    return Operator("torch::distributed::reducer::mul_out", (shape, (), shape), (scale,))
