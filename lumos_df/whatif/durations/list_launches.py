"""Operators on lists of parameters: the more parameters a rank has, the more often one launches its kernel.

A launch of PyTorch's `_foreach_` operators has room for 320 parts of 65,536 elements, so a list of all parameters takes
several. Before the first one the host goes through the list, and makes a tensor for each where there is a result.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, KERNEL, OPTIMIZER
from lumos_df.structure.layers import Structure


def slower(graph: TraceGraph, structure: Structure, growth: float, tensors: float) -> NDArray[np.float64]:
    """Return how many times as long the host takes to launch each row, with the work that leads to it [n].

    Where the optimizer's operator launches one kernel several times, the first launch takes as many times as long as
    there will be tensors, and the others stand for those that there will be. One launch alone does not tell a list.

    Args:
        graph: the trace.
        structure: phase of every operator.
        growth: by how much the elements of a rank's parameters grow.
        tensors: by how much its parameters become more.
    """
    rows = graph.rows
    factor = np.ones(len(rows))
    kernel = graph.gpu.row[graph.gpu.launched]
    kernel = kernel[(rows.kind[kernel] == KERNEL) & (structure.phase[kernel] == OPTIMIZER)]
    call = rows.parent[kernel]
    operator = rows.nearest(rows.kind == CPU_OP, call)
    inside = operator >= 0
    call, like = call[inside], packed(operator[inside], rows.name[kernel[inside]])
    order = np.lexsort((rows.ts[call], like))
    _, first, count = np.unique(like[order], return_index=True, return_counts=True)
    many = np.repeat(count, count)
    of_call = np.maximum(many * growth - 1, 0) / np.maximum(many - 1, 1)
    of_call[first] = tensors
    factor[call[order]] = np.where(many > 1, of_call, 1.0)
    return factor
