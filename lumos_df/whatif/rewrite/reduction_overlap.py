"""Gradient reduction while the backward pass runs, or only after it."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.edges.columns import edges, join
from lumos_df.graph.gpu_streams import in_order
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, EVENT, NONE, RECOMPUTE, STREAM
from lumos_df.structure.layers import Structure
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.rewrite.forward_edges import ordered


def with_overlap(graph: TraceGraph, structure: Structure, reductions: NDArray[np.int32], *, on: bool) -> TraceGraph:
    """Return a graph whose gradients are reduced during the backward pass of their step (`on`), or after it.

    On: the i-th of n reductions starts once the i-th of n parts of the backward pass is done, whenever it was launched,
    or already behind what of that pass was issued before it: its gradients were ready then.
    Off: each of them waits for the last kernel of the backward pass, behind what else its stream has for that pass.

    Raises `QueryError` where there is no backward pass or no reduction.
    """
    rows = graph.rows
    kernel = structure.kernels.row
    kernel = kernel[np.isin(structure.phase[kernel], (BACKWARD, RECOMPUTE)) & (rows.family[kernel] != COMMUNICATION)]
    if not len(reductions) or not len(kernel):
        what = "reduces no gradients" if not len(reductions) else "has no backward pass"
        if host_times.communicates(graph):
            what = "communicates on the host and not on a GPU"
        raise QueryError(
            f"{rows.job}: rank {rows.rank} {what}, so overlap changes nothing; record training with dp=2 on GPUs"
        )
    source, target = [], []
    issued = np.full(len(rows), NONE, np.int64)
    issued[graph.gpu.row] = graph.gpu.issued
    if not on:
        graph = _reductions_last(graph, reductions, kernel)
    for step in np.unique(rows.step[reductions]).tolist():
        reduced = reductions[rows.step[reductions] == step]
        work = kernel[rows.step[kernel] == step]
        if not len(work):
            continue
        reduced, work = (
            reduced[np.argsort(rows.ts[reduced], kind="stable")],
            work[np.argsort(rows.ts[work], kind="stable")],
        )
        ready = np.searchsorted(np.sort(issued[work]), issued[reduced])
        part = np.minimum(np.arange(1, len(reduced) + 1) * len(work) // len(reduced), ready).clip(1) - 1
        source.append(work[part] if on else np.full(len(reduced), work[-1]))
        target.append(reduced)
    into = np.concatenate(target) if target else reductions[:0]
    led = np.zeros(len(rows), np.bool_)
    led[into] = on
    kept = ~led[graph.edges.dst] | (graph.edges.kind == STREAM)
    made = edges(np.concatenate(source) if source else into, into, EVENT, 0, False)
    itself = np.append((graph.order_target != graph.edges.dst)[kept], np.zeros(len(made), np.bool_))
    forward_edges, sequence, order_target, dropped = ordered(
        rows, graph.atoms, graph.gpu, join([graph.edges.where(kept), made]), itself
    )
    return replace(
        graph, edges=forward_edges, order=sequence, order_target=order_target, dropped=graph.dropped + dropped
    )


def _reductions_last(graph: TraceGraph, reductions: NDArray[np.int32], work: NDArray[np.int32]) -> TraceGraph:
    """Return a graph whose streams reduce gradients behind all else that they do until the backward pass ends.

    What the backward pass waits for may be behind a reduction, which is not to hold it up any more.
    """
    rows, gpu = graph.rows, graph.gpu
    reduces = np.isin(gpu.row, reductions)
    place, stream = np.arange(len(gpu.row)), rows.stream[gpu.row]
    turn = place.astype(np.float64)
    for step in np.unique(rows.step[reductions]).tolist():
        until = rows.end[work[rows.step[work] == step]].max(initial=0)
        in_pass = (rows.step[gpu.row] == step) & (rows.ts[gpu.row] < until)
        for each in np.unique(stream[in_pass & reduces]).tolist():
            mine = in_pass & (stream == each)
            # Behind the last of them, in their order.
            turn[mine & reduces] = place[mine][-1] + turn[mine & reduces] / len(turn)
    order = np.lexsort((turn, stream))
    moved = in_order(rows, gpu.row[order], gpu.call[order], gpu.launched[order])
    row, before = moved.row, moved.before
    of_row = np.full(len(rows), NONE, np.int32)
    of_row[row] = before
    chain = graph.edges.kind == STREAM
    source = np.where(chain, of_row[graph.edges.dst], graph.edges.src).astype(np.int32)
    kept = source >= 0
    led = np.zeros(len(rows), np.bool_)
    led[graph.edges.dst[chain]] = True
    first = row[(before >= 0) & ~led[row]]
    begun = edges(of_row[first], first, STREAM, 0, False)
    return replace(
        graph,
        gpu=moved,
        edges=join([replace(graph.edges, src=source).where(kept), begun]),
        order_target=np.append(graph.order_target[kept], begun.dst).astype(np.int32),
    )
