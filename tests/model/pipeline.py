"""A pipeline for tests: its figures, the simulation of it, and a slow twin that walks the listed orders."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.pipeline import schedule as schedules
from lumos_df.model.pipeline.order import BACKWARD, order
from lumos_df.schema.plan_words import DUALPIPE

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pipeline:
    schedule: int
    pp: int
    vp: int
    micro_batches: int
    forward: Floats
    backward_input: Floats
    backward_weight: Floats
    overlapped: Floats
    delay: Floats
    busy: Floats
    pairs: bool = True
    """Whether DualPipe's pairs run as one; else one task after the other."""

    @classmethod
    def even(
        cls, schedule: int, pp: int, vp: int, micro_batches: int, times: tuple[float, ...], delay: float = 0.0
    ) -> Self:
        """All chunks alike: forward, gradients of inputs and of weights, and DualPipe's overlapped pair."""
        f, b, w, *pair = times
        chunk = np.ones(pp * vp)
        return cls(
            schedule,
            pp,
            vp,
            micro_batches,
            f * chunk,
            b * chunk,
            w * chunk,
            (pair[0] if pair else f + b + w) * chunk,
            np.full(pp, float(delay)),
            np.zeros(pp),
        )


@dataclass(frozen=True)
class Outcome:
    makespan: float
    stages: Floats
    gradients: Floats
    path: Floats
    """Seconds of the critical path on each stage, and last those in messages; only the twin knows them."""


def simulate(pipe: Pipeline) -> Outcome:
    stages = np.full((pipe.pp, schedules.COLUMNS), np.nan)
    gradients = np.full(pipe.pp * pipe.vp, np.nan)
    work = np.full(schedules.work_size(pipe.pp, pipe.vp), np.nan)
    makespan = schedules.simulate(
        pipe.schedule,
        pipe.pp,
        pipe.vp,
        pipe.micro_batches,
        schedules.PipelineTimes(
            pipe.forward, pipe.backward_input, pipe.backward_weight, pipe.overlapped, pipe.delay, pipe.busy
        ),
        work,
        stages,
        gradients,
    )
    return Outcome(makespan, stages, gradients, np.empty(0))


@dataclass(frozen=True)
class Ran:
    """A slot that ran: where, how long, which one it waited for (none: it was the first), how long the message took."""

    stage: int
    seconds: float
    cause: int | None
    message: float


def walk(ran: list[Ran], last: int | None, stages: int) -> Floats:
    """Follow the causes back from a slot; return the seconds on each stage, and in messages."""
    path = np.zeros(stages + 1)
    while last is not None:
        path[ran[last].stage] += ran[last].seconds
        path[-1] += ran[last].message
        last = ran[last].cause
    return path


Task = tuple[str, int, int]
"""Kind "F", "B" or "W"; place of the chunk in the model; micro-batch."""


@dataclass(frozen=True)
class Slot:
    """What a stage does at once: one task, or an overlapped pair."""

    tasks: tuple[Task, ...]
    chunks: tuple[int, ...]
    """Number of each task's chunk in the arrays of figures."""
    seconds: float
    whole: bool
    """Whether its backward, if it has one, is that of the weights, too."""


def slots(pipe: Pipeline, stage: int) -> list[Slot]:
    """The order of a stage."""
    rows = order(pipe.schedule, pipe.pp, pipe.vp, pipe.micro_batches, stage).tolist()
    kinds = (pipe.forward, pipe.backward_input, pipe.backward_weight, pipe.backward_input + pipe.backward_weight)
    found = []
    while rows:
        many = 1 + rows[0][3] * pipe.pairs
        parts, rows = rows[:many], rows[many:]
        chunks = tuple(chunk * pipe.pp + stage for _, chunk, _, _ in parts)
        seconds = pipe.overlapped[chunks[0]] if many > 1 else kinds[parts[0][0]][chunks[0]]
        tasks = tuple(("FBWB"[kind], place(pipe, chunk, stage), mb) for kind, chunk, mb, _ in parts)
        found.append(Slot(tasks, chunks, float(seconds), any(kind == BACKWARD for kind, _, _, _ in parts)))
    return found


def place(pipe: Pipeline, chunk: int, stage: int) -> int:
    """Where in the model a chunk is; DualPipe's chunks 1 run the other way."""
    if pipe.schedule == DUALPIPE:
        return pipe.pp - 1 - stage if chunk else stage
    return chunk * pipe.pp + stage


