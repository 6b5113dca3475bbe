"""A job regrouped into pipeline stages: measured blocks in the order of a schedule, with sends and receives between.

A new stage is made from a traced rank that has what the stage has: the first from one with the embedding, the last from
one with the head, those between from any. Its layers are that rank's own measured blocks, as many as the stage needs.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.estimate.anchored.blocks import BACKWARD_PASS, FORWARD_PASS, OUTSIDE, Blocks
from lumos_df.estimate.anchored.rewrite import Rewritten, ordered
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.edges import END_START, EVENT, START_START, STREAM, edges, join
from lumos_df.graph.gpu import Work
from lumos_df.graph.rows import COMMUNICATION, KERNEL, NONE, Rows
from lumos_df.model.order import BACKWARD, KIND, MICRO_BATCH, order
from lumos_df.model.placement import chunk_layers

_SEND_FORWARD, _RECEIVE_FORWARD, _SEND_BACKWARD, _RECEIVE_BACKWARD = range(4)
_NAMES: Final = ("send forward", "receive forward", "send backward", "receive backward")


@dataclass(frozen=True, slots=True)
class Stage:
    """The sequence of one stage's blocks."""

    program: NDArray[np.int64]
    task: NDArray[np.int64]
    """Task of each block, NONE outside of tasks [p]."""
    backward: NDArray[np.bool_]
    """Of each task."""
    micro_batch: NDArray[np.int64]
    """Of each task, counted over all steps."""
    batches: int
    """Micro-batches of a step."""

    def early(self) -> NDArray[np.bool_]:
        """Return which blocks are of a backward task that is not the last one of its step [p]."""
        latest = np.zeros(len(self.backward), np.bool_)
        back = np.flatnonzero(self.backward)
        step = self.micro_batch[back] // max(self.batches, 1)
        latest[back[np.flatnonzero(np.diff(step, append=-1))]] = True
        found = self.backward & ~latest
        return np.append(found, False)[self.task]


