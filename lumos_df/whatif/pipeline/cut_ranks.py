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
from lumos_df.schema.codes import NONE
from lumos_df.structure.compute_stream import compute_stream
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
    rank_blocks = blocks(graph, about.structure)
    source = np.arange(len(graph.rows), dtype=np.int32)
    untold = 0.0
    if parts_gradients:
        graph, rank_blocks, source, untold = parted(graph, rank_blocks, about.trace, about.structure.phase, reduces)
    bounds = np.append(
        np.flatnonzero(np.diff(rank_blocks.step, prepend=rank_blocks.step[:1] - 1)), len(rank_blocks)
    ).tolist()
    turns = [np.arange(low, high) for low, high in pairwise(bounds)]
    stage, stages = about.stage.number, anchor.sizes.pp or 1
    ends = stages == 1 or stage in (None, 0), stages == 1 or stage in (None, stages - 1)
    every = updates(about, anchor.sizes, np.arange(len(about.trace), dtype=np.int32))
    return Cut((rank,), graph, rank_blocks, source, turns, reduces[source], every[source], untold, ends)


def joined(first_rank: Cut, last_rank: Cut, rows: int) -> Cut:
    """Return two ranks as one that has the embedding of the first, the head of the other, and the layers of both.

    Args:
        first_rank: a rank of the first stage.
        last_rank: one of the last.
        rows: operators of the first one's trace.

    Raises:
        QueryError: they did not run the same steps and micro-batches.
    """
    here, there = first_rank.blocks, last_rank.blocks
    if len(first_rank.turns) != len(last_rank.turns) or not np.array_equal(
        np.unique(here.micro_batch[here.kind != OUTSIDE]), np.unique(there.micro_batch[there.kind != OUTSIDE])
    ):
        job, numbers = first_rank.graph.rows.job, [each.graph.rows.rank for each in (first_rank, last_rank)]
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
    turns = [
        _turn(both, first, last + len(here)) for first, last in zip(first_rank.turns, last_rank.turns, strict=True)
    ]
    return Cut(
        first_rank.ranks + last_rank.ranks,
        _graphs(first_rank, last_rank),
        both,
        np.append(first_rank.source, last_rank.source + rows).astype(np.int32),
        turns,
        np.append(first_rank.reductions, last_rank.reductions),
        np.append(first_rank.updates, last_rank.updates),
        max(first_rank.untold, last_rank.untold),
    )


