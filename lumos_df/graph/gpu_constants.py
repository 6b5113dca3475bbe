"""What the trace's own distributions say of its machine: launch latency, gaps between kernels."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, gpu_streams, typical_values
from lumos_df.graph.gpu_streams import GpuStreams, begun_in_call
from lumos_df.graph.graph_launches import GraphLaunches, inner_gaps
from lumos_df.graph.host import Atoms
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.typical_values import mean_without_outliers
from lumos_df.schema.codes import COMMUNICATION, NONE

_PROMPT_PERCENTILE: Final = 75
"""Threshold, percentile. Rows that start later after their launch on an idle stream waited for something else."""
_QUEUED_NS: Final = 5_000
"""Threshold, ns. A row was queued if its call ended this long before the row in front of it."""
_USUAL_GAP_PERCENTILE: Final = 40
"""Threshold, percentile. The usual gap between queued rows, from which the longest gap that counts is told."""
_USUAL_GAPS: Final = 3
"""Threshold, usual gaps. A longer gap between queued rows is a wait for something else."""
_LEAST_GAP_NS: Final = 5_000
"""Threshold, ns. Gaps between queued rows up to this count, however short the usual one is."""
_NAMED_PAIRS: Final = 20
"""Threshold, pairs of rows. From this many on, two names that follow one another have a gap of their own."""
_LAUNCH_NS: Final = 2_000
"""Threshold, ns. Launch latency of a trace in which no row started on an idle stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """What the trace's distributions say of its machine; ns."""

    launch_ns: int
    """From the end of a launch call to the start of its row, on an idle stream."""
    beginning_ns: int
    """From the beginning of an operator to the start of a row of it whose launch is not in the trace."""
    in_call_ns: int
    """From the beginning of a call to the start of a row that begins while the call runs, on an idle stream."""
    gap: NDArray[np.int64]
    """[g] Between the end of the row before on the stream and the row's start, when the row was in the queue."""
    unknown: NDArray[np.int64]
    """[g] Part of that gap in which something happened that was not recorded: a launch, a standstill of the GPU."""
    of_rare_graph: NDArray[np.bool_]
    """[g] Whether the row is of a CUDA graph with too few launches to tell what unrecorded nodes of it take."""


def measured(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, role: NDArray[np.int8], launches: GraphLaunches
) -> GpuConstants:
    """Measure the constants of a trace; `role`: what every row does as a call, of `calls` [n]."""
    row, call_begin = gpu.row, gpu.of_call(atoms.ts)
    ready = np.where(gpu.before >= 0, rows.end[np.maximum(gpu.before, 0)], -FAR)
    after_begin = rows.ts[row] - call_begin
    idle = gpu.launched & (ready < call_begin)
    begins = launches.place[launches.first]
    on_idle = idle[begins]
    of_graph, known = typical_values.medians(after_begin[begins[on_idle]], launches.node[launches.first][on_idle])
    idle[launches.place] = False
    # Communication waits for the compute that it is about, however far ahead the host is: where most idle streams are
    # those of communication, only the others tell.
    prompt = idle & ~begun_in_call(rows, gpu)
    computes = prompt & (rows.family[row] != COMMUNICATION)
    if computes.any() and 2 * computes.sum() <= prompt.sum():
        prompt = computes
    after_end = rows.ts[row] - gpu.of_call(atoms.ts + atoms.dur)
    behind = prompt & _behind_wait(atoms, gpu, role)
    free = prompt & ~behind
    if free.any():
        # Behind a call that makes its stream wait, what was later than any row without one did wait.
        prompt[behind] = after_end[behind] <= after_end[free].max()
    without_call = ~gpu.launched & (gpu.call >= 0) & (ready < call_begin)
    launch = _prompt(after_end[prompt], _LAUNCH_NS)
    beginning = _prompt(after_begin[without_call], launch)
    # A graph starts while its call still runs. What others take beyond the quickest one, are nodes without a row.
    in_call = int(of_graph[known].min()) if known.any() else _prompt(after_begin[prompt], _LAUNCH_NS)
    alike = launches.alike(gpu)
    gap = inner_gaps(rows, gpu, launches, _gaps(rows, gpu, alike))
    of_rare_graph = np.zeros(len(gpu.row), np.bool_)
    of_rare_graph[launches.place] = ~alike[launches.place]
    unknown = _unknown(rows, gpu, gap)
    return GpuConstants(
        launch_ns=launch,
        beginning_ns=beginning,
        in_call_ns=in_call,
        gap=gap + unknown,
        unknown=unknown,
        of_rare_graph=of_rare_graph,
    )


