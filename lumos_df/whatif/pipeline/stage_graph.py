"""A job regrouped into pipeline stages: measured blocks in the order of a schedule, with sends and receives between.

A new stage is made from a traced rank that has what the stage has: the first from one with the embedding, the last from
one with the head, those between from any. Its layers are that rank's own measured blocks, as many as the stage needs.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.model.kernels.cost import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from lumos_df.model.pipeline.order import BACKWARD
from lumos_df.schema.codes import COMMUNICATION, END_START, EVENT, KERNEL, NONE, START_START
from lumos_df.whatif.durations.added_kernels import more_rows, with_rows
from lumos_df.whatif.pipeline.cut_ranks import Cut
from lumos_df.whatif.pipeline.stage_chunks import Pipeline
from lumos_df.whatif.rewrite.block_sequence import taken
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, FORWARD_PASS, OUTSIDE, UPDATE, WEIGHTS, Blocks
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten

_SEND_FORWARD, _RECEIVE_FORWARD, _SEND_BACKWARD, _RECEIVE_BACKWARD = range(4)
_NAMES: Final = ("send forward", "receive forward", "send backward", "receive backward")


@dataclass(frozen=True, slots=True)
class Stage:
    """The sequence of one stage's blocks."""

    program: NDArray[np.int64]
    task: NDArray[np.int64]
    """Task of each block, NONE outside of tasks [p]."""
    kind: NDArray[np.int64]
    """Of each task, as in `model.order`."""
    chunk: NDArray[np.int64]
    """Of each task."""
    place: NDArray[np.int64]
    """Which part of the model each task is about."""
    micro_batch: NDArray[np.int64]
    """Of each task, counted over all steps."""
    paired: NDArray[np.bool_]
    """Which tasks run at once with the next one."""
    pipeline: Pipeline

    def early(self) -> NDArray[np.bool_]:
        """Return which blocks are of a backward task before the last gradients of its chunk and step [p]."""
        made = np.flatnonzero((self.kind == BACKWARD) | (self.kind == BACKWARD_WEIGHT))
        whose = self.micro_batch[made] // self.pipeline.batches * self.pipeline.places + self.place[made]
        _, last = np.unique(whose[::-1], return_index=True)
        early = self.kind != FORWARD
        early[made[len(made) - 1 - last]] = False
        return np.append(early, False)[self.task]


def stage(maker: Cut, pipeline: Pipeline, number: int) -> Stage:
    """Return the sequence of a stage's blocks.

    Args:
        maker: what it is made from.
        pipeline: the pipeline.
        number: which of its stages.
    """
    tasks = pipeline.tasks(number).tolist()
    places = [pipeline.place(number, chunk) for chunk in range(pipeline.chunks)]
    program: list[NDArray[np.int64]] = []
    of_task: list[NDArray[np.int64]] = []
    done: list[tuple[int, int, int, int, int]] = []
    for step, in_step in enumerate(maker.turns):
        parts = [_parts(maker.blocks, in_step, pipeline, place, maker.ends) for place in places]
        program.append(parts[0].before)
        of_task.append(np.full(len(parts[0].before), NONE))
        for kind, chunk, batch, paired in tasks:
            pieces = parts[chunk].passes[kind]
            if not pieces:
                continue
            recorded = taken(len(pieces), pipeline.batches)[batch]
            # The one micro-batch that is left is the last, whose gradients are reduced.
            piece = pieces[-1 if pipeline.batches == 1 and kind != FORWARD else recorded]
            program.append(piece)
            of_task.append(np.full(len(piece), len(done)))
            done.append((kind, chunk, places[chunk], step * pipeline.batches + batch, paired))
        program.append(parts[0].after)
        of_task.append(np.full(len(parts[0].after), NONE))
    kinds, chunks, about, batches, pairs = np.array(done, np.int64).reshape(-1, 5).T
    return Stage(np.concatenate(program), np.concatenate(of_task), kinds, chunks, about, batches, pairs > 0, pipeline)


@dataclass(frozen=True, slots=True)
class _Parts:
    """One step's blocks for one part of the model: before its micro-batches, their passes, and after them."""

    before: NDArray[np.int64]
    passes: tuple[list[NDArray[np.int64]], ...]
    """One list for each kind of task of `model.order`, with one entry for each micro-batch that was recorded."""
    after: NDArray[np.int64]


