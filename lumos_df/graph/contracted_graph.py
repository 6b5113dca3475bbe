"""The graph of one rank with only its collectives left: all that the other ranks of a job need to know of it."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import communicates
from lumos_df.graph.gpu_pace import paced
from lumos_df.graph.simulate import forward
from lumos_df.graph.simulate.contraction import contract
from lumos_df.graph.step_nodes import step_nodes
from lumos_df.graph.steps import steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractedGraph:
    """M nodes: k rows that communicate, moments that several of these lead to, the ends of s steps; ns, trace time.

    A simulation gives each the time that it has in the whole graph.
    """

    row: NDArray[np.int32]
    """[k] the rows that are nodes, ascending."""
    steps: int
    """s: the last nodes are when the nodes of each step have ended, or other sinks."""
    src: NDArray[np.int32]
    """[m] node that is waited for."""
    dst: NDArray[np.int32]
    """[m] node that waits."""
    binds: NDArray[np.int8]
    """[m] place in `schema.words.BINDS`."""
    lag: NDArray[np.int64]
    """[m]"""
    order: NDArray[np.int32]
    """[M] an order in which every edge goes forward."""
    own: NDArray[np.int64]
    """[M] how long a node lasts by itself."""
    floor: NDArray[np.int64]
    """[M] earliest start, or UNSET."""
    begun: NDArray[np.int64]
    """[M] recorded start."""


def contracted(graph: TraceGraph, members: NDArray[np.int32] | None = None) -> ContractedGraph:
    """Contract the graph of a rank to its communication kernels, and `members` of collectives that are none."""
    marks = paced(graph, steps(graph.rows))
    node, step = step_nodes(graph, marks)
    sinks = Sinks(moment=2 * node.astype(np.int64) + 1, sink=step, count=len(marks.low))
    left, lag, floor = contracted_times(graph, members, sinks, graph.edges.lag[:, None], graph.own[:, None])
    return replace(left, lag=lag[:, 0], floor=floor[:, 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Nodes at the end of a contracted graph, each of which starts at the last of some moments [k]."""

    moment: NDArray[np.int64]
    """[k] the start of row v at 2v and its end at 2v + 1."""
    sink: NDArray[np.int64]
    """[k]"""
    count: int


def contracted_times(
    graph: TraceGraph,
    members: NDArray[np.int32] | None,
    sinks: Sinks,
    lag: NDArray[np.int64],
    own: NDArray[np.int64],
) -> tuple[ContractedGraph, NDArray[np.int64], NDArray[np.int64]]:
    """Contract the graph of a rank as `contracted` does, with V times for each of its edges and nodes.

    Args:
        graph: the rank.
        members: nodes that stay besides the communication kernels.
        sinks: the last nodes.
        lag: ns [edges, V].
        own: how long each row lasts by itself, ns [rows, V].

    Returns:
        The contracted graph without `lag` and `floor`, and these, ns [m, V] and [M, V].
    """
    rows, edges = graph.rows, graph.edges
    keep = communicates(rows)
    if members is not None:
        keep[members] = True
    row = np.sort(graph.order[keep[graph.order]])
    kept = np.full(len(rows), NONE, np.int32)
    kept[row] = np.arange(len(row))
    pointer, edge = forward.forward_star(edges.src, len(rows))
    src, dst, binds, new_lag, order, floor, of_node = contract(
        graph.order,
        pointer,
        edge,
        edges.dst,
        edges.binds,
        lag,
        own,
        graph.earliest_starts,
        kept,
        sinks.moment,
        sinks.sink,
        len(row),
        sinks.count,
    )
    left = ContractedGraph(
        row=row,
        steps=sinks.count,
        src=src,
        dst=dst,
        binds=binds,
        lag=np.empty(0, np.int64),
        order=order,
        own=np.append(graph.own[row], np.zeros(len(order) - len(row), np.int64)),
        floor=np.empty(0, np.int64),
        begun=np.append(rows.ts, rows.end.max(initial=0))[of_node],
    )
    return left, new_lag, floor
