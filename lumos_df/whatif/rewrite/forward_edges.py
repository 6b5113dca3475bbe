"""The order of a changed graph's rows, and the edges that keep to it."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate import forward as loops
from lumos_df.schema.codes import NONE


def ordered(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, edges: Edges, waits_itself: NDArray[np.bool_]
) -> tuple[Edges, NDArray[np.int32], NDArray[np.int32], int]:
    """Return the edges that go forward, that order, what they order, and how many were left out."""
    after = np.full(len(rows), NONE, np.int32)
    follows = atoms.before >= 0
    after[atoms.row[atoms.before[follows]]] = atoms.row[follows]
    target = np.where(waits_itself, after[edges.dst], edges.dst)
    real = target >= 0
    node = np.concatenate((atoms.row, gpu.row))
    is_gpu = np.repeat((False, True), (len(atoms.row), len(gpu.row)))
    node = node[np.lexsort((node, is_gpu, rows.ts[node]))]
    pointer, edge = loops.forward_star(edges.src[real], len(rows))
    order = loops.topological(
        node, pointer, edge, target[real], len(rows), np.full(len(rows), NONE, np.int32), np.empty(0, np.int32)
    )
    place = np.full(len(rows), FAR, np.int64)
    place[order] = np.arange(len(order))
    keep = ~real | (place[edges.src] < place[np.maximum(target, 0)])
    return edges.where(keep), order, target[keep].astype(np.int32), int((~keep).sum())
