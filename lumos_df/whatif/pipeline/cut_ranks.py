"""Traced ranks as blocks that stages are made of: one by itself, or one each of the first and the last stage as one."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.edges.columns import join
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import forward_star
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, NONE
from lumos_df.whatif.durations.operator_times import reductions, updates
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.pipeline.weight_gradients import parted
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, FORWARD_PASS, OUTSIDE, Blocks, blocks

_NEVER: Final = np.int64(1) << 60


@dataclass(frozen=True, slots=True)
class Cut:
    """One traced rank, or two as one, as a sequence of blocks."""

    ranks: tuple[int, ...]
    """Places in the job."""
    graph: TraceGraph
    blocks: Blocks
    source: NDArray[np.int32]
    """Row of the traces of `ranks`, one behind the other, that each row of the graph is."""
    turns: list[NDArray[np.int64]]
    """The blocks of each step, in the order of their work."""
    reductions: NDArray[np.bool_]
    """Which rows of the graph reduce gradients once a step."""
    updates: NDArray[np.bool_]
    """Which rows go over all parameters of the rank."""
    untold: float
    """Share of the time of the backward pass's products that may be gradients of weights, but are not parted."""
    ends: tuple[bool, bool] = (True, True)
    """Whether it has the embedding, and whether it has the head."""


def cut(anchor: RecordedJob, graph: TraceGraph, rank: int, *, parts_gradients: bool) -> Cut:
    """Cut one rank into blocks.

    Args:
        anchor: the job.
        graph: of that rank, with its new durations.
        rank: place of the rank in the job.
        parts_gradients: whether gradients of weights become blocks of their own.

    Raises:
        QueryError: nothing tells which work is gradients of weights.
    """
    about = anchor.about.ranks[rank]
    reduces = reductions(anchor, rank)
    found = blocks(graph, about.structure)
    source = np.arange(len(graph.rows), dtype=np.int32)
    untold = 0.0
    if parts_gradients:
        graph, found, source, untold = parted(graph, found, about.trace, about.structure.phase, reduces)
    bounds = np.append(np.flatnonzero(np.diff(found.step, prepend=found.step[:1] - 1)), len(found)).tolist()
    turns = [np.arange(low, high) for low, high in pairwise(bounds)]
    stage, stages = about.stage.number, anchor.sizes.pp or 1
    ends = stages == 1 or stage in (None, 0), stages == 1 or stage in (None, stages - 1)
    every = updates(about, anchor.sizes, np.arange(len(about.trace), dtype=np.int32))
    return Cut((rank,), graph, found, source, turns, reduces[source], every[source], untold, ends)


def joined(one: Cut, other: Cut, rows: int) -> Cut:
    """Return two ranks as one that has the embedding of the first, the head of the other, and the layers of both.

    Args:
        one: a rank of the first stage.
        other: one of the last.
        rows: operators of the first one's trace.

    Raises:
        QueryError: they did not run the same steps and micro-batches.
    """
    here, there = one.blocks, other.blocks
    if len(one.turns) != len(other.turns) or not np.array_equal(
        np.unique(here.micro_batch[here.kind != OUTSIDE]), np.unique(there.micro_batch[there.kind != OUTSIDE])
    ):
        job, numbers = one.graph.rows.job, [each.graph.rows.rank for each in (one, other)]
        raise QueryError(
            f"{job}: ranks {numbers[0]} and {numbers[1]} were not recorded over the same steps and micro-batches, so "
            "no stage can be made of both; record them together, or take another pp"
        )
    deeper = int(here.layer.max(initial=NONE)) + 1
    both = Blocks(
        np.append(here.of_row, there.of_row + len(here)).astype(np.int32),
        np.append(here.kind, there.kind),
        np.append(here.step, there.step),
        np.append(here.micro_batch, there.micro_batch),
        np.append(here.layer, np.where(there.layer >= 0, there.layer + deeper, NONE)).astype(np.int32),
    )
    turns = [_turn(both, first, last + len(here)) for first, last in zip(one.turns, other.turns, strict=True)]
    return Cut(
        one.ranks + other.ranks,
        _graphs(one, other),
        both,
        np.append(one.source, other.source + rows).astype(np.int32),
        turns,
        np.append(one.reductions, other.reductions),
        np.append(one.updates, other.updates),
        max(one.untold, other.untold),
    )


