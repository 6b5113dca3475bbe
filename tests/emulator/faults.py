"""Jobs of the emulator with faults of programs and machines that few jobs have, each by itself."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

from tests.emulator import training
from tests.emulator.engine import Engine, Process, Signal
from tests.emulator.gpu import COMMUNICATION_STREAM, COMPUTE_STREAM, Fabric
from tests.emulator.hardware import THREAD_HANDOFF_NS
from tests.emulator.host import Thread
from tests.emulator.job import Job
from tests.emulator.model import Module, Operator, Work, elementwise, functions, native, parameter_count
from tests.emulator.records import Collective, Event
from tests.emulator.training import Outcome, Saved, Trainer

_TRIED: Final = (1.0, 1.2, 1.7, 2.5, 3.0, 4.0)
"""How many times as long as the fastest algorithms take that a convolution tries out."""
_LATE_NS: Final = 20_000_000
_SPARSE_TRAVERSALS: Final = 35
"""Tensors that an update of rows reads and writes, of as many elements as these have."""
_SENT: Final = Work("kernel", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 24)


@dataclass(frozen=True, slots=True)
class FaultyJob(Job):
    """A job that may have one of these."""

    evaluations: int = 0
    """So many forward passes more, and a number read of each, on rank 0 alone, at the end of each step."""
    late_collective: int = 0
    """The collective of that number transfers longer than usual, with all ranks there; 0: none does."""
    convolves: bool = False
    """Each layer ends with a convolution."""
    searches: bool = False
    """It first tries algorithms out, and the host waits for each."""
    broadcasts: bool = False
    """Rank 0 sends all parameters to the others at the beginning of each step."""
    gathers_outputs: bool = False
    """All ranks gather each other's logits behind the forward pass, which nothing learns from."""
    teacher: bool = False
    """A net that nothing goes back through computes, too, before the forward pass."""
    gathered_bytes: int = 0
    """Size of an element of parameters while they are gathered; 0: as they are."""
    units: int = 1
    """Each layer's parameters are gathered in so many equal parts."""
    micro_batches: int = 1
    """Passes of a step, of which the last one reduces gradients."""
    sparse: bool = False
    """The table's gradient holds the rows that were read, which all ranks gather."""
    averages: Literal["", "at once", "one by one"] = ""
    """How averages of parameters are made behind each update."""
    casts: int = 0
    """In so many of them parameters in float32 are cast to 16 bits."""
    casts_inside: bool = False
    """An operator that multiplies calls each cast, as under autocast."""


def simulate(job: Job) -> Outcome:
    """Run a job, faulty or not."""
    return training.simulate(job, _FaultyTrainer if isinstance(job, FaultyJob) else Trainer)


