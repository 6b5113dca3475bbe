"""The training loop of one rank, as DistributedDataParallel runs it."""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final

from tests.emulator.capture import captured
from tests.emulator.engine import Engine, Process, Signal
from tests.emulator.gpu import (
    APART_STREAM,
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    COPY_STREAM,
    GATHER_STREAM,
    SIDE_STREAM,
    Fabric,
    Gpu,
)
from tests.emulator.hardware import DEVICE, PYTHON_NS, THREAD_HANDOFF_NS, all_reduce_ns, one_way_ns
from tests.emulator.host import Host, Memory, Thread
from tests.emulator.job import DTYPE_BYTES, Job
from tests.emulator.model import (
    Exchange,
    Function,
    Module,
    Operator,
    Shape,
    Work,
    adamw,
    elementwise,
    functions,
    fused_adamw,
    linear,
    memcpy,
    memset,
    parameter_count,
    transformer,
)
from tests.emulator.recommender import recommender
from tests.emulator.records import FIRST_PROCESS, Collective, Event, Group, Recording
from tests.emulator.truth import Meter, StepTruth, Truth

FIRST_STEP: Final = 2
"""The profiler's usual schedule leaves out one step and warms up in another."""
_RESIDENT_TENSORS: Final = 4
"""Parameters, gradients and the optimizer's two moments stay in GPU memory."""
_TYPES: Final = {2: ("BFloat16", "bf16"), 4: ("Float", "f32")}
"""By the bytes of an element: its type, and how kernels call it."""
_CALLS: Final = {
    "allreduce": ("c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum_{}"),
    "_reduce_scatter_base": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ReduceScatter_Sum_{}"),
    "_allgather_base": ("c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather"),
}
"""By what a collective is called: its operator, its annotation, and its kernel."""
_EXCHANGED: Final = "all_to_allv"
_EXCHANGE: Final = Work("kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 0, 24)
_COUNT: Final = Work("kernel", "void at::native::kernelHistogram1D<float>", 30_000, 8)
_JOINED_BYTES: Final = (6_000_000, 2_000_000)
"""Copies that a layer waits for, by turns."""
_JOINED_KERNEL: Final = Work("kernel", "void at::native::triu_tril_kernel<float>", 160_000, 8)
_CAST_TENSORS: Final = 3
"""Of 16 bits an element, in what a cast from or to float32 reads and writes."""
_SLOW_PYTHON_NS: Final = 40_000
"""Host time of a module's Python code on a slow host."""
_HOT: Final = 1.15
"""How many times as long work of a GPU takes that is too hot."""
_METRICS: Final = 16
"""Numbers that the ranks average."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened on every rank, and the facts about it."""

    job: Job
    recordings: tuple[Recording, ...]
    truth: Truth


def simulate(job: Job, trainer_of_rank: "type[Trainer] | None" = None) -> Outcome:
    """Run the job; `trainer_of_rank`: what runs each rank, a `Trainer` where nothing is given."""
    engine, train = Engine(), trainer_of_rank or Trainer
    fabric = Fabric(engine, partial(train.transfer_ns, job))
    trainers = [train(job, rank, engine, fabric) for rank in range(job.ranks)]
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


@dataclass(frozen=True, slots=True)
class Saved:
    """What the forward pass leaves for the backward."""

    function: Function
    sequence: int
    activation: int
    again: tuple[Function, ...] = ()
    """What runs again in the backward pass, as nothing but its last output is left."""
    unit: int = 0
    """Block that it is of, from 1; 0: of none."""
    made_on: int = 1
    """Thread that ran the operator, as autograd numbers them."""


class Trainer:
    """One rank of the job."""

    def __init__(self, job: Job, rank: int, engine: Engine, fabric: Fabric) -> None:
        everyone = tuple(range(job.ranks))
        groups = Group("0", "default_pg", everyone), Group("1", "undefined", everyone)
        self.recording = Recording(rank, DEVICE, groups if job.experts or job.tables else groups[:1])
        self.meter = Meter(engine, rank)
        self.steps: list[StepTruth] = []
        self._job = job
        self._rank = rank
        self._engine = engine
        self._python_ns = _SLOW_PYTHON_NS if rank == job.slow_host else job.python_ns
        of_rank = replace(job, products="fp32") if rank == job.single_rank else job
        build = recommender if job.tables else transformer
        self._models = [
            captured(build(replace(of_rank, sequence=_sequence(job, rank, step))), job.captured)
            for step in range(job.steps)
        ]
        self._model = self._models[0]
        self._parameters = parameter_count(self._model)
        self._own_parameters = parameter_count(self._model, own=True)
        self._shapes = [shape for function in functions(self._model) for shape in function.parameters]
        self._gpu = gpu = Gpu(engine, fabric, self.recording, self.meter, job)
        resident = _RESIDENT_TENSORS * (self._parameters + self._own_parameters) * DTYPE_BYTES
        memory = Memory(engine, self.recording, resident)
        host = Host(engine, gpu, memory, self.recording)
        host.exchange = self._exchange
        host.blocking = job.blocking
        self._main = Thread(host, FIRST_PROCESS + rank, job.seed)
        self._autograd = Thread(host, FIRST_PROCESS + job.ranks + rank, job.seed)
        self._sequences = host.sequences
        self._collectives = 0
        self._exchanges = 0
        self._ready = 0
        """Elements of gradients that wait for their bucket."""
        self._missing = 0
        """Elements of gradients that are to come in this backward pass."""
        self._gradient = 0
        """Address of the gradient that the next node of the backward pass takes."""
        self._loading_ns = 0
        self._unit = 0
        """Block that runs, from 1; 0: none."""
        self._to_gather: list[int] = []
        """Elements of the parameters of blocks that are to be gathered in this step."""
        self._gathered: list[Event] = []

    @staticmethod
    def transfer_ns(_job: Job, collective: Collective) -> float:
        """Return how long a collective of a job transfers once all of its ranks are there."""
        reduces = all_reduce_ns if collective.name == "allreduce" else one_way_ns
        return reduces(collective.elements * collective.element_bytes, len(collective.ranks))

    def train(self) -> Process:
        """Run the steps."""
        with self._main.frame("train.py(1): <module>"):
            for step in range(FIRST_STEP, FIRST_STEP + self._job.steps):
                self.meter.enter(step)
                self._model = self._models[step - FIRST_STEP]
                if self._rank in self._job.hot and 2 * (step - FIRST_STEP) >= self._job.steps:
                    self._gpu.pace = _HOT
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
        yield from self._load()
        job = self._job
        ahead_bytes = job.prefetch_bytes or job.pageable_bytes or job.ahead_bytes
        batch_bytes = ahead_bytes or job.batch_bytes or 8 * job.tokens
        batch = self._main.allocate(batch_bytes)
        if self._job.ahead_bytes:
            yield from self._main.order(COPY_STREAM, COMPUTE_STREAM)
        if self._job.prefetch_bytes or self._job.ahead_bytes:
            with self._main.operator("aten::copy_"):
                yield from self._main.launch(memcpy("HtoD (Pinned -> Device)", batch_bytes), COPY_STREAM)
        elif not self._job.pageable_bytes:
            yield from self._main.run(_copy_in(self._job, batch_bytes))
        with self._main.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
            yield from self._main.busy(PYTHON_NS)
            count = self._parameters + self._own_parameters
            clear = memset(count * DTYPE_BYTES // (self._job.ranks if self._job.zero > 1 else 1))
            yield from self._main.run(Operator("aten::zero_", ((count,),), (clear,)))
        if self._job.prefetch_bytes:
            yield from self._main.order(COPY_STREAM, COMPUTE_STREAM)
        if self._job.pageable_bytes:
            with self._main.operator("aten::copy_"):
                yield from self._main.launch(memcpy("HtoD (Pageable -> Device)", batch_bytes), awaited=True)
                yield from self._main.synchronize(COMPUTE_STREAM)
        tape: list[Saved] = []
        with self._main.frame("nn.Module: DistributedDataParallel_0"):
            yield from self._main.busy(PYTHON_NS)
            with self._main.annotation("DistributedDataParallel.forward"):
                self._loading_ns = self._job.loading_ns if step == FIRST_STEP + 1 else 0
                yield from self._unshard_all()
                yield from self._forward(self._model, tape, Counter())
        if self._job.validates and (step - FIRST_STEP) % 2:
            for saved in tape:
                self._main.release(saved.activation)
        else:
            yield from self._learn(step, tape)
        for _ in range(self._job.averaged):
            over: list[Event] = []
            yield from self._all_reduce(self._main, step, _METRICS, over)
            yield from self._main.hold(COMPUTE_STREAM, over[0])
        yield from self._read_number()
        self._main.release(batch)

    def _learn(self, step: int, tape: list[Saved]) -> Process:
        if self._job.offloaded_bytes:
            yield from self._offload()
        if self._job.scarce_memory:
            with self._main.operator("aten::empty"):
                yield from self._main.reclaim()
        if self._job.emptied:
            yield from self._main.reclaim()
        finished = Signal()
        self._engine.start(self._backward(step, tape, finished), THREAD_HANDOFF_NS)
        yield finished
        yield THREAD_HANDOFF_NS
        with self._main.annotation("Optimizer.step#AdamW.step"):
            yield from self._main.busy(PYTHON_NS)
            yield from self._update()
            yield from self._gather_updated(step)

    def _offload(self) -> Process:
        stream = COPY_STREAM if self._job.offloads_apart else COMPUTE_STREAM
        if self._job.offloads_apart:
            yield from self._main.order(COMPUTE_STREAM, COPY_STREAM)
        with self._main.operator("aten::copy_"):
            yield from self._main.launch(memcpy("DtoH (Device -> Pinned)", self._job.offloaded_bytes), stream)

    def _load(self) -> Process:
        if self._job.silence_ns:
            yield self._job.silence_ns
        if self._job.by_turns_ns and len(self.steps) % self._job.ranks == self._rank:
            yield self._job.by_turns_ns
        if self._job.loader_ns:
            with (
                self._main.frame("torch/utils/data/dataloader.py(725): __next__"),
                self._main.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
            ):
                yield self._job.loader_ns

    def _update(self) -> Process:
        among = self._job.ranks if self._job.zero else 1
        if not self._job.unfused_optimizer:
            count = self._parameters // among + self._own_parameters
            yield from self._main.run(Operator("aten::_fused_adamw_", (), (fused_adamw(count),)))
            return
        for shape in self._shapes[self._rank % among :: among]:
            for operator in adamw(shape):
                yield from self._main.run(operator)

    def _gather_updated(self, step: int) -> Process:
        """Give all ranks the parameters that each has updated, in as large parts as gradients are reduced."""
        ready, gathered = 0, list[Event]()
        for number, shape in enumerate(self._shapes if self._job.zero in (1, 2) else ()):
            ready += prod(shape)
            if ready * DTYPE_BYTES >= self._job.bucket_bytes or number == len(self._shapes) - 1:
                yield from self._all_reduce(self._main, step, ready, gathered, "_allgather_base")
                ready = 0
        for event in gathered:
            yield from self._main.hold(COMPUTE_STREAM, event)

    def _unshard_all(self) -> Process:
        """Gather the parameters outside of blocks, for which what comes next waits, and begin with the first block."""
        if self._job.zero <= 2:
            return
        blocks = [
            parameter_count(part) for part in self._model.parts if isinstance(part, Module) if part.kind == "Block"
        ]
        self._to_gather = blocks if self._job.kept_whole else [*blocks, *reversed(blocks)]
        self._gathered = []
        yield from self._gather(self._main, self._parameters - sum(blocks))
        if not self._job.gathered_late:
            yield from self._gather(self._main, self._to_gather.pop(0))
        yield from self._main.hold(COMPUTE_STREAM, self._gathered.pop(0))

    def _unshard(self, thread: Thread) -> Process:
        """Gather the parameters of the next block while this one computes; wait for those of this one."""
        if self._to_gather and self._job.gathered_late:
            yield from self._gather(thread, self._to_gather.pop(0))
        if self._gathered:
            yield from thread.hold(COMPUTE_STREAM, self._gathered.pop(0))
        if self._to_gather and not self._job.gathered_late:
            yield from self._gather(thread, self._to_gather.pop(0))

    def _gather(self, thread: Thread, elements: int) -> Process:
        with thread.annotation("FSDP::all_gather"):
            yield from self._all_reduce(thread, 0, elements, self._gathered, "_allgather_base", GATHER_STREAM)

    def _forward(self, module: Module, tape: list[Saved], numbers: Counter[str]) -> Process:
        name = f"nn.Module: {module.kind}_{numbers[module.kind]}"
        numbers[module.kind] += 1
        yield from self._main.busy(self._python_ns)
        with self._main.frame(name):
            yield from self._main.busy(self._python_ns)
            if module.kind == "Block":
                self._main.loading_ns = self._loading_ns
                self._unit = numbers[module.kind]
                if self._job.zero > 2:
                    yield from self._unshard(self._main)
            attends = tuple(part for part in module.parts if isinstance(part, Function))
            for part in module.parts:
                if isinstance(part, Module):
                    if self._job.joined and part.kind == "Block":
                        yield from self._join_streams(_JOINED_BYTES[numbers["Block"] % len(_JOINED_BYTES)])
                    if self._job.reads and part.kind == "Block":
                        yield from self._read_number()
                    if self._job.recompute == "full" and part.kind == "Block":
                        yield from self._checkpoint(functions(part), tape)
                    else:
                        yield from self._forward(part, tape, numbers)
                elif self._job.recompute == "selective" and module.kind == "Attention":
                    if part is attends[0]:
                        yield from self._checkpoint(attends, tape)
                else:
                    yield from self._apply(self._main, part, tape)
            yield from self._main.busy(self._python_ns)
            self._unit = 0 if module.kind == "Block" else self._unit

    def _join_streams(self, copied_bytes: int) -> Process:
        with self._main.operator("aten::copy_"):
            yield from self._main.launch(memcpy("HtoD (Pinned -> Device)", copied_bytes), COPY_STREAM)
        with self._main.operator("aten::triu"):
            yield from self._main.launch(_JOINED_KERNEL, SIDE_STREAM)
        for stream in (COPY_STREAM, SIDE_STREAM):
            yield from self._main.order(stream, COMPUTE_STREAM)

    def _checkpoint(self, again: tuple[Function, ...], tape: list[Saved]) -> Process:
        sequence = next(self._sequences)
        inside: list[Saved] = []
        with self._main.operator("CheckpointFunction", sequence=sequence):
            yield from self._main.busy()
            for function in again:
                yield from self._apply(self._main, function, inside, differentiable=False)
        for saved in inside[:-1]:
            self._main.release(saved.activation)
        tape.append(Saved(again[-1], sequence, inside[-1].activation, again, self._unit))

    def _apply(self, thread: Thread, function: Function, tape: list[Saved], *, differentiable: bool = True) -> Process:
        sequence = next(self._sequences)
        forward = function.forward
        with ExitStack() as wrappers:
            for name in function.wrappers:
                wrappers.enter_context(thread.operator(name, forward.shapes, indices=forward.indices))
                yield from thread.busy()
            activation = thread.allocate(function.output_bytes)
            yield from thread.run(forward, sequence if differentiable else None)
        if self._job.apart:
            with thread.operator("aten::histc"):
                yield from thread.launch(_COUNT, APART_STREAM)
        if self._job.looks_for_nan and function.parameters and thread is self._main:
            yield from self._look_for_nan((self._job.tokens, function.output_bytes // DTYPE_BYTES // self._job.tokens))
        made_on = 1 if thread is self._main else 2
        tape.append(Saved(function, sequence, activation, unit=self._unit, made_on=made_on))

    def _look_for_nan(self, shape: Shape) -> Process:
        compare, reduce = elementwise("CompareEqFunctor", prod(shape), 3), elementwise("ReduceOp<bool>", prod(shape), 1)
        yield from self._main.run(
            Operator("aten::isnan", (shape,), (Operator("aten::ne", (shape, shape), (compare,)),))
        )
        yield from self._main.run(Operator("aten::any", (shape,), (reduce,)))
        with self._main.operator("aten::is_nonzero", ((),)):
            yield from self._read_number()

    def _backward(self, step: int, tape: list[Saved], finished: Signal) -> Process:
        thread = self._autograd
        reduced: list[Event] = []
        self._ready, self._missing = 0, self._parameters
        self._gradient = thread.allocate(functions(self._model)[-1].output_bytes)
        unit = 0
        for saved in reversed(tape):
            if self._job.zero > 2 and saved.unit not in (0, unit):
                yield from self._unshard(thread)
            unit = saved.unit
            if saved.again:
                again = self._run_again(step, saved, reduced)
                yield from self._node("CheckpointFunctionBackward", saved, (again,))
            else:
                yield from self._propagate(step, saved, reduced)
        thread.release(self._gradient)
        for event in reduced:
            with thread.operator("record_param_comms", collective=Collective("wait", ())):
                yield from thread.busy()
                yield from thread.hold(COMPUTE_STREAM, event)
        self._engine.fire(finished)

    def _run_again(self, step: int, saved: Saved, reduced: list[Event]) -> Process:
        tape: list[Saved] = []
        for function in saved.again:
            yield from self._apply(self._autograd, function, tape)
        for inner in reversed(tape):
            yield from self._propagate(step, inner, reduced)
        self._autograd.release(saved.activation)

    def _propagate(self, step: int, saved: Saved, reduced: list[Event]) -> Process:
        thread = self._autograd
        made = thread.allocate(saved.function.gradient_bytes)
        yield from self._differentiate(saved)
        thread.release(saved.activation)
        thread.release(self._gradient)
        self._gradient = made
        for shape in saved.function.parameters:
            self._ready, self._missing = self._ready + prod(shape), self._missing - prod(shape)
            with thread.operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                yield from thread.busy()
                yield from thread.run(Operator("torch::autograd::AccumulateGrad", (shape,)))
                yield from thread.run(_average(shape))
                if self._ready * self._job.reduced_bytes >= self._job.bucket_bytes or not self._missing:
                    yield from self._reduce_bucket(thread, step, reduced)

    def _differentiate(self, saved: Saved) -> Process:
        yield from self._node(saved.function.node, saved, map(self._autograd.run, saved.function.backward))

    def _node(self, node: str, saved: Saved, calls: Iterable[Process]) -> Process:
        """Run what a node of the autograd graph calls."""
        thread, number, made_on = self._autograd, saved.sequence, saved.made_on
        with thread.operator(f"autograd::engine::evaluate_function: {node}", sequence=number, made_on=made_on):
            yield from thread.busy()
            with thread.operator(node, sequence=number, made_on=made_on):
                yield from thread.busy()
                for call in calls:
                    yield from call
                yield from thread.busy()

    def _average_metrics(self, step: int) -> Process:
        yield from self._all_reduce(self._main, step, _METRICS, [])

    def _reduce_bucket(self, thread: Thread, step: int, reduced: list[Event]) -> Process:
        elements, self._ready = self._ready, 0
        if not self._job.compressed:
            name = "_reduce_scatter_base" if self._job.zero else "allreduce"
            yield from self._all_reduce(thread, step, elements, reduced, name)
            if self._job.awaited:
                yield from thread.hold(COMPUTE_STREAM, reduced[-1])
            return
        cast = Operator("aten::_to_copy", ((elements,),), (elementwise("cast", elements, _CAST_TENSORS),))
        yield from thread.run(cast)
        over: list[Event] = []
        yield from self._all_reduce(thread, step, elements, over)
        yield from thread.hold(SIDE_STREAM, over[0])
        with thread.operator("aten::copy_", ((elements,),)):
            yield from thread.launch(elementwise("cast", elements, _CAST_TENSORS), SIDE_STREAM)
        yield from thread.record(SIDE_STREAM, reduced)

    def _all_reduce(
        self,
        thread: Thread,
        step: int,
        elements: int,
        reduced: list[Event],
        name: str = "allreduce",
        stream: int = COMMUNICATION_STREAM,
    ) -> Process:
        ranks = tuple(range(self._job.ranks))
        self._collectives += 1
        size = self._element_bytes(name)
        dtype, short = _TYPES[size]
        operator, annotation, kernel = _CALLS[name]
        work = Work("kernel", f"ncclDevKernel_{kernel.format(short)}_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 24)
        collective = Collective(name, ranks, elements, self._collectives, step, dtype=dtype, element_bytes=size)
        with thread.operator(operator, (((elements,),), (), (), (), (), ())):
            yield from thread.busy()
            with thread.operator("record_param_comms", ((elements,),), collective=collective):
                yield from thread.busy()
                yield from thread.order(COMPUTE_STREAM, stream)
                with thread.annotation(annotation):
                    yield from thread.busy()
                    yield from thread.launch(work, stream, call="cudaLaunchKernelExC", collective=collective)
                yield from thread.record(stream, reduced)
            yield from thread.busy()

    def _element_bytes(self, _name: str) -> int:
        """Return the size of an element in a collective, by what that is called, bytes."""
        return DTYPE_BYTES if self._job.compressed else self._job.reduced_bytes

    def _exchange(self, thread: Thread, exchange: Exchange) -> Process:
        self._exchanges += 1
        shape, ranks = (exchange.rows, exchange.width), tuple(range(self._job.ranks))
        collective = Collective(_EXCHANGED, ranks, prod(shape), self._exchanges, group="1", description="undefined")
        with thread.operator("record_param_comms", (shape,), collective=collective):
            yield from thread.order(COMPUTE_STREAM, COMMUNICATION_STREAM)
            with thread.annotation("nccl:all_to_all"):
                yield from thread.launch(
                    _EXCHANGE, COMMUNICATION_STREAM, call="cudaLaunchKernelExC", collective=collective
                )
            over: list[Event] = []
            yield from thread.record(COMMUNICATION_STREAM, over)
            if self._job.paired:
                yield from thread.run(_other_micro_batch(self._job))
            yield from thread.hold(COMPUTE_STREAM, over[0])

    def _read_number(self) -> Process:
        with self._main.operator("aten::item", ((),)):
            yield from self._main.busy()
            with self._main.operator("aten::_local_scalar_dense", ((),)):
                yield from self._main.launch(memcpy("DtoH (Device -> Pageable)", DTYPE_BYTES))
                yield from self._main.synchronize(COMPUTE_STREAM)
            yield from self._main.busy()


def _sequence(job: Job, rank: int, step: int) -> int:
    """Return how many tokens the sequences of a rank have in a step, counted from 0."""
    return job.lengths[(rank + step) % len(job.lengths)] if job.lengths else job.sequence + step * job.longer


def _other_micro_batch(job: Job) -> Operator:
    return linear(job, job.hidden, job.hidden).forward


def _copy_in(job: Job, batch_bytes: int) -> Operator:
    shapes = ((job.batch, job.sequence),)
    copy = Operator("aten::copy_", shapes * 2, (memcpy("HtoD (Pinned -> Device)", batch_bytes),), indices=(0, 1))
    return Operator("aten::to", shapes, (Operator("aten::_to_copy", shapes, (copy,), indices=(0,)),), indices=(0,))


def _average(shape: Shape) -> Operator:
    scale = Operator("aten::mul", (shape, ()), (elementwise("MulFunctor", prod(shape), 2),))
    return Operator("torch::distributed::reducer::mul_out", (shape, (), shape), (scale,))