def last_place(pipe: Pipeline) -> int:
    return (pipe.pp if pipe.schedule == DUALPIPE else pipe.pp * pipe.vp) - 1


def link(pipe: Pipeline, where: int, micro_batch: int) -> int:
    """The link between places `where` and `where + 1` of the model."""
    if pipe.schedule == DUALPIPE and micro_batch >= pipe.micro_batches // 2:
        return pipe.pp - 2 - where
    return where % pipe.pp


def message_in(pipe: Pipeline, task: Task) -> tuple[Task, int] | None:
    """The task whose message this one waits for, and the link it comes over."""
    kind, where, mb = task
    if kind == "F" and where > 0:
        return ("F", where - 1, mb), link(pipe, where - 1, mb)
    if kind == "B" and where < last_place(pipe):
        return ("B", where + 1, mb), link(pipe, where, mb)
    return None


def link_out(pipe: Pipeline, task: Task) -> int | None:
    """The link that this task sends over."""
    kind, where, mb = task
    if kind == "F" and where < last_place(pipe):
        return link(pipe, where, mb)
    if kind == "B" and where > 0:
        return link(pipe, where - 1, mb)
    return None


def twin(pipe: Pipeline) -> Outcome:
    """Run whichever stage can go on, until all are done; the same as `simulate`, without periods or skewed steps."""
    todo = [slots(pipe, stage) for stage in range(pipe.pp)]
    clock = [0.0] * pipe.pp
    sent: dict[Task, float] = {}
    ran: list[Ran] = []
    latest: list[int | None] = [None] * pipe.pp
    sender: dict[Task, int] = {}
    stages = np.zeros((pipe.pp, schedules.COLUMNS))
    stages[:, schedules.START] = np.inf
    gradients = np.zeros(pipe.pp * pipe.vp)
    counts = np.zeros((pipe.pp, 3), int)
    while any(todo):
        ready = [
            s
            for s, left in enumerate(todo)
            if left and all(m is None or m[0] in sent for m in (message_in(pipe, t) for t in left[0].tasks))
        ]
        assert ready, "the orders wait for one another"
        for s in ready:
            slot = todo[s].pop(0)
            incoming = [m for m in (message_in(pipe, task) for task in slot.tasks) if m]
            outgoing = [wire for wire in (link_out(pipe, task) for task in slot.tasks) if wire is not None]
            receive, send = sum(pipe.busy[wire] for _, wire in incoming), sum(pipe.busy[wire] for wire in outgoing)
            start = max(
                [clock[s] + receive] + [sent[task] + pipe.delay[wire] - pipe.busy[wire] for task, wire in incoming]
            )
            before, cause, waited = clock[s] + receive, latest[s], 0.0
            for task, wire in incoming:
                if sent[task] + pipe.delay[wire] - pipe.busy[wire] > before:
                    waited = pipe.delay[wire] - pipe.busy[wire]
                    before, cause = sent[task] + waited, sender[task]
            ran.append(Ran(s, slot.seconds + send + receive * (cause == latest[s]), cause, waited))
            latest[s] = len(ran) - 1
            clock[s] = start + slot.seconds + send
            for task in slot.tasks:
                assert task not in sent, "a task runs twice"
                sent[task] = clock[s]
                sender[task] = len(ran) - 1
            stages[s, schedules.START] = min(stages[s, schedules.START], start)
            stages[s, schedules.COMPUTE] += slot.seconds
            stages[s, schedules.BLOCKED] += receive + send
            for (kind, where, mb), chunk in zip(slot.tasks, slot.chunks, strict=True):
                counts[s, "FBW".index(kind)] += 1
                counts[s, 2] += kind == "B" and slot.whole
                assert kind == "F" or ("FB"["BW".index(kind)], where, mb) in sent, "gradients before what they are of"
                if kind != "F":
                    gradients[chunk] = clock[s]
                for column, done in ((schedules.IN_FLIGHT, 1), (schedules.KEPT, 2)):
                    stages[s, column] = max(stages[s, column], counts[s, 0] - counts[s, done])
    assert (counts == counts[0, 0]).all(), "a task is missing"
    stages[:, schedules.END] = clock
    makespan = max(clock)
    stages[:, schedules.BUBBLE] = makespan - stages[:, schedules.COMPUTE] - stages[:, schedules.BLOCKED]
    return Outcome(makespan, stages, gradients, walk(ran, latest[clock.index(makespan)], pipe.pp))
