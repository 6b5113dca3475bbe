"""What one step alone tells of what comes once: work inside an operator's first call, and memory that only grows."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME

_ALLOCATES: Final = re.compile(r"(?:cuda|hip|cu)(?:Malloc|MemAlloc|MemCreate|MemMap)(?:_v\d)?$")

_SCRIPTED: Final = re.compile(r"fallback_function$|prim::|\w*(?:CudaFusion|TensorExpr)Group")
"""What runs inside a function that TorchScript compiles: before it first runs, it is optimized, and no row tells."""


def inside_first_calls(host: HostWork, shape: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which stretches of host work lie mostly in an operator's first call with inputs of these shapes [k].

    There a library chooses an algorithm, loads code or plans. What lies between operators may come in every step, as a
    data loader does, however long it is; but what lies before the first call of a scripted function compiles it.

    Args:
        host: the host work of a trace.
        shape: code of the shapes of each row's inputs, NONE where none were recorded [n].
    """
    rows, edges = host.graph.rows, host.graph.edges
    operator = np.flatnonzero((rows.kind == CPU_OP) & (shape >= 0))
    order = operator[np.argsort(rows.ts[operator], kind="stable")]
    first = np.zeros(len(rows), np.bool_)
    first[order[np.unique(np.stack((rows.name[order], shape[order])), axis=1, return_index=True)[1]]] = True
    around = rows.nearest((rows.kind == CPU_OP) & (shape >= 0), edges.dst[host.edge].astype(np.int32))
    before = np.maximum(rows.ts[around] - host.at[0], 0)
    within: NDArray[np.bool_] = (around != NONE) & first[around] & (2 * before <= edges.lag[host.edge])
    function = rows.nearest(_first_scripted(rows), edges.dst[host.edge].astype(np.int32))
    within |= (function != NONE) & (rows.ts[function] >= host.at[0])
    return within


def _first_scripted(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are the first call of a function that TorchScript compiles [n]."""
    inside = np.array([*(bool(_SCRIPTED.match(name)) for name in rows.names), False])
    function = np.unique(rows.parent[inside[rows.name] & (rows.parent >= 0)])
    first = np.zeros(len(rows), np.bool_)
    order = function[np.argsort(rows.ts[function], kind="stable")]
    first[order[np.unique(rows.name[order], return_index=True)[1]]] = True
    return first


def growth(rows: Rows) -> NDArray[np.int64]:
    """Return the calls that get memory of the device, where the trace gives none back: no step can go on so [k]."""
    call = np.flatnonzero(rows.kind == RUNTIME)
    if (calls.roles(rows.kind, rows.name, rows.names)[call] == calls.RELEASE).any():
        return call[:0]
    allocates = np.array([*(bool(_ALLOCATES.match(name)) for name in rows.names), False])
    grown: NDArray[np.int64] = call[allocates[rows.name[call]]]
    return grown
