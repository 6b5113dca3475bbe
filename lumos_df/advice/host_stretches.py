"""A job in which some runs of operators take no time: with all that passes between them, where there is no GPU."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_calls import without_calls
from lumos_df.advice.less_work import less_work
from lumos_df.advice.torch_names import NODE
from lumos_df.graph.host_collectives import meanwhile
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import around, inherited
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, NONE, SYNC_EDGE


def runs_of(sequence: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the run of chosen rows that each row is in, numbered from 0; NONE of one that is not chosen [k].

    Args:
        sequence: number of the sequence of each row, in their order; no run leaves it [k].
        chosen: which rows are chosen [k].
    """
    begins = chosen.copy()
    begins[1:] &= ~chosen[:-1] | (sequence[1:] != sequence[:-1])
    return np.where(chosen, np.cumsum(begins) - 1, NONE)


def outermost(rows: Rows) -> NDArray[np.int64]:
    """Return the operators of the steps of a rank that no other one calls, by thread and time [k]."""
    operator = rows.kind == CPU_OP
    outer = np.flatnonzero(operator & (rows.step >= 0) & ~np.append(operator, False)[rows.parent])
    return outer[np.lexsort((rows.ts[outer], rows.thread[outer]))]


def learns(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows, or rows inside of them, a node of the backward pass belongs to [n]."""
    learned = np.zeros(len(rows), np.bool_)
    learned[rows.forward[rows.forward >= 0]] = True
    learned |= around(learned, rows.parent)
    return learned


def with_backward(rows: Rows, outer: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of some outermost operators are chosen, or nodes of the backward pass of chosen ones [k].

    Args:
        rows: the rows of a rank.
        outer: some of its outermost operators [k].
        chosen: which of them [k].
    """
    called = np.zeros(len(rows), np.bool_)
    called[outer[chosen]] = True
    forward = np.append(inherited(called, rows.parent), False)
    return chosen | (forward[rows.forward[outer]] & rows.named(lambda text: text.startswith(NODE))[outer])


def without_stretches(
    advised: AdvisedJob, call: list[NDArray[np.int64]], run: list[NDArray[np.int64]], *, part: float = 1.0
) -> tuple[int, Callable[[ChangedGraph], None]]:
    """Return what runs of operators take, ns, and the change that it, or a part of it, is gone.

    Without a GPU that is the time from the first to the end of the last. With one it is that of the kernels by
    themselves, which go with the operators and their calls.

    Args:
        advised: the job.
        call: operators of each rank, in their order, of a run on one thread [k].
        run: number of the run of each, ascending [k].
        part: what goes of each run; all where there is a GPU.
    """
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return _without_kernels(advised, call)
    lags, inside = [], []
    for rows, host, mine, of_run in zip(advised.ranks, advised.host_works, call, run, strict=True):
        called = np.zeros(len(rows), np.bool_)
        called[mine] = True
        inside.append(inherited(called, rows.parent))
        _, first = np.unique(of_run, return_index=True)
        lasts = np.maximum.reduceat(rows.end[mine], first) - rows.ts[mine[first]] if len(mine) else mine
        of_thread = np.isin(rows.thread[host.graph.edges.dst], rows.thread[mine[first]])
        lags.append(np.where(of_thread, meanwhile(host, mine[first], lasts), 0))
    taken = np.concatenate(lags)
    lag = np.round(part * taken).astype(np.int64)
    nodes = np.flatnonzero(np.concatenate(inside) & advised.simulated)

    def apply(changed: ChangedGraph) -> None:
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))
        changed.own[nodes] = np.round((1 - part) * changed.own[nodes]).astype(np.int64)

    return int(taken.sum() + advised.event_graph.own[nodes].sum()), apply


def _without_kernels(advised: AdvisedJob, call: list[NDArray[np.int64]]) -> tuple[int, Callable[[ChangedGraph], None]]:
    part = [np.ones(len(rows)) for rows in advised.ranks]
    for of_rank, mine in zip(part, call, strict=True):
        of_rank[mine] = 0
    less = less_work(advised, part)
    on_gpu = np.concatenate([rows.on_gpu for rows in advised.ranks])
    gone = less.node[(less.node_part == 0) & on_gpu[less.node]]
    # That leaves what is far longer than usual, as what loads code is; what these operators take goes in any case.
    _, without = without_calls(advised, call)
    unwaited = np.concatenate(
        [_waits(graph, mine) + base for graph, mine, base in zip(advised.graphs, call, advised.edge_base, strict=False)]
    )

    def apply(changed: ChangedGraph) -> None:
        other = ChangedGraph(changed.own.copy(), changed.lag.copy(), changed.floor, changed.transfer)
        without(other)
        less.apply(changed)
        np.minimum(changed.own, other.own, out=changed.own)
        np.minimum(changed.lag, other.lag, out=changed.lag)
        changed.wait_no_more(unwaited)

    return int(advised.event_graph.own[gone].sum()), apply


def _waits(graph: TraceGraph, call: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges by which calls within some operators wait for the GPU, but for the last that waits in each step.

    Without that the host would run ahead of the GPU, out of the step.
    """
    rows, edges = graph.rows, graph.edges
    waiting = np.flatnonzero(edges.kind == SYNC_EDGE)
    waits = edges.dst[waiting]
    last = np.full(int(rows.step.max(initial=NONE)) + 2, -1, np.int64)
    np.maximum.at(last, rows.step[waits] + 1, rows.ts[waits])
    called = np.zeros(len(rows), np.bool_)
    called[call] = True
    inside = inherited(called, rows.parent)[waits] & (rows.ts[waits] < last[rows.step[waits] + 1])
    unwaited: NDArray[np.int64] = waiting[inside]
    return unwaited