def stage(of: Blocks, schedule: int, place: tuple[int, int], batches: int, layers: int) -> Stage:
    """Return the sequence of a stage's blocks.

    Args:
        of: blocks of the rank that it is made from.
        schedule: one of `model.schedule`'s.
        place: number of the stage, and how many there are.
        batches: micro-batches of a step.
        layers: of the whole model.
    """
    number, stages = place
    tasks = order(schedule, stages, 1, batches, number)
    wanted = int(chunk_layers(layers, stages, number))
    program: list[NDArray[np.int64]] = []
    task: list[NDArray[np.int64]] = []
    backward: list[bool] = []
    batch: list[int] = []
    bounds = np.append(np.flatnonzero(np.diff(of.step, prepend=of.step[:1] - 1)), len(of)).tolist()
    for turn, (low, high) in enumerate(pairwise(bounds)):
        own = np.arange(low, high)
        parts = _parts(of, own, wanted, first=number == 0, last=number == stages - 1)
        program.append(parts.before)
        task.append(np.full(len(parts.before), NONE))
        for one in tasks.tolist():
            is_backward = one[KIND] >= BACKWARD
            pieces = parts.backward if is_backward else parts.forward
            if not pieces:
                continue
            piece = pieces[one[MICRO_BATCH] % len(pieces)]
            program.append(piece)
            task.append(np.full(len(piece), len(backward)))
            backward.append(is_backward)
            batch.append(turn * batches + one[MICRO_BATCH])
        program.append(parts.after)
        task.append(np.full(len(parts.after), NONE))
    return Stage(
        np.concatenate(program),
        np.concatenate(task),
        np.array(backward, np.bool_),
        np.array(batch, np.int64),
        batches,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """One step's blocks: what comes before its micro-batches, their passes, and what comes after."""

    before: NDArray[np.int64]
    forward: list[NDArray[np.int64]]
    backward: list[NDArray[np.int64]]
    after: NDArray[np.int64]


def _parts(of: Blocks, own: NDArray[np.int64], wanted: int, *, first: bool, last: bool) -> _Parts:
    kind, batch = of.kind[own], of.micro_batch[own]
    inside = np.flatnonzero(kind != OUTSIDE)
    if not len(inside):
        return _Parts(own, [], [], own[:0])
    begun, ended = inside[0], inside[-1]
    outside = kind == OUTSIDE
    at = np.arange(len(own))
    before = own[outside & (at < begun) & (batch < 0)]
    after = own[outside & (at > ended) & (batch < 0)]
    forward, backward = [], []
    for one in np.unique(batch[inside]).tolist():
        ahead = np.flatnonzero((kind == FORWARD_PASS) & (batch == one))
        back = np.flatnonzero((kind == BACKWARD_PASS) & (batch == one))
        around = np.flatnonzero(outside & (batch == one))
        start = ahead[0] if len(ahead) else begun
        middle = back[0] if len(back) else ended + 1
        embedding = around[around < start] if first else around[:0]
        head = around[(around > start) & (around < middle)] if last else around[:0]
        behind = around[around > middle] if first or (not len(back) and last) else around[:0]
        if not len(back):
            head, behind = (around[around > start] if last else around[:0]), around[:0]
        forward.append(own[np.concatenate((embedding, _fitted(of, own, ahead, wanted), head))])
        if len(back):
            backward.append(own[np.concatenate((_fitted(of, own, back, wanted), behind))])
    return _Parts(before, forward, backward, after)


def _fitted(of: Blocks, own: NDArray[np.int64], place: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """Return a pass's blocks with as many layers as wanted: the first ones, or copies in turn."""
    layer = of.layer[own[place]]
    known = np.unique(layer)
    times = np.bincount(np.searchsorted(known, known[np.arange(wanted) % len(known)]), minlength=len(known))
    return np.repeat(place, times[np.searchsorted(known, layer)])


@dataclass(frozen=True, slots=True)
class Ends:
    """Where tasks begin and end on a rank, in rows of its graph; NONE where it has none [tasks]."""

    first_call: NDArray[np.int64]
    first_kernel: NDArray[np.int64]
    last_kernel: NDArray[np.int64]


def ends(made: Rewritten, of: Stage) -> Ends:
    """Return the first call, and the first and the last compute kernel, of every task."""
    graph, many = made.graph, len(of.backward)
    task = of.task[made.position]
    rows = graph.rows
    kernel = graph.gpu.row[(rows.kind[graph.gpu.row] == KERNEL) & (rows.family[graph.gpu.row] != COMMUNICATION)]
    found = [np.full(many, NONE, np.int64) for _ in range(3)]
    for into, every, last in ((found[0], graph.atoms.row, False), (found[1], kernel, False), (found[2], kernel, True)):
        row = every[task[every] >= 0]
        ordered_rows = row[np.argsort(made.position[row], kind="stable")]
        chosen = ordered_rows if last else ordered_rows[::-1]
        into[task[chosen]] = chosen
    return Ends(*found)


@dataclass(frozen=True, slots=True)
class Sends:
    """Sends and receives that a rank gains [k]."""

    kind: NDArray[np.int64]
    """0 to 3: send and receive forward, send and receive backward."""
    micro_batch: NDArray[np.int64]
    after: NDArray[np.int64]
    """Row that lets it start."""
    before: NDArray[np.int64]
    """Row that waits for it, NONE for a send."""


def sends(of: Stage, at: Ends, place: tuple[int, int]) -> Sends:
    """Return what a stage sends and receives."""
    number, stages = place
    first, last = number == 0, number == stages - 1
    parts: list[tuple[NDArray[np.int64], ...]] = []
    none = np.full(len(of.backward), NONE, np.int64)
    for kind, whose, has, after, before in (
        (_SEND_FORWARD, ~of.backward, not last, at.last_kernel, none),
        (_RECEIVE_FORWARD, ~of.backward, not first, at.first_call, at.first_kernel),
        (_SEND_BACKWARD, of.backward, not first, at.last_kernel, none),
        (_RECEIVE_BACKWARD, of.backward, not last, at.first_call, at.first_kernel),
    ):
        mine = np.flatnonzero(whose & (after >= 0)) if has else np.empty(0, np.int64)
        parts.append((np.full(len(mine), kind), of.micro_batch[mine], after[mine], before[mine]))
    return Sends(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def with_sends(graph: Graph, what: Sends, lasts: int) -> Graph:
    """Return a graph with sends and receives, each kind on a stream of its own, in rows behind all others.

    Args:
        graph: the graph.
        what: the sends and receives.
        lasts: ns that each takes without waiting.
    """
    many, old = len(what.kind), len(graph.rows)
    rows = _more_rows(graph.rows, what, lasts)
    new = old + np.arange(many)
    stream = rows.stream[new]
    turn = np.lexsort((np.arange(many), stream))
    before = np.full(many, NONE, np.int64)
    same = stream[turn[1:]] == stream[turn[:-1]]
    before[turn[1:][same]] = new[turn[:-1][same]]
    launched = np.isin(what.kind, (_RECEIVE_FORWARD, _RECEIVE_BACKWARD))
    released = edges(
        what.after.astype(np.int32), new.astype(np.int32), EVENT, 0, False, np.where(launched, START_START, END_START)
    )
    waited = edges(new.astype(np.int32), what.before.astype(np.int32), EVENT, 0, False)
    chain = edges(before.astype(np.int32), new.astype(np.int32), STREAM, 0, False)
    found = join([graph.edges, released, waited, chain])
    itself = np.append(graph.order_target != graph.edges.dst, np.zeros(len(found) - len(graph.edges), np.bool_))
    gpu = _more_work(graph.gpu, new[turn], before[turn], len(rows.stream_keys), stream[turn])
    longer = np.append(graph.atoms.of_row, np.full(many, NONE, np.int32)).astype(np.int32)
    atoms = replace(graph.atoms, of_row=longer)
    found, sequence, target, dropped = ordered(rows, atoms, gpu, found, itself)
    return replace(
        graph,
        rows=rows,
        atoms=atoms,
        gpu=gpu,
        edges=found,
        order=sequence,
        order_target=target,
        own=np.append(graph.own, np.full(many, lasts)),
        ended=np.append(graph.ended, rows.end[len(graph.ended) :]),
        idle_before=np.append(graph.idle_before, np.zeros(many, np.int64)),
        dropped=graph.dropped + dropped,
    )


def _more_rows(rows: Rows, what: Sends, lasts: int) -> Rows:
    many = len(what.kind)
    names = [*rows.names, *_NAMES]
    streams = len(rows.stream_keys)
    key = int(rows.stream_keys[:, 1].max(initial=0)) + 1
    device = int(rows.stream_keys[0, 0]) if streams else 0
    keys = np.vstack((rows.stream_keys, [(device, key + k) for k in range(len(_NAMES))]))
    collectives = [*rows.collectives, "send", "recv"]
    value: dict[str, Any] = {
        "kind": KERNEL,
        "family": COMMUNICATION,
        "name": len(rows.names) + what.kind,
        "ts": rows.ts[what.after],
        "dur": lasts,
        "stream": streams + what.kind,
        "step": rows.step[what.after],
        "collective": len(rows.collectives) + what.kind % 2,
        "group_size": 2,
        "seq_recorded": False,
        **dict.fromkeys(("correlation", "seq", "in_bytes", "wait_stream", "wait_correlation"), rows.null),
    }
    taken: dict[str, Any] = {}
    for name in rows.__slots__:
        column = getattr(rows, name)
        if isinstance(column, np.ndarray) and name not in {"stream_keys", "end"}:
            taken[name] = np.append(column, np.broadcast_to(value.get(name, NONE), many)).astype(column.dtype)
    taken |= {"names": names, "collectives": collectives, "stream_keys": keys}
    return replace(rows, **taken)


def _more_work(
    gpu: Work, row: NDArray[np.int64], before: NDArray[np.int64], streams: int, stream: NDArray[np.int32]
) -> Work:
    many = len(row)
    none = np.full(many, NONE, np.int32)
    old = len(gpu.bounds) - 1
    bounds = np.append(gpu.bounds[:-1], len(gpu.row) + np.searchsorted(stream, np.arange(old, streams + 1)))
    return Work(
        np.append(gpu.row, row).astype(np.int32),
        np.append(gpu.call, none),
        np.append(gpu.launched, np.zeros(many, np.bool_)),
        np.append(gpu.before, before).astype(np.int32),
        np.append(gpu.issued, np.zeros(many, np.int32)).astype(np.int32),
        bounds,
    )