class _FaultyTrainer(Trainer):
    _job: FaultyJob

    _pass = 0
    """Of the step, from 0."""

    def __init__(self, job: FaultyJob, rank: int, engine: Engine, fabric: Fabric) -> None:
        super().__init__(job, rank, engine, fabric)
        # What is updated, cleared and reduced with the other parameters.
        self._parameters -= prod(self._shapes[0]) if job.sparse else 0

    @staticmethod
    def transfer_ns(job: Job, collective: Collective) -> float:
        """Return how long a collective of a job transfers once all of its ranks are there."""
        late = isinstance(job, FaultyJob) and collective.seq == job.late_collective
        return Trainer.transfer_ns(job, collective) + (_LATE_NS if late else 0)

    def _step(self, step: int) -> Process:
        self._pass = 0
        if self._job.broadcasts:
            for shape in self._shapes:
                yield from self._broadcast(step, prod(shape))
            yield from self._main.order(COMMUNICATION_STREAM, COMPUTE_STREAM)
        yield from super()._step(step)
        if self._job.averages == "at once":
            together = native("multi_tensor_apply_kernel<LerpFunctor>", 3 * self._parameters, 108)
            yield from self._main.run(Operator("aten::_foreach_lerp_", (), (together,)))
        for shape in self._shapes if self._job.averages == "one by one" else ():
            work = elementwise("lerp", prod(shape), 3)
            yield from self._main.run(Operator("aten::lerp_", (shape, shape, ()), (work,)))
        for _ in range(self._job.evaluations if self._rank == 0 else 0):
            tape: list[Saved] = []
            yield from self._forward(self._model, tape, Counter())
            for saved in tape:
                self._main.release(saved.activation)
            yield from self._read_number()

    def _broadcast(self, step: int, elements: int) -> Process:
        self._collectives += 1
        collective = Collective("broadcast", tuple(range(self._job.ranks)), elements, self._collectives, step)
        with self._main.operator("c10d::broadcast_", (((elements,),), (), (), (), (), ())):
            yield from self._main.busy()
            with self._main.operator("record_param_comms", ((elements,),), collective=collective):
                yield from self._main.order(COMPUTE_STREAM, COMMUNICATION_STREAM)
                yield from self._main.launch(
                    _SENT, COMMUNICATION_STREAM, call="cudaLaunchKernelExC", collective=collective
                )

    def _learn(self, step: int, tape: list[Saved]) -> Process:
        for _ in range(self._job.micro_batches - 1):
            finished = Signal()
            self._engine.start(self._backward(step, tape, finished), THREAD_HANDOFF_NS)
            yield finished
            yield THREAD_HANDOFF_NS
            self._pass += 1
            tape = []
            with self._main.annotation("DistributedDataParallel.forward"):
                yield from self._forward(self._model, tape, Counter())
        yield from super()._learn(step, tape)

    def _reduce_bucket(self, thread: Thread, step: int, reduced: list[Event]) -> Process:
        if self._pass < self._job.micro_batches - 1:
            self._ready = 0
        else:
            yield from super()._reduce_bucket(thread, step, reduced)

    def _forward(self, module: Module, tape: list[Saved], numbers: Counter[str]) -> Process:
        if not numbers and self._job.teacher:
            of_teacher: list[Saved] = []
            for function in functions(module):
                yield from self._apply(self._main, function, of_teacher, differentiable=False)
            for saved in of_teacher:
                self._main.release(saved.activation)
        if not numbers and self._pass < self._job.casts:
            for shape in self._shapes:
                cast = elementwise("bfloat16_copy_kernel", prod(shape), 3)
                copy = Operator("aten::_to_copy", (shape,), (cast,), dtype="float")
                with self._main.operator("aten::linear", (shape,)) if self._job.casts_inside else nullcontext():
                    yield from self._main.run(Operator("aten::to", (shape, (), ()), (copy,), dtype="float"))
        yield from super()._forward(module, tape, numbers)
        if module.kind == "Block" and self._job.convolves:
            yield from self._convolve()
        if module.kind == "GPT" and self._job.gathers_outputs:
            yield from self._gather_outputs()

    def _gather_outputs(self) -> Process:
        tokens, vocabulary = self._job.tokens * self._job.ranks, self._job.vocabulary
        over: list[Event] = []
        yield from self._all_reduce(self._main, 0, tokens * vocabulary, over, "_allgather_base")
        yield from self._main.hold(COMPUTE_STREAM, over[0])
        count = native("reduce_kernel<ArgMaxOps>", tokens * vocabulary, 108)
        yield from self._main.run(Operator("aten::argmax", ((tokens, vocabulary),), (count,)))

    def _propagate(self, step: int, saved: Saved, reduced: list[Event]) -> Process:
        function = saved.function
        if self._job.sparse and function.node == "EmbeddingBackward0":
            (dense,) = function.backward
            read = self._job.tokens * self._job.hidden
            yield from self._all_reduce(self._autograd, step, read * self._job.ranks, reduced, "_allgather_base")
            rows = Operator("aten::_sparse_coo_tensor_unsafe", dense.shapes, (native("copy_rows", 2 * read, 64),))
            saved = replace(saved, function=replace(function, backward=(rows,), parameters=()))
        yield from super()._propagate(step, saved, reduced)

    def _update(self) -> Process:
        yield from super()._update()
        if self._job.sparse:
            read = self._job.ranks * self._job.tokens * self._job.hidden
            work = native("sparse_adam", _SPARSE_TRAVERSALS * read, 108)
            yield from self._main.run(Operator("aten::sparse_adam", (), (work,)))

    def _convolve(self) -> Process:
        image, weight = (self._job.batch, 256, 32, 32), (256, 256, 3, 3)
        fastest = 2 * prod(image) * 256 * 9 / 180_000
        with (
            self._main.operator("aten::convolution", (image, weight)),
            self._main.operator("aten::cudnn_convolution", (image, weight)),
        ):
            for number, times in enumerate(_TRIED if self._job.searches else ()):
                events: list[Event] = []
                yield from self._main.record(COMPUTE_STREAM, events)
                yield from self._main.launch(Work("kernel", f"implicit_gemm_algo{number}", times * fastest, 256))
                yield from self._main.record(COMPUTE_STREAM, events)
                yield from self._main.await_event(events[-1])
            yield from self._main.launch(Work("kernel", "implicit_gemm_algo0", fastest, 256))

    def _element_bytes(self, name: str) -> int:
        gathers = name == "_allgather_base" and self._job.gathered_bytes
        return self._job.gathered_bytes if gathers else super()._element_bytes(name)

    def _gather(self, thread: Thread, elements: int) -> Process:
        units = 1 if elements == self._parameters - sum(self._layers) else self._job.units
        for _ in range(units):
            yield from super()._gather(thread, elements // units)
        self._gathered[-units:] = self._gathered[-1:]

    @property
    def _layers(self) -> list[int]:
        """Parameters of each layer."""
        layers = [part for part in self._model.parts if isinstance(part, Module) and part.kind == "Block"]
        return [parameter_count(part) for part in layers]