def _turn(blocks: Blocks, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the blocks of one step in the order of their work: down through both ranks, and up again.

    What a rank does between its forward and its backward pass in the place of the other rank is left out.
    """
    ahead, back = _passes(blocks, first)
    low = _passes(blocks, last)[0]
    around = blocks.kind[first] == OUTSIDE
    early = first < back
    kept = (blocks.micro_batch[first] >= 0) & ~(around & (first > ahead) & early)
    inside = (blocks.micro_batch[last] >= 0) & ~((blocks.kind[last] == OUTSIDE) & (last < low))
    passes = np.append(first[kept], last[inside])
    turn = np.append(np.where(early[kept], 0, 2), np.ones(int(inside.sum()), np.int64))
    begun = first[~around].min(initial=_NEVER)
    ended = last[blocks.kind[last] != OUTSIDE].max(initial=NONE)
    return np.concatenate(
        (
            first[(blocks.micro_batch[first] < 0) & (first < begun)],
            passes[np.lexsort((passes, turn, blocks.micro_batch[passes]))],
            last[(blocks.micro_batch[last] < 0) & (last > ended)],
        )
    )


def _passes(blocks: Blocks, block: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first block of the forward and of the backward pass of each block's micro-batch."""
    batch = blocks.micro_batch[block]
    starts = []
    for kind in (FORWARD_PASS, BACKWARD_PASS):
        first = np.full(int(batch.max(initial=0)) + 2, _NEVER)
        mine = (blocks.kind[block] == kind) & (batch >= 0)
        np.minimum.at(first, batch[mine], block[mine])
        starts.append(first[batch])
    return starts[0], starts[1]


def _graphs(first_rank: Cut, last_rank: Cut) -> TraceGraph:
    """Return two graphs as one: on the same threads and streams, the second behind the first."""
    first, last = first_rank.graph, last_rank.graph
    row_count, atom_count = len(first.rows), len(first.atoms.row)
    later = int(np.max(first.ended, initial=0)) - int(last.atoms.ts.min(initial=0))
    rows = _rows(first.rows, last.rows, _threads(first_rank, last_rank), _streams(first.rows, last.rows), later)

    def behind(values: NDArray[np.int32], by: int) -> NDArray[np.int32]:
        return np.where(values >= 0, values + by, NONE).astype(np.int32)

    row = np.append(first.atoms.row, last.atoms.row + row_count).astype(np.int32)
    thread = rows.thread[row]
    bounds, by_thread = forward_star(thread, int(rows.thread.max(initial=0)) + 1)
    made = Atoms(
        row=row,
        thread=thread,
        ts=np.append(first.atoms.ts, last.atoms.ts + later),
        dur=np.append(first.atoms.dur, last.atoms.dur),
        of_row=np.append(first.atoms.of_row, behind(last.atoms.of_row, atom_count)),
        before=_before(by_thread, thread),
        by_thread=by_thread,
        bounds=bounds,
    )
    work = np.append(first.gpu.row, last.gpu.row + row_count).astype(np.int32)
    turn = np.argsort(rows.stream[work], kind="stable")
    calls, issued = (
        np.append(getattr(first.gpu, name), behind(getattr(last.gpu, name), atom_count))[turn]
        for name in ("call", "issued")
    )
    gpu = GpuStreams(
        row=work[turn],
        call=calls,
        launched=np.append(first.gpu.launched, last.gpu.launched)[turn],
        before=np.append(NONE, np.where(np.diff(rows.stream[work[turn]]) == 0, work[turn][:-1], NONE)).astype(np.int32),
        issued=issued,
        bounds=np.searchsorted(rows.stream[work[turn]], np.arange(len(rows.stream_keys) + 1)),
    )
    moved = replace(last.edges, src=last.edges.src + np.int32(row_count), dst=last.edges.dst + np.int32(row_count))
    return replace(
        first,
        rows=rows,
        atoms=made,
        gpu=gpu,
        edges=join([first.edges, moved]),
        order=np.append(first.order, last.order + row_count).astype(np.int32),
        order_target=np.append(first.order_target, behind(last.order_target, row_count)),
        own=np.append(first.own, last.own),
        idle_before=np.append(first.idle_before, last.idle_before),
        unknown=np.append(first.unknown, last.unknown),
        carried=np.append(first.carried, last.carried + row_count).astype(np.int32),
        dropped=first.dropped + last.dropped,
    )


def _before(by_thread: NDArray[np.int32], thread: NDArray[np.int32]) -> NDArray[np.int32]:
    before = np.full(len(thread), NONE, np.int32)
    same = thread[by_thread[1:]] == thread[by_thread[:-1]]
    before[by_thread[1:][same]] = by_thread[:-1][same]
    return before


def _rows(first: Rows, last: Rows, thread: NDArray[np.int64], stream: NDArray[np.int64], later: int) -> Rows:
    """Return the operators of two traces as one.

    Args:
        first, last: the operators.
        thread, stream: number that each thread and stream of the second has among those of the first.
        later: ns by which the second is moved.
    """
    more: dict[str, Any] = {
        "name": _shifted(last.name, len(first.names)),
        "group": _shifted(last.group, len(first.groups)),
        "collective": _shifted(last.collective, len(first.collectives)),
        "parent": _shifted(last.parent, len(first)),
        "forward": _shifted(last.forward, len(first)),
        "thread": np.append(thread, NONE)[last.thread],
        "stream": np.append(stream, NONE)[last.stream],
        "ts": last.ts + later,
    }
    taken: dict[str, Any] = {}
    for name in first.__slots__:
        column = getattr(first, name)
        if isinstance(column, np.ndarray) and name not in {"stream_keys", "end"}:
            taken[name] = np.append(column, more.get(name, getattr(last, name))).astype(column.dtype)
    added = stream >= len(first.stream_keys)
    return replace(
        first,
        **taken,
        names=[*first.names, *last.names],
        groups=[*first.groups, *last.groups],
        collectives=[*first.collectives, *last.collectives],
        stream_keys=np.vstack((first.stream_keys, last.stream_keys[added])),
    )


def _shifted(codes: NDArray[np.int32] | NDArray[np.int8], by: int) -> NDArray[np.int64]:
    return np.where(codes >= 0, codes.astype(np.int64) + by, NONE)


def _threads(first_rank: Cut, last_rank: Cut) -> NDArray[np.int64]:
    """Return which thread of the first each of the second's is: those of either pass the same, the others new ones."""
    thread_of = np.full(int(last_rank.graph.rows.thread.max(initial=NONE)) + 1, NONE, np.int64)
    for kind in (BACKWARD_PASS, FORWARD_PASS):
        mine, theirs = (_busiest(each, kind) for each in (first_rank, last_rank))
        if mine >= 0 and theirs >= 0:
            thread_of[theirs] = mine
    new = thread_of < 0
    thread_of[new] = int(first_rank.graph.rows.thread.max(initial=NONE)) + 1 + np.arange(int(new.sum()))
    return thread_of


def _busiest(rank: Cut, kind: int) -> int:
    """Return the thread with most moments in blocks of a kind, or NONE."""
    row = rank.graph.atoms.row
    mine = rank.blocks.kind[rank.blocks.of_row[row]] == kind
    return int(np.argmax(np.bincount(rank.graph.atoms.thread[mine]))) if mine.any() else NONE


def _streams(first: Rows, last: Rows) -> NDArray[np.int64]:
    """Return which stream of the first each of the second's is: that of most compute, else that of the same name."""
    stream_of = np.full(len(last.stream_keys), NONE, np.int64)
    computes = compute_stream(last)
    if computes != NONE:
        stream_of[computes] = compute_stream(first)
    for number, name in enumerate(last.stream_keys[:, 1].tolist()):
        same = np.flatnonzero(first.stream_keys[:, 1] == name)
        if stream_of[number] < 0 and len(same) and same[0] not in stream_of:
            stream_of[number] = same[0]
    new = stream_of < 0
    stream_of[new] = len(first.stream_keys) + np.arange(int(new.sum()))
    return stream_of
