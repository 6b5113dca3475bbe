"""The graph of one rank with only its collectives left: all that the other ranks of a job need to know of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import communicates
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
    """s: the last nodes are when the nodes of each step have ended."""
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
    rows, edges = graph.rows, graph.edges
    keep = communicates(rows)
    if members is not None:
        keep[members] = True
    row = np.sort(graph.order[keep[graph.order]])
    kept = np.full(len(rows), NONE, np.int32)
    kept[row] = np.arange(len(row))
    marks = steps(rows)
    sink = np.full(len(rows), NONE, np.int32)
    node, step = step_nodes(graph, marks)
    sink[node] = step
    pointer, edge = forward.forward_star(edges.src, len(rows))
    src, dst, binds, lag, order, floor, of_node = contract(
        graph.order,
        pointer,
        edge,
        edges.dst,
        edges.binds,
        edges.lag,
        graph.own,
        graph.earliest_starts,
        kept,
        sink,
        len(row),
        len(marks.low),
    )
    own = np.zeros(len(order), np.int64)
    own[: len(row)] = graph.own[row]
    return ContractedGraph(
        row=row,
        steps=len(marks.low),
        src=src,
        dst=dst,
        binds=binds,
        lag=lag,
        order=order,
        own=own,
        floor=floor,
        begun=np.append(rows.ts, rows.end.max(initial=0))[of_node],
    )
