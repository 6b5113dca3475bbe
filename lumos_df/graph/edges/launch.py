"""Launch edges: GPU work follows the call, or the operator, that issued it."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.gpu_constants import GpuConstants
from lumos_df.graph.gpu_streams import GpuStreams, begun_in_call
from lumos_df.graph.graph_launches import GraphLaunches
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.typical_values import by_class
from lumos_df.schema.codes import END_START, LAUNCH, NONE, START_START


def launch_edges(rows: Rows, atoms: Atoms, gpu: GpuStreams, launches: GraphLaunches, constants: GpuConstants) -> Edges:
    """Return the edges from launch call to row. A row without a call follows its operator's beginning."""
    in_call = begun_in_call(rows, gpu)
    lag = np.where(gpu.launched, constants.launch_ns, constants.beginning_ns)
    lag[in_call] = _copy_lags(rows, atoms, gpu, in_call, constants.in_call_ns)
    binds = np.where(in_call | ~gpu.launched, START_START, END_START)
    # A graph starts while its call still runs.
    lag[launches.place] = constants.in_call_ns
    binds[launches.place] = START_START
    return edges(gpu.of_call(atoms.row, NONE).astype(np.int32), gpu.row, LAUNCH, lag, gpu.launched, binds)


def slow_first_launch(
    rows: Rows, gpu: GpuStreams, to_starts: Edges, ended: NDArray[np.int64], late: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return what the first launch took beyond its lag, ns [m]: of a row that is late and begins within its call.

    That call had not returned: it prepared the GPU, or the row's data. Of a row that begins after its call, nothing
    tells what it waited for.

    Args:
        rows, gpu: the trace.
        to_starts: m edges to beginnings.
        ended: [n] when each node ended as recorded, ns.
        late: rows that begin later than these edges say.
    """
    if not len(gpu.row):
        return np.zeros(len(to_starts), np.int64)
    first = gpu.row[np.argmin(rows.ts[gpu.row])]
    begins = rows.ts[to_starts.dst]
    within = (to_starts.kind == LAUNCH) & (to_starts.binds == START_START) & (ended[to_starts.src] > begins)
    slow = within & (to_starts.dst == first) & np.isin(first, late)
    return np.where(slow, begins - rows.ts[to_starts.src] - to_starts.lag, 0)


def _copy_lags(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, in_call: NDArray[np.bool_], otherwise: int
) -> NDArray[np.int64]:
    """Return how long after the beginning of its call each copy begins that begins in its call, on an idle stream, ns.

    Copies of its name on an idle stream tell, else all copies on one. None tells of itself what it waited for.
    """
    call_begin = gpu.of_call(atoms.ts)
    ready = np.where(gpu.before >= 0, rows.end[np.maximum(gpu.before, 0)], -FAR)
    idle = in_call & (ready < call_begin)
    name, after_begin = rows.name[gpu.row], (rows.ts[gpu.row] - call_begin)[idle]
    by_name = np.full(len(rows.names) + 1, otherwise)
    if len(after_begin) >= typical_values.FEW:
        by_name[:] = round(float(np.median(after_begin)))
        by_name[name[idle]] = by_class(after_begin, name[idle])
    return by_name[name[in_call]]