def _parts(
    blocks: Blocks, block: NDArray[np.int64], pipeline: Pipeline, place: int, holds: tuple[bool, bool]
) -> _Parts:
    """Return one step's blocks for a part of the model; `holds`: whether they hold the embedding, and the head."""
    kind, batch = blocks.kind[block], blocks.micro_batch[block]
    update = kind == UPDATE
    inside = np.flatnonzero((kind != OUTSIDE) & ~update)
    if not len(inside):
        return _Parts(block, ([], [], [], []), block[:0])
    first, last, wanted = place == 0, place == pipeline.places - 1, pipeline.layers_of(place)
    begun, ended = inside[0], inside[-1]
    outside = kind == OUTSIDE
    at = np.arange(len(block))
    before = block[outside & (at < begun) & (batch < 0)]
    tail = np.flatnonzero((outside | update) & (at > ended) & (batch < 0))
    after = block[_updated(blocks, block, tail, pipeline, place)]
    forward, inputs, weights = [], [], []
    for micro_batch in np.unique(batch[inside]).tolist():
        ahead = np.flatnonzero((kind == FORWARD_PASS) & (batch == micro_batch))
        back = np.flatnonzero((kind == BACKWARD_PASS) & (batch == micro_batch))
        around = np.flatnonzero(outside & (batch == micro_batch))
        start = ahead[0] if len(ahead) else begun
        middle = back[0] if len(back) else ended + 1
        # What is there without an embedding or a head, every stage does.
        with_first, with_last = first or not holds[0], last or not holds[1]
        embedding = around[around < start] if with_first else around[:0]
        head = around[(around > start) & (around < middle)] if with_last else around[:0]
        behind = around[around > middle] if with_first else around[:0]
        if not len(back):
            head, behind = (around[around > start] if with_last else around[:0]), around[:0]
        forward.append(block[np.concatenate((embedding, _fitted(blocks, block, ahead, wanted), head))])
        if len(back):
            inputs.append(block[np.concatenate((_fitted(blocks, block, back, wanted), behind))])
            weights.append(
                block[_weights(blocks, block, (kind == WEIGHTS) & (batch == micro_batch), wanted, ends=(first, last))]
            )
    whole = [np.concatenate(pair) for pair in zip(inputs, weights, strict=True)]
    return _Parts(before, (forward, inputs, weights, whole), after)


def _weights(
    blocks: Blocks,
    block: NDArray[np.int64],
    mine: NDArray[np.bool_],
    wanted: NDArray[np.int64],
    *,
    ends: tuple[bool, bool],
) -> NDArray[np.int64]:
    """Return a micro-batch's blocks of weight gradients: the head's, those of as many layers as wanted, and the rest.

    `ends`: whether it is the first part of the model, and whether it is the last.
    """
    place = np.flatnonzero(mine)
    layered = np.flatnonzero(blocks.layer[block[place]] >= 0)
    if not len(layered):
        return place if ends[1] else place[:0]
    low, high = layered[0], layered[-1] + 1
    head = place[:low] if ends[1] else place[:0]
    embedding = place[high:] if ends[0] else place[:0]
    return np.concatenate((head, _fitted(blocks, block, place[layered], wanted), embedding))


def _updated(
    blocks: Blocks, block: NDArray[np.int64], place: NDArray[np.int64], pipeline: Pipeline, first: int
) -> NDArray[np.int64]:
    """Return what comes behind a step's passes: of an optimizer that goes by layers, those of all of a rank's chunks.

    Args:
        blocks: the blocks.
        block: those of the step.
        place: which of them come behind its passes.
        pipeline: the pipeline.
        first: the first part of the model that the rank has.
    """
    by_layer = blocks.kind[block[place]] == UPDATE
    if not by_layer.any():
        return place
    layer = np.where(by_layer, blocks.layer[block[place]], 0)
    known = np.unique(layer[by_layer])
    parts = [pipeline.place(first % pipeline.stages, chunk) for chunk in range(pipeline.chunks)]
    chunks = [pipeline.layers_of(part) for part in parts]
    times = np.bincount(np.concatenate(chunks) % len(known), minlength=len(known))
    return np.repeat(place, np.where(by_layer, times[np.searchsorted(known, layer) % len(known)], 1))


