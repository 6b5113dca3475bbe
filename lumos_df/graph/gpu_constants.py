"""What the trace's own distributions say of its machine: launch latency, gaps between kernels."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.gpu_streams import GpuStreams, copies_begun_in_call
from lumos_df.graph.host import Atoms
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import FAR, Rows
from lumos_df.schema.codes import COMMUNICATION

FEW: Final = 5
"""Threshold, values. Fewer make no distribution. Evidence: a constant of theirs would be what one of them was."""
OUTLIER_RANGES: Final = 1.5
"""Threshold, interquartile ranges. Values further outside the quartiles are outliers. Evidence: Tukey's fences."""
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
_BEGINNING_NS: Final = 10_000
"""Threshold, ns. What passes between the beginning of an operator and its launch call, where no trace tells."""


@dataclass(frozen=True, slots=True)
class GpuConstants:
    """What the trace's distributions say of its machine; ns."""

    launch_ns: int
    """From the end of a launch call to the start of its row, on an idle stream."""
    beginning_ns: int
    """From the beginning of an operator to the start of a row of it whose launch is not in the trace."""
    gap: NDArray[np.int64]
    """[g] Between the end of the row before on the stream and the row's start, when the row was in the queue."""


def measured(rows: Rows, atoms: Atoms, gpu: GpuStreams) -> GpuConstants:
    """Measure the constants of a trace."""
    row, call_begin = gpu.row, gpu.of_call(atoms.ts)
    ready = np.where(gpu.before >= 0, rows.end[np.maximum(gpu.before, 0)], -FAR)
    idle = gpu.launched & (ready < call_begin)
    # Communication waits for the compute that it is about, however far ahead the host is: where most idle streams are
    # those of communication, only the others tell.
    prompt = idle & ~copies_begun_in_call(rows, gpu)
    computes = prompt & (rows.family[row] != COMMUNICATION)
    if computes.any() and 2 * computes.sum() <= prompt.sum():
        prompt = computes
    after_end = (rows.ts[row] - gpu.of_call(atoms.ts + atoms.dur))[prompt]
    without_call = ~gpu.launched & (gpu.call >= 0) & (ready < call_begin)
    launch = _prompt(after_end, _LAUNCH_NS)
    beginning = _prompt((rows.ts[row] - call_begin)[without_call], launch + _BEGINNING_NS)
    return GpuConstants(launch, beginning, _gaps(rows, gpu))


def mean_without_outliers(values: NDArray[np.int64], otherwise: int) -> int:
    """Return the mean of the values without their outliers, or `otherwise` where there are none."""
    if not len(values):
        return otherwise
    low, high = np.percentile(values, (25, 75))
    spread = OUTLIER_RANGES * (high - low)
    kept = values[(values >= low - spread) & (values <= high + spread)]
    return round(float(kept.mean()))


def by_class(
    values: NDArray[np.int64],
    fine: NDArray[np.int32] | NDArray[np.int64],
    coarse: NDArray[np.int32] | NDArray[np.int64] | int = 0,
    percentile: float = 50,
) -> NDArray[np.int64]:
    """Return for each value a percentile of its class.

    A few rows make no distribution: the values of small fine classes form classes together, the coarse ones, and where
    these are small as well, one of all such values. Classes are numbers of at least 0.
    """
    if not len(values):
        return values
    key = np.asarray(fine, np.int64)
    for wider in (-2 - np.asarray(coarse, np.int64), np.int64(-1)):
        _, group, size = np.unique(key, return_inverse=True, return_counts=True)
        group = group.reshape(-1)
        key = np.where(size[group] < FEW, wider, group)
    _, group, size = np.unique(key, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    place = np.cumsum(size) - size + np.round((size - 1) * percentile / 100).astype(np.int64)
    typical: NDArray[np.int64] = values[np.lexsort((values, group))][place]
    return typical[group]


def _prompt(values: NDArray[np.int64], otherwise: int) -> int:
    """Return the typical one of the shorter times: what is longer waited for something else."""
    if not len(values):
        return otherwise
    return mean_without_outliers(values[values <= np.percentile(values, _PROMPT_PERCENTILE)], otherwise)


def _gaps(rows: Rows, gpu: GpuStreams) -> NDArray[np.int64]:
    """Return the gap constant of each GPU row: the typical one of its kind of neighbours, among rows that queued [g].

    A row queued when its launch call had ended well before the row in front of it.
    """
    has = gpu.before >= 0
    front = np.maximum(gpu.before, 0)
    gap = rows.ts[gpu.row] - rows.end[front]
    call_end = rows.end[np.maximum(rows.parent[gpu.row], 0)]
    queued = has & gpu.launched & (rows.end[front] > call_end + _QUEUED_NS)
    # What is far above the usual gap waited for something else.
    limit = 0.0
    if queued.any():
        limit = max(_USUAL_GAPS * float(np.percentile(gap[queued], _USUAL_GAP_PERCENTILE)), float(_LEAST_GAP_NS))
    queued &= gap <= limit
    typical = np.full(len(gpu.row), round(float(gap[queued].mean())) if queued.any() else 0)
    kinds = packed(rows.kind[front], rows.kind[gpu.row])
    names = packed(rows.name[front], rows.name[gpu.row])
    for classes, enough in ((kinds, FEW), (names, _NAMED_PAIRS)):
        used, inverse = np.unique(classes, return_inverse=True)
        inverse = inverse.reshape(-1)
        count = np.bincount(inverse[queued], minlength=len(used))
        total = np.bincount(inverse[queued], gap[queued].astype(np.float64), len(used))
        mean = np.round(total / np.maximum(count, 1)).astype(np.int64)
        typical = np.where((count >= enough)[inverse], mean[inverse], typical)
    return typical
