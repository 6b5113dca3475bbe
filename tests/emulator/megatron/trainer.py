"""The training loop of one rank: 1F1B, and everything that is done once a step."""

from collections import Counter, defaultdict
from dataclasses import replace
from math import prod
from random import Random
from typing import Final

from tests.emulator.engine import Engine, Process, Signal
from tests.emulator.gpu import COMPUTE_STREAM, Fabric, Gpu
from tests.emulator.hardware import PYTHON_NS, THREAD_HANDOFF_NS
from tests.emulator.host import Host, Memory, Thread
from tests.emulator.megatron.costs import DEVICE, MULTIPROCESSORS, memory_ns
from tests.emulator.megatron.job import Megatron
from tests.emulator.megatron.parts import (
    Call,
    Function,
    Part,
    Reduce,
    Wait,
    accumulate,
    optimizer,
    parameters,
    payload,
    stage,
)
from tests.emulator.megatron.schedule import Exchange, one_forward_one_backward
from tests.emulator.model import Work, memcpy
from tests.emulator.processors import Processors
from tests.emulator.records import FIRST_PROCESS, Collective, Event, Recording
from tests.emulator.truth import Meter, StepTruth

FIRST_STEP: Final = 2
_STREAMS: Final = {
    "tp": 20,
    "cp": 24,
    "dp": 36,
    "model": 40,
    "send next": 44,
    "receive next": 48,
    "send previous": 52,
    "receive previous": 56,
}
_REDUCES: Final = {
    "allreduce": ("c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum"),
    "_reduce_scatter_base": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ReduceScatter_Sum"),
    "_allgather_base": ("c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather"),
}
"""By what a collective is called: its operator, its annotation, and its kernel."""
_SEND: Final = Work("kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 0, 2)
_BLOCKS: Final = 16
"""Multiprocessors that an all-reduce takes."""


class Trainer:
    """One rank."""

    def __init__(self, job: Megatron, rank: int, engine: Engine, fabric: Fabric) -> None:
        self._job = job
        self._rank = rank
        self._engine = engine
        self._groups = job.groups(rank)
        self.recording = Recording(rank, DEVICE, tuple(self._groups.values()))
        self.meter = Meter(engine, rank)
        self.steps: list[StepTruth] = []
        self._stage = job.place(rank)[2]
        self._functions = stage(job, self._stage)
        self._parameters = parameters(self._functions)
        gpu = Gpu(engine, fabric, self.recording, self.meter, job, Processors(engine, MULTIPROCESSORS))
        host = Host(engine, gpu, Memory(engine, self.recording, 0), self.recording)
        self._main = Thread(host, FIRST_PROCESS + rank, job.seed, job.host_noise)
        self._autograd = Thread(host, FIRST_PROCESS + job.ranks + rank, job.seed, job.host_noise)
        self._sequences = host.sequences
        self._numbers: Counter[object] = Counter()
        self._pending: dict[str, list[Event]] = defaultdict(list)
        speed = Random(f"{job.seed}/{rank}/speed").uniform(-1, 1)  # noqa: S311 - noise, not a secret
        self._slower = (1 + job.speed_noise * speed) * (job.slower[rank] if job.slower else 1)
        self._step = FIRST_STEP

    def train(self) -> Process:
        """Run all steps."""
        for step in range(FIRST_STEP, FIRST_STEP + self._job.steps):
            self._step = step
            self.meter.enter(step)
            with self._main.annotation(f"ProfilerStep#{step}"):
                yield from self._main.busy(PYTHON_NS)
                yield from self._train_step()
                # The log's timers wait for the GPU.
                yield from self._main.synchronize()
                yield from self._main.busy(PYTHON_NS)
            self.meter.enter(None)
            self.steps.append(self.meter.step_truth(step, 0))
            yield from self._main.busy(PYTHON_NS)

    def _train_step(self) -> Process:
        main, elements = self._main, sum(map(prod, self._parameters))
        yield from main.busy(PYTHON_NS)
        clear = Work("gpu_memset", "Memset (Device)", memory_ns(4 * elements), moved_bytes=4 * elements)
        yield from self._run(main, Call("aten::zero_", ((elements,),), (clear,)))
        tapes: dict[int, list[tuple[Function, int]]] = {}
        for action in one_forward_one_backward(self._stage, self._job.pp, self._job.micro_batches):
            if isinstance(action, Exchange):
                yield from self._exchange(action)
            elif action.backward:
                finished = Signal()
                tape = tapes.pop(action.micro_batch)
                last = action.micro_batch == self._job.micro_batches - 1
                self._engine.start(self._backward(tape, finished, last=last), THREAD_HANDOFF_NS)
                yield finished
                yield THREAD_HANDOFF_NS
            else:
                tapes[action.micro_batch] = []
                yield from self._forward(tapes[action.micro_batch])
        yield from self._await(main, "dp")
        yield from self._update()

    def _forward(self, tape: list[tuple[Function, int]]) -> Process:
        """Run a forward pass and leave on the tape what the backward needs."""
        main, job = self._main, self._job
        yield from main.busy(PYTHON_NS)
        if self._stage in (0, job.pp - 1):
            ids = (job.micro_batch, job.rank_sequence)
            copy = memcpy("HtoD (Pinned -> Device)", 8 * job.tokens)
            yield from self._run(
                main, Call("aten::to", (ids,), (Call("aten::copy_", (ids, ids), (copy,), (0, 1)),), (0,))
            )
        for function in self._functions:
            sequence = next(self._sequences)
            yield from self._run(main, function.forward, sequence)
            tape.append((function, sequence))

    def _backward(self, tape: list[tuple[Function, int]], finished: Signal, *, last: bool) -> Process:
        thread = self._autograd
        ready = 0
        left = sum(prod(shape) for function, _ in tape for shape in function.parameters)
        for function, sequence in reversed(tape):
            name = f"autograd::engine::evaluate_function: {function.node}"
            with thread.operator(name, sequence=sequence, made_on=1):
                yield from thread.busy(PYTHON_NS)
                for call in function.backward:
                    yield from self._run(thread, call, sequence, made_on=1)
            for shape in function.parameters:
                ready, left = ready + prod(shape), left - prod(shape)
                with thread.operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    yield from thread.busy(PYTHON_NS)
                    yield from self._run(thread, accumulate(shape))
                    if last and self._job.replicas > 1 and (ready >= self._job.bucket or not left):
                        yield from self._run(thread, Reduce("dp", (ready,), "Float", at_once=False))
                        ready = 0
        self._engine.fire(finished)

    def _update(self) -> Process:
        main, job = self._main, self._job
        norm, *rest = optimizer(self._parameters)
        with main.annotation("Optimizer.step#FusedAdam.step"):
            yield from main.busy(PYTHON_NS)
            yield from self._run(main, norm)
            if job.tp * job.pp > 1:
                yield from self._run(main, Reduce("model", (1,), "Float"))
            with main.operator("aten::item", ((),)):
                yield from main.busy(PYTHON_NS)
                with main.operator("aten::_local_scalar_dense", ((),)):
                    yield from main.launch(memcpy("DtoH (Device -> Pinned)", 4))
                    yield from main.synchronize(COMPUTE_STREAM)
            for call in rest:
                yield from self._run(main, call)

    def _run(self, thread: Thread, part: Part, sequence: int | None = None, *, made_on: int = 0) -> Process:
        if isinstance(part, Work):
            yield from thread.launch(replace(part, ns=part.ns * self._slower))
        elif isinstance(part, Reduce):
            yield from self._reduce(thread, part)
        elif isinstance(part, Wait):
            yield from self._await(thread, "tp")
        else:
            with thread.operator(part.name, part.shapes, indices=part.indices, sequence=sequence, made_on=made_on):
                yield from thread.busy()
                for inner in part.parts:
                    yield from self._run(thread, inner)
                yield from thread.busy(PYTHON_NS)

    def _reduce(self, thread: Thread, what: Reduce) -> Process:
        group = self._groups[what.group]
        elements, width = payload(what)
        self._numbers[what.group] += 1
        members = 1 if self._job.one_replica and what.group == "dp" else 0
        collective = Collective(
            what.name,
            group.ranks,
            elements,
            self._numbers[what.group],
            self._step,
            group.name,
            group.description,
            what.dtype,
            width,
            members=members,
        )
        operator, annotation, kernel = _REDUCES[what.name]
        kernel = f"ncclDevKernel_{kernel}_{'bf16' if width == 2 else 'f32'}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        with thread.operator(operator, ((what.shape,),)):
            yield from self._communicate(thread, collective, Work("kernel", kernel, 0, _BLOCKS), what.group, annotation)
        if what.at_once:
            yield from self._await(thread, what.group)

    def _communicate(self, thread: Thread, what: Collective, work: Work, stream: str, name: str) -> Process:
        yield from thread.busy(PYTHON_NS)
        with thread.operator("record_param_comms", ((what.elements,),), collective=what):
            yield from thread.busy(PYTHON_NS)
            yield from thread.order(COMPUTE_STREAM, _STREAMS[stream])
            with thread.annotation(name):
                yield from thread.launch(work, _STREAMS[stream], call="cudaLaunchKernelExC", collective=what)
            yield from thread.record(_STREAMS[stream], self._pending[stream])

    def _await(self, thread: Thread, stream: str) -> Process:
        """Let the compute stream wait for what was begun on another."""
        for event in self._pending.pop(stream, ()):
            with thread.operator("record_param_comms", collective=Collective("wait", ())):
                yield from thread.busy(PYTHON_NS)
                yield from thread.hold(COMPUTE_STREAM, event)

    def _exchange(self, what: Exchange) -> Process:
        """Send and receive: stages of even number send first, the others receive first, so none waits in a ring."""
        tp, dp, _ = self._job.place(self._rank)
        order = ("send next", "receive previous", "send previous", "receive next")
        if self._stage % 2:
            order = ("receive previous", "send next", "receive next", "send previous")
        begun = []
        for kind in order:
            word, _, side = kind.partition(" ")
            other = self._stage + (1 if side == "next" else -1)
            if kind not in what.parts or not 0 <= other < self._job.pp:
                continue
            peer = self._job.rank(tp, dp, other)
            route = (self._rank, peer) if word == "send" else (peer, self._rank)
            self._numbers[route] += 1
            group = self._groups["pp"]
            elements = self._job.tokens * self._job.hidden
            collective = Collective(
                "send" if word == "send" else "recv",
                group.ranks,
                elements,
                self._numbers[route],
                self._step,
                group.name,
                group.description,
                route=route,
            )
            own = "c10d::send" if word == "send" else "c10d::recv_"
            shape = (self._job.rank_sequence, self._job.micro_batch, self._job.hidden)
            with self._main.operator(own, ((shape,),)):
                arrow = "->" if word == "send" else "<-"
                name = f"nccl:{collective.name} {self._stage}{arrow}{other}"
                yield from self._communicate(self._main, collective, _SEND, kind, name)
            begun.append(kind)
        for kind in begun:
            yield from self._await(self._main, kind)