def _behind_wait(atoms: Atoms, gpu: GpuStreams, role: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return before which rows a stream was made to wait, by their thread, since that launched something [g]."""
    order, issuing = atoms.by_thread, np.zeros(len(atoms.row), np.bool_)
    issuing[gpu.call[gpu.call >= 0]] = True
    waits = np.cumsum(np.append(0, role[atoms.row[order]] == calls.WAIT))
    launch = np.flatnonzero(issuing[order])
    before = np.append(0, launch[:-1])[: len(launch)]
    since = np.maximum(before, atoms.bounds[atoms.thread[order[launch]]])
    behind = np.zeros(len(atoms.row), np.int64)
    behind[order[launch]] = waits[launch] > waits[since]
    return gpu.of_call(behind) > 0


def _prompt(values: NDArray[np.int64], otherwise: int) -> int:
    """Return the typical one of the shorter times: what is longer waited for something else."""
    if len(values) < typical_values.FEW:
        return otherwise
    return mean_without_outliers(values[values <= np.percentile(values, _PROMPT_PERCENTILE)], otherwise)


def _unknown(rows: Rows, gpu: GpuStreams, gap: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return by how much more than the gap each row starts after the one before on its stream for no reason, ns.

    Nothing says what the GPU waited for, so it goes on to wait so long, whatever else changes: of rows without a call,
    where most launches were not recorded (where they were, such rows were in the queue when the recording began); of
    rows in the queue of the only stream, which have no other row to wait for: another program had the GPU.
    """
    late = rows.ts[gpu.row] - rows.end[np.maximum(gpu.before, 0)] - gap
    without_call = gpu.call < 0
    if 2 * np.count_nonzero(without_call) > len(gpu.row):
        stands = without_call & (gpu.before >= 0)
    elif len(np.unique(rows.stream[gpu.row])) == 1:
        stands = _queued(rows, gpu) & (late > gpu_streams.LATE_NS)
    else:
        stands = np.zeros(len(gpu.row), np.bool_)
    return np.where(stands, np.maximum(late, 0), 0)


def _queued(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    """Return which rows were in the queue: their launch call had ended well before the row in front of them [g]."""
    call_end = rows.end[np.maximum(rows.parent[gpu.row], 0)]
    return (gpu.before >= 0) & gpu.launched & (rows.end[np.maximum(gpu.before, 0)] > call_end + _QUEUED_NS)


def _gaps(rows: Rows, gpu: GpuStreams, of_graph: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the gap constant of each GPU row: the typical one of its kind of neighbours, among rows that queued [g].

    Around rows of graphs whose own launches tell (`of_graph` [g]), the graph worked.
    """
    front = np.maximum(gpu.before, 0)
    gap = rows.ts[gpu.row] - rows.end[front]
    queued = _queued(rows, gpu) & ~of_graph & ~np.append(False, of_graph[:-1])
    # What is far above the usual gap waited for something else.
    limit = 0.0
    if queued.any():
        limit = max(_USUAL_GAPS * float(np.percentile(gap[queued], _USUAL_GAP_PERCENTILE)), float(_LEAST_GAP_NS))
    queued &= gap <= limit
    typical = np.full(len(gpu.row), mean_without_outliers(gap[queued], 0))
    kinds = packed(rows.kind[front], rows.kind[gpu.row])
    names = packed(rows.name[front], rows.name[gpu.row])
    for classes, enough in ((kinds, typical_values.FEW), (names, _NAMED_PAIRS)):
        place = dense(classes)
        used = int(place.max(initial=NONE)) + 1
        count = np.bincount(place[queued], minlength=used)
        total = np.bincount(place[queued], gap[queued].astype(np.float64), used)
        mean = np.round(total / np.maximum(count, 1)).astype(np.int64)
        typical = np.where((count >= enough)[place], mean[place], typical)
    return typical