def _turn(of: Blocks, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the blocks of one step in the order of their work: down through both ranks, and up again.

    What a rank does between its forward and its backward pass in the place of the other rank is left out.
    """
    ahead, back = _passes(of, first)
    low = _passes(of, last)[0]
    around = of.kind[first] == OUTSIDE
    early = first < back
    kept = (of.micro_batch[first] >= 0) & ~(around & (first > ahead) & early)
    inside = (of.micro_batch[last] >= 0) & ~((of.kind[last] == OUTSIDE) & (last < low))
    own = np.append(first[kept], last[inside])
    turn = np.append(np.where(early[kept], 0, 2), np.ones(int(inside.sum()), np.int64))
    begun = first[~around].min(initial=_NEVER)
    ended = last[of.kind[last] != OUTSIDE].max(initial=NONE)
    return np.concatenate(
        (
            first[(of.micro_batch[first] < 0) & (first < begun)],
            own[np.lexsort((own, turn, of.micro_batch[own]))],
            last[(of.micro_batch[last] < 0) & (last > ended)],
        )
    )


def _passes(of: Blocks, own: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first block of the forward and of the backward pass of each block's micro-batch."""
    batch = of.micro_batch[own]
    found = []
    for kind in (FORWARD_PASS, BACKWARD_PASS):
        first = np.full(int(batch.max(initial=0)) + 2, _NEVER)
        mine = (of.kind[own] == kind) & (batch >= 0)
        np.minimum.at(first, batch[mine], own[mine])
        found.append(first[batch])
    return found[0], found[1]


def _graphs(one: Cut, other: Cut) -> TraceGraph:
    """Return two graphs as one: on the same threads and streams, the second behind the first."""
    first, last = one.graph, other.graph
    many, atoms = len(first.rows), len(first.atoms.row)
    later = int(np.max(first.ended, initial=0)) - int(last.atoms.ts.min(initial=0))
    rows = _rows(first.rows, last.rows, _threads(one, other), _streams(first.rows, last.rows), later)

    def behind(values: NDArray[np.int32], by: int) -> NDArray[np.int32]:
        return np.where(values >= 0, values + by, NONE).astype(np.int32)

    row = np.append(first.atoms.row, last.atoms.row + many).astype(np.int32)
    thread = rows.thread[row]
    bounds, by_thread = forward_star(thread, int(rows.thread.max(initial=0)) + 1)
    made = Atoms(
        row=row,
        thread=thread,
        ts=np.append(first.atoms.ts, last.atoms.ts + later),
        dur=np.append(first.atoms.dur, last.atoms.dur),
        of_row=np.append(first.atoms.of_row, behind(last.atoms.of_row, atoms)),
        before=_before(by_thread, thread),
        by_thread=by_thread,
        bounds=bounds,
    )
    work = np.append(first.gpu.row, last.gpu.row + many).astype(np.int32)
    turn = np.argsort(rows.stream[work], kind="stable")
    calls, issued = (
        np.append(getattr(first.gpu, name), behind(getattr(last.gpu, name), atoms))[turn] for name in ("call", "issued")
    )
    gpu = GpuStreams(
        row=work[turn],
        call=calls,
        launched=np.append(first.gpu.launched, last.gpu.launched)[turn],
        before=np.append(NONE, np.where(np.diff(rows.stream[work[turn]]) == 0, work[turn][:-1], NONE)).astype(np.int32),
        issued=issued,
        bounds=np.searchsorted(rows.stream[work[turn]], np.arange(len(rows.stream_keys) + 1)),
    )
    moved = replace(last.edges, src=last.edges.src + np.int32(many), dst=last.edges.dst + np.int32(many))
    return replace(
        first,
        rows=rows,
        atoms=made,
        gpu=gpu,
        edges=join([first.edges, moved]),
        order=np.append(first.order, last.order + many).astype(np.int32),
        order_target=np.append(first.order_target, behind(last.order_target, many)),
        own=np.append(first.own, last.own),
        idle_before=np.append(first.idle_before, last.idle_before),
        carried=np.append(first.carried, last.carried + many).astype(np.int32),
        dropped=first.dropped + last.dropped,
    )


def _before(by_thread: NDArray[np.int32], thread: NDArray[np.int32]) -> NDArray[np.int32]:
    before = np.full(len(thread), NONE, np.int32)
    same = thread[by_thread[1:]] == thread[by_thread[:-1]]
    before[by_thread[1:][same]] = by_thread[:-1][same]
    return before


def _rows(one: Rows, other: Rows, thread: NDArray[np.int64], stream: NDArray[np.int64], later: int) -> Rows:
    """Return the operators of two traces as one.

    Args:
        one, other: the operators.
        thread, stream: number that each thread and stream of the second has among those of the first.
        later: ns by which the second is moved.
    """
    more: dict[str, Any] = {
        "name": _shifted(other.name, len(one.names)),
        "group": _shifted(other.group, len(one.groups)),
        "collective": _shifted(other.collective, len(one.collectives)),
        "parent": _shifted(other.parent, len(one)),
        "forward": _shifted(other.forward, len(one)),
        "thread": np.append(thread, NONE)[other.thread],
        "stream": np.append(stream, NONE)[other.stream],
        "ts": other.ts + later,
    }
    taken: dict[str, Any] = {}
    for name in one.__slots__:
        column = getattr(one, name)
        if isinstance(column, np.ndarray) and name not in {"stream_keys", "end"}:
            taken[name] = np.append(column, more.get(name, getattr(other, name))).astype(column.dtype)
    added = stream >= len(one.stream_keys)
    return replace(
        one,
        **taken,
        names=[*one.names, *other.names],
        groups=[*one.groups, *other.groups],
        collectives=[*one.collectives, *other.collectives],
        stream_keys=np.vstack((one.stream_keys, other.stream_keys[added])),
    )


def _shifted(codes: NDArray[np.int32] | NDArray[np.int8], by: int) -> NDArray[np.int64]:
    return np.where(codes >= 0, codes.astype(np.int64) + by, NONE)


def _threads(one: Cut, other: Cut) -> NDArray[np.int64]:
    """Return which thread of the first each of the second's is: those of either pass the same, the others new ones."""
    found = np.full(int(other.graph.rows.thread.max(initial=NONE)) + 1, NONE, np.int64)
    for kind in (BACKWARD_PASS, FORWARD_PASS):
        mine, theirs = (_busiest(each, kind) for each in (one, other))
        if mine >= 0 and theirs >= 0:
            found[theirs] = mine
    new = found < 0
    found[new] = int(one.graph.rows.thread.max(initial=NONE)) + 1 + np.arange(int(new.sum()))
    return found


def _busiest(of: Cut, kind: int) -> int:
    """Return the thread with most moments in blocks of a kind, or NONE."""
    row = of.graph.atoms.row
    mine = of.blocks.kind[of.blocks.of_row[row]] == kind
    return int(np.argmax(np.bincount(of.graph.atoms.thread[mine]))) if mine.any() else NONE


def _streams(one: Rows, other: Rows) -> NDArray[np.int64]:
    """Return which stream of the first each of the second's is: that of most compute, else that of the same name."""
    found = np.full(len(other.stream_keys), NONE, np.int64)
    found[_compute(other)] = _compute(one)
    for number, name in enumerate(other.stream_keys[:, 1].tolist()):
        same = np.flatnonzero(one.stream_keys[:, 1] == name)
        if found[number] < 0 and len(same) and same[0] not in found:
            found[number] = same[0]
    new = found < 0
    found[new] = len(one.stream_keys) + np.arange(int(new.sum()))
    return found


def _compute(rows: Rows) -> int:
    mine = rows.on_gpu & (rows.family != COMMUNICATION) & (rows.stream >= 0)
    return int(np.argmax(np.bincount(rows.stream[mine], minlength=1)))
