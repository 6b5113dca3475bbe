"""The nodes of a graph with which its steps end."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.steps import Steps, works
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


def last_nodes(graph: TraceGraph, marks: Steps, end: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the node from whose end each step's end follows, or NONE; `end`: [n] ns."""
    if marks.mark[0] == NONE:
        order = graph.order[works(graph.rows)[graph.order]]
        return order[np.argmax(end[order], keepdims=True)] if len(order) else marks.mark
    atom = graph.atoms.last_before(graph.rows.thread[marks.mark], marks.high)
    on_host = np.where(atom >= 0, graph.atoms.row[np.maximum(atom, 0)], NONE)
    on_gpu = marks.gpu_row[1:]
    return np.where(on_gpu >= 0, on_gpu, on_host).astype(np.int32)


def step_nodes(graph: TraceGraph, marks: Steps) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the nodes that end no later than a step does, whatever the simulation, and which step that is [k].

    A step that is marked ends with the last node before its mark ends, or with a row of a GPU that falls behind it.
    A trace without marks ends with all its work.
    """
    if marks.mark[0] == NONE:
        node = graph.order[works(graph.rows)[graph.order]]
        return node, np.zeros(len(node), np.int64)
    last = last_nodes(graph, marks, graph.ended)
    step = np.flatnonzero(last >= 0)
    return last[step], step
