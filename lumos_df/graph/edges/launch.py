"""Launch edges: GPU work follows the call, or the operator, that issued it."""

from typing import Final

import numpy as np

from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.gpu_constants import GpuConstants, by_class
from lumos_df.graph.gpu_streams import GpuStreams, copies_begun_in_call
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import END_START, LAUNCH, NONE, START_START

_COPY_PERCENTILE: Final = 25
"""Threshold, percentile. A copy that begins inside its call starts so long after the call, among copies of its name."""


def launch_edges(rows: Rows, atoms: Atoms, gpu: GpuStreams, constants: GpuConstants) -> Edges:
    """Return the edges from launch call to row. A row without a call follows its operator's beginning."""
    in_call = copies_begun_in_call(rows, gpu)
    lag = np.where(gpu.launched, constants.launch_ns, constants.beginning_ns)
    after_begin = (rows.ts[gpu.row] - gpu.of_call(atoms.ts))[in_call]
    lag[in_call] = by_class(after_begin, rows.name[gpu.row[in_call]], percentile=_COPY_PERCENTILE)
    binds = np.where(in_call | ~gpu.launched, START_START, END_START)
    return edges(gpu.of_call(atoms.row, NONE).astype(np.int32), gpu.row, LAUNCH, lag, gpu.launched, binds)
