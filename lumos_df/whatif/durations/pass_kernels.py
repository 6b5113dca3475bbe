"""The work of a changed graph's compute stream, in its order, and what the recording tells of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE, OTHER_PHASE
from lumos_df.structure.compute_stream import compute_stream
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.durations.kernel_times import shaped, wide
from lumos_df.whatif.durations.widths import UNKNOWN


@dataclass(frozen=True, slots=True)
class PassKernels:
    """Kernels, copies and clears of one stream [k]."""

    row: NDArray[np.int32]
    """Of the changed graph."""
    source: NDArray[np.int32]
    """Of the recorded rank, NONE for none."""
    kind: NDArray[np.int8]
    """What their widths are, one of `widths`'s kinds."""
    phase: NDArray[np.int8]
    layer: NDArray[np.int32]
    """NONE outside of layers."""
    family: NDArray[np.int8]
    step: NDArray[np.int32]

    def before(self, place: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the row before some places, NONE before the first."""
        return np.append(self.row, np.int32(NONE))[place - 1]

    def at(self, place: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the row at some places, NONE behind the last."""
        return np.append(self.row, np.int32(NONE))[np.minimum(place, len(self.row))]


def kinds_of(rank: DescribedRank) -> NDArray[np.int8]:
    """Return what the widths of every row of a recorded rank are [n]."""
    rows = rank.trace.rows
    row = np.flatnonzero(rows.on_gpu & ~((rows.kind == KERNEL) & (rows.family == COMMUNICATION))).astype(np.int32)
    return wide(rank.trace, rank.structure, row, shaped(rank.trace, row))


def pass_kernels(
    rank: DescribedRank, kinds: NDArray[np.int8], graph: TraceGraph, source: NDArray[np.int32]
) -> PassKernels:
    """Return the work of a graph's compute stream; nothing where it has none.

    Args:
        rank: the recorded rank that the graph is from.
        kinds: what `kinds_of` says of it.
        graph: the graph.
        source: row of the rank that each of its rows is from, NONE for none.
    """
    stream = compute_stream(graph.rows)
    bounds = graph.gpu.bounds
    row = graph.gpu.row[bounds[stream] : bounds[stream + 1]] if stream != NONE else graph.gpu.row[:0]
    origin = source[row]
    return PassKernels(
        row=row,
        source=origin,
        kind=np.append(kinds, np.int8(UNKNOWN))[origin],
        phase=np.append(rank.structure.phase, np.int8(OTHER_PHASE))[origin],
        layer=np.append(rank.structure.layer, np.int32(NONE))[origin],
        family=graph.rows.family[row],
        step=graph.rows.step[row],
    )