def _fitted(
    blocks: Blocks, block: NDArray[np.int64], place: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a pass's blocks of the layers wanted; of those beyond what was recorded, the first ones again."""
    layer = blocks.layer[block[place]]
    known = np.unique(layer)
    times = np.bincount(wanted % len(known), minlength=len(known))
    return np.repeat(place, times[np.searchsorted(known, layer)])


@dataclass(frozen=True, slots=True)
class Ends:
    """Where tasks begin and end on a rank, in rows of its graph; NONE where it has none [tasks]."""

    first_call: NDArray[np.int64]
    first_kernel: NDArray[np.int64]
    last_kernel: NDArray[np.int64]
    last_exchange: NDArray[np.int64]
    """The all-to-all that has to be over as well, of pairs that run at once; `ends` tells none."""


def ends(made: Rewritten, sequence: Stage) -> Ends:
    """Return the first call, and the first and the last compute kernel, of every task."""
    graph, task_count = made.graph, len(sequence.kind)
    task = sequence.task[made.position]
    rows = graph.rows
    kernel = graph.gpu.row[(rows.kind[graph.gpu.row] == KERNEL) & (rows.family[graph.gpu.row] != COMMUNICATION)]
    row_of_task = [np.full(task_count, NONE, np.int64) for _ in range(4)]
    for into, every, last in (
        (row_of_task[0], graph.atoms.row, False),
        (row_of_task[1], kernel, False),
        (row_of_task[2], kernel, True),
    ):
        row = every[task[every] >= 0]
        ordered_rows = row[np.argsort(made.position[row], kind="stable")]
        chosen = ordered_rows if last else ordered_rows[::-1]
        into[task[chosen]] = chosen
    return Ends(*row_of_task)


@dataclass(frozen=True, slots=True)
class Sends:
    """Sends and receives that a rank gains [k]."""

    kind: NDArray[np.int64]
    """0 to 3: send and receive forward, send and receive backward."""
    lane: NDArray[np.int64]
    """Stream that it runs on: one for each kind, and for each direction of the micro-batches."""
    micro_batch: NDArray[np.int64]
    link: NDArray[np.int64]
    """Part of the model whose end it goes from or to."""
    after: NDArray[np.int64]
    """Row that lets it start."""
    behind: NDArray[np.int64]
    """Kernel that has to be over, too, NONE where none has."""
    before: NDArray[np.int64]
    """Row that waits for it, NONE where none does."""


def sends(sequence: Stage, at: Ends, *, in_turn: bool) -> Sends:
    """Return what a stage sends and receives.

    Args:
        sequence: the stage.
        at: where its tasks begin and end.
        in_turn: whether it computes and communicates in turns: a receive is posted behind the task before, and what
            follows a send waits for it.
    """
    first, last = sequence.place == 0, sequence.place == sequence.pipeline.places - 1
    ahead, back = sequence.kind == FORWARD, (sequence.kind == BACKWARD) | (sequence.kind == BACKWARD_INPUT)
    parts: list[tuple[NDArray[np.int64], ...]] = []
    none = np.full(len(sequence.kind), NONE, np.int64)
    past = np.append(none[:1], at.last_kernel[:-1]) if in_turn else none
    following = np.append(at.first_kernel[1:], none[:1]) if in_turn else none
    for kind, mine, link, after, behind, before in (
        (_SEND_FORWARD, ahead & ~last, sequence.place, at.last_kernel, at.last_exchange, following),
        (_RECEIVE_FORWARD, ahead & ~first, sequence.place - 1, at.first_call, past, at.first_kernel),
        (_SEND_BACKWARD, back & ~first, sequence.place - 1, at.last_kernel, at.last_exchange, following),
        (_RECEIVE_BACKWARD, back & ~last, sequence.place, at.first_call, past, at.first_kernel),
    ):
        use = np.flatnonzero(mine & (after >= 0))
        lane = kind + len(_NAMES) * sequence.pipeline.direction(sequence.chunk[use])
        columns = (sequence.micro_batch, link, after, behind, before)
        parts.append((np.full(len(use), kind), lane, *(column[use] for column in columns)))
    return Sends(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def with_sends(graph: TraceGraph, what: Sends, lasts: int, turns: Edges) -> TraceGraph:
    """Return a graph with sends and receives, each kind on a stream of its own, in rows behind all others.

    Args:
        graph: the graph.
        what: the sends and receives.
        lasts: ns that each takes without waiting.
        turns: what makes the host do one task after the other.
    """
    columns: dict[str, Any] = {
        "name": what.kind,
        "ts": graph.rows.ts[what.after],
        "dur": lasts,
        "stream": what.lane,
        "step": graph.rows.step[what.after],
        "collective": what.kind % 2,
        "group_size": 2,
    }
    rows = more_rows(graph.rows, len(what.kind), columns, _NAMES, ("send", "recv"))
    new = (len(graph.rows) + np.arange(len(what.kind))).astype(np.int32)
    launched = np.isin(what.kind, (_RECEIVE_FORWARD, _RECEIVE_BACKWARD))
    released = edges(what.after.astype(np.int32), new, EVENT, 0, False, np.where(launched, START_START, END_START))
    ended = edges(what.behind.astype(np.int32), new, EVENT, 0, False)
    waited = edges(new, what.before.astype(np.int32), EVENT, 0, False)
    return with_rows(graph, rows, [turns, released, ended, waited])
