"""What one step alone tells of what comes once: first calls, first launches, and memory that only grows."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, typical_values
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, KERNEL, LAUNCH, NONE, RUNTIME

_ALLOCATES: Final = re.compile(r"(?:cuda|hip|cu)(?:Malloc|MemAlloc|MemCreate|MemMap)(?:_v\d)?$")

_CAPTURES: Final = re.compile(r"(?:cuda|hip|cu)GraphInstantiate")

_SCRIPTED: Final = re.compile(r"fallback_function$|prim::|\w*(?:CudaFusion|TensorExpr)Group")
"""What runs inside a function that TorchScript compiles: before it first runs, it is optimized, and no row tells."""


def inside_first_calls(host: HostWork, shape: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which stretches of host work lie mostly in an operator's first call with inputs of these shapes [k].

    There a library chooses an algorithm, loads code or plans. So does a call that makes a graph which like calls only
    launch, however often. What lies between operators may come in every step, as a data loader does, however long it
    is; but what lies before the first call of a scripted function compiles it.

    Args:
        host: the host work of a trace.
        shape: code of the shapes of each row's inputs, NONE where none were recorded [n].
    """
    rows, edges = host.graph.rows, host.graph.edges
    operator = np.flatnonzero((rows.kind == CPU_OP) & (shape >= 0))
    order = operator[np.argsort(rows.ts[operator], kind="stable")]
    first = np.zeros(len(rows), np.bool_)
    first[order[np.unique(np.stack((rows.name[order], shape[order])), axis=1, return_index=True)[1]]] = True
    first |= _prepares(rows, operator, shape)
    around = rows.nearest((rows.kind == CPU_OP) & (shape >= 0), edges.dst[host.edge].astype(np.int32))
    before = np.maximum(rows.ts[around] - host.at[0], 0)
    within: NDArray[np.bool_] = (around != NONE) & first[around] & (2 * before <= edges.lag[host.edge])
    function = rows.nearest(_first_scripted(rows), edges.dst[host.edge].astype(np.int32))
    within |= (function != NONE) & (rows.ts[function] >= host.at[0])
    return within


def _prepares(rows: Rows, operator: NDArray[np.int64], shape: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which of some operators make a graph that others of their name and shapes do not make anew [n]."""
    call = np.flatnonzero((rows.kind == RUNTIME) & rows.named(_CAPTURES.match)).astype(np.int32)
    prepares = np.zeros(len(rows), np.bool_)
    if not len(call):
        return prepares
    is_operator = np.zeros(len(rows), np.bool_)
    is_operator[operator] = True
    around = rows.nearest(is_operator, call)
    prepares[around[around != NONE]] = True
    like = packed(rows.name[operator], shape[operator])
    prepares[operator] &= np.isin(like, like[~prepares[operator]])
    return prepares


def _first_scripted(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are the first call of a function that TorchScript compiles [n]."""
    function = np.unique(rows.parent[rows.named(_SCRIPTED.match) & (rows.parent >= 0)])
    first = np.zeros(len(rows), np.bool_)
    order = function[np.argsort(rows.ts[function], kind="stable")]
    first[order[np.unique(rows.name[order], return_index=True)[1]]] = True
    return first


def first_launches(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return which calls are the first of the trace to launch a kernel of their name: it may load its code [n]."""
    rows, launched = graph.rows, graph.gpu.row[graph.gpu.launched]
    kernel = launched[rows.kind[launched] == KERNEL]
    call = rows.parent[kernel]
    order = np.argsort(rows.ts[call], kind="stable")
    first = np.zeros(len(rows), np.bool_)
    first[call[order[np.unique(rows.name[kernel[order]], return_index=True)[1]]]] = True
    return first


def growth(rows: Rows) -> NDArray[np.int64]:
    """Return the calls that get memory of the device, where the trace gives none back: no step can go on so [k]."""
    call = np.flatnonzero(rows.kind == RUNTIME)
    if (calls.roles(rows.kind, rows.name, rows.names)[call] == calls.RELEASE).any():
        return call[:0]
    grown: NDArray[np.int64] = call[rows.named(_ALLOCATES.match)[call]]
    return grown


def around_growth(host: HostWork, grown: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what growing memory costs beside its calls: edges of host work, and ns that each has without it [k].

    The host looks for room before such a call, books what it got, and finds its caches cold. So the work from one
    launch to the next takes what it takes in the median where nothing grows before a launch of the same operator; where
    too few are like it, nothing is told. The longest stretch of that work stands for all of it.

    Args:
        host: the host work of a trace.
        grown: the calls that get memory.
    """
    graph = host.graph
    rows, edges, row = graph.rows, graph.edges, graph.atoms.row[graph.atoms.by_thread]
    if not len(grown):
        return grown, grown
    launches = np.isin(row, edges.src[edges.kind == LAUNCH])
    between = np.cumsum(np.append(False, launches[:-1] | (np.diff(rows.thread[row]) != 0)))
    of_row = np.full(len(rows), NONE, np.int64)
    of_row[row] = between
    of_edge = of_row[edges.dst[host.edge]]
    count = int(between[-1]) + 1
    took = np.bincount(of_edge, edges.lag[host.edge], count).astype(np.int64)
    grows = np.isin(np.arange(count), of_row[grown])
    end = row[np.append(np.flatnonzero(np.diff(between)), len(row) - 1)]
    around = rows.parent[end]
    kind = packed(rows.name[end], np.where(around >= 0, rows.name[around], NONE), rows.thread[end])
    calm = np.flatnonzero(~grows)
    median, enough = typical_values.medians(took[calm], kind[calm])
    usual = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)  # More than anything takes.
    usual[kind[calm[enough]]] = median[enough]
    longest = np.lexsort((edges.lag[host.edge], of_edge))
    longest = longest[np.append(np.flatnonzero(np.diff(of_edge[longest])), len(longest) - 1)]
    which = of_edge[longest]
    over = took[which] - usual[kind[which]]
    more = np.flatnonzero(grows[which] & (over > 0))
    edge = host.edge[longest[more]]
    return edge, np.maximum(edges.lag[edge] - over[more], 0)
