"""The GPU's side: in which order work was issued, and the constants that its own distribution tells."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import KERNEL, NONE, RUNTIME, Rows

FAR = np.int64(1) << 60
FEW = 5
"""Fewer values make no distribution: a constant of theirs would be what one of them was."""


@dataclass(frozen=True, slots=True)
class Work:
    """GPU rows of a trace in the order of (stream, start); g entries, times ns."""

    row: NDArray[np.int32]
    """The rows."""
    call: NDArray[np.int32]
    """Atom that issued the row: its launch call, else the operator of its external id; NONE for neither."""
    launched: NDArray[np.bool_]
    """Whether that atom is the launch call."""
    before: NDArray[np.int32]
    """Row that ran before on the same stream, or NONE."""
    issued: NDArray[np.int32]
    """Place in the order of atoms after which the row was issued; never falls along a stream; NONE before all."""
    bounds: NDArray[np.int64]
    """Where each stream begins, and the end: stream s is `bounds[s]:bounds[s + 1]`."""

    def of_call(self, values: NDArray[np.int32] | NDArray[np.int64], none: np.int64 | int = 0) -> NDArray[np.int64]:
        """Return for each row the value of the atom that issued it, of a column with one value an atom, or `none`."""
        has = self.call >= 0
        found = np.full(len(self.row), none, np.int64)
        found[has] = values[self.call[has]]
        return found

    def last_issued(self, stream: int, atom: NDArray[np.int32], *, inclusive: bool = False) -> NDArray[np.int32]:
        """Return the last row of a stream that was issued before each atom (or by it), or NONE."""
        low, high = int(self.bounds[stream]), int(self.bounds[stream + 1])
        place = low + np.searchsorted(self.issued[low:high], atom, side="right" if inclusive else "left") - 1
        return np.where(place >= low, self.row[np.maximum(place, 0)], NONE).astype(np.int32)

    def next_issued(self, stream: int, atom: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the first row of a stream that was issued after each atom, or NONE."""
        low, high = int(self.bounds[stream]), int(self.bounds[stream + 1])
        place = low + np.searchsorted(self.issued[low:high], atom, side="left")
        return np.where(place < high, self.row[np.minimum(place, len(self.row) - 1)], NONE).astype(np.int32)


def work(rows: Rows, atoms: Atoms) -> Work:
    """Order the GPU rows by stream and start and find what issued each of them."""
    row = np.flatnonzero(rows.on_gpu & (rows.stream >= 0)).astype(np.int32)
    row = row[np.argsort(rows.stream[row], kind="stable")]
    stream = rows.stream[row]
    parent = rows.parent[row]
    has = parent >= 0
    call = np.where(has, atoms.of_row[np.maximum(parent, 0)], NONE).astype(np.int32)
    launched = (call >= 0) & (rows.kind[np.maximum(parent, 0)] == RUNTIME)
    before = np.full(len(row), NONE, np.int32)
    before[1:] = np.where(stream[1:] == stream[:-1], row[:-1], NONE)
    bounds = np.searchsorted(stream, np.arange(len(rows.stream_keys) + 1))
    issued = call.copy()
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        issued[low:high] = np.maximum.accumulate(issued[low:high])
    return Work(row, call, launched, before, issued, bounds)


@dataclass(frozen=True, slots=True)
class Constants:
    """What the trace's distribution says of its machine; ns."""

    launch_ns: int
    """From the end of a launch call to the start of its row, on an idle stream."""
    beginning_ns: int
    """From the beginning of an operator to the start of a row of it whose launch is not in the trace."""
    gap: NDArray[np.int64]
    """[g] Between the end of the row before on the stream and the row's start, when the row was in the queue."""


def middle(values: NDArray[np.int64], otherwise: int) -> int:
    """Return the mean of the values without their outliers (1.5 interquartile ranges), or `otherwise` for none."""
    if not len(values):
        return otherwise
    low, high = np.percentile(values, (25, 75))
    spread = 1.5 * (high - low)
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
    these are small as well, one of all such values.
    """
    if not len(values):
        return values
    key = np.asarray(fine, np.int64)
    for wider in (-2 - np.asarray(coarse, np.int64), np.int64(-1)):
        _, group, many = np.unique(key, return_inverse=True, return_counts=True)
        group = group.reshape(-1)
        key = np.where(many[group] < FEW, wider, group)
    _, group, many = np.unique(key, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    at = np.cumsum(many) - many + np.round((many - 1) * percentile / 100).astype(np.int64)
    typical: NDArray[np.int64] = values[np.lexsort((values, group))][at]
    return typical[group]


def gaps(rows: Rows, gpu: Work) -> NDArray[np.int64]:
    """Return the gap constant of each GPU row: the typical one of its kind of neighbours, among rows that queued.

    A row queued when its launch call had ended well before the row in front of it.
    """
    has = gpu.before >= 0
    front = np.maximum(gpu.before, 0)
    gap = rows.ts[gpu.row] - rows.end[front]
    call_end = rows.end[np.maximum(rows.parent[gpu.row], 0)]
    queued = has & gpu.launched & (rows.end[front] > call_end + 5_000)
    pair = (rows.kind[front].astype(np.int64) - KERNEL) * 3 + rows.kind[gpu.row] - KERNEL
    # What is far above the usual gap waited for something else.
    limit = max(3 * float(np.percentile(gap[queued], 40)), 5_000.0) if queued.any() else 0.0
    queued &= gap <= limit
    found = np.full(len(gpu.row), round(float(gap[queued].mean())) if queued.any() else 0)
    names = rows.name[front].astype(np.int64) * len(rows.names) + rows.name[gpu.row]
    for classes, enough in ((pair, FEW), (names, 20)):
        used, inverse = np.unique(classes, return_inverse=True)
        inverse = inverse.reshape(-1)
        many = np.bincount(inverse[queued], minlength=len(used))
        total = np.bincount(inverse[queued], gap[queued].astype(np.float64), len(used))
        known = many >= enough
        mean = np.round(total / np.maximum(many, 1)).astype(np.int64)
        found = np.where(known[inverse], mean[inverse], found)
    return found
