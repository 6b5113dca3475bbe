"""The GPU's side of a trace: its work stream by stream, and what issued it."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.gpu_clock import to_pageable
from lumos_df.graph.host import Atoms
from lumos_df.graph.issued_before import before_first_issued
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import KERNEL, MEMCPY, NONE, RUNTIME

LATE_NS: Final = 10_000
"""Threshold, ns. A row that starts later than this after all that it is known to wait for waited for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStreams:
    """GPU rows of a trace in the order of (stream, start); g entries."""

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

    @property
    def early(self) -> NDArray[np.bool_]:
        """Which rows were issued before the recording began [g]."""
        stream = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        return before_first_issued(stream, self.call >= 0)

    def of_call(self, values: NDArray[np.int32] | NDArray[np.int64], none: np.int64 | int = 0) -> NDArray[np.int64]:
        """Return for each row the value of the atom that issued it, of a column with one value an atom, or `none`."""
        has = self.call >= 0
        by_row = np.full(len(self.row), none, np.int64)
        by_row[has] = values[self.call[has]]
        return by_row

    def last_issued(self, stream: int, atom: NDArray[np.int32], *, inclusive: bool = False) -> NDArray[np.int32]:
        """Return the last row of a stream that was issued before each atom (or by it), or NONE."""
        low, high = int(self.bounds[stream]), int(self.bounds[stream + 1])
        place = np.searchsorted(self.issued[low:high], atom, side="right" if inclusive else "left")
        return np.append(np.int32(NONE), self.row[low:high])[place]

    def next_issued(self, stream: int, atom: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the first row of a stream that was issued after each atom, or NONE."""
        low, high = int(self.bounds[stream]), int(self.bounds[stream + 1])
        place = np.searchsorted(self.issued[low:high], atom, side="left")
        return np.append(self.row[low:high], np.int32(NONE))[place]


def gpu_streams(rows: Rows, atoms: Atoms) -> GpuStreams:
    """Order the GPU rows by stream and start and find what issued each of them."""
    row = np.flatnonzero(rows.on_gpu & (rows.stream >= 0)).astype(np.int32)
    row = row[np.argsort(rows.stream[row], kind="stable")]
    parent = rows.parent[row]
    has = parent >= 0
    call = np.where(has, atoms.of_row[np.maximum(parent, 0)], NONE).astype(np.int32)
    launched = (call >= 0) & (rows.kind[np.maximum(parent, 0)] == RUNTIME)
    return in_order(rows, row, call, launched)


def in_order(rows: Rows, row: NDArray[np.int32], call: NDArray[np.int32], launched: NDArray[np.bool_]) -> GpuStreams:
    """Return the streams of GPU rows that lie in the order of (stream, turn), with what follows from that order.

    Args:
        rows: the operators.
        row, call, launched: columns of `GpuStreams` [g].
    """
    stream = rows.stream[row]
    before = np.full(len(row), NONE, np.int32)
    before[1:] = np.where(stream[1:] == stream[:-1], row[:-1], NONE)
    bounds = np.searchsorted(stream, np.arange(len(rows.stream_keys) + 1))
    issued = call.copy()
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        issued[low:high] = np.maximum.accumulate(issued[low:high])
    return GpuStreams(row=row, call=call, launched=launched, before=before, issued=issued, bounds=bounds)


def recorded_ends(rows: Rows, atoms: Atoms, gpu: GpuStreams) -> NDArray[np.int64]:
    """Return when every node of the graph ended as recorded, ns [n]; 0 for rows that are none.

    An atom that is the beginning of a row ends as it begins, however long the row lasts.
    """
    ends = np.zeros(len(rows), np.int64)
    ends[atoms.row] = atoms.ts + atoms.dur
    ends[gpu.row] = rows.end[gpu.row]
    return ends


def awaited_by_call(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    """Return which rows ended before their call, which waited for them [g].

    Copies, as a call that ever waits, waits for its copy: to pageable memory also those that end later by no more than
    the clocks may be apart. All rows where launches block.
    """
    apart = np.where(to_pageable(rows.names)[rows.name[gpu.row]], rows.gpu_spread, 0)
    awaited: NDArray[np.bool_] = _launched_copies(rows, gpu) & (rows.end[gpu.row] <= _call_end(rows, gpu) + apart)
    awaited &= ~_asynchronous(rows, gpu)
    return awaited | _within_launch(rows, gpu) if launches_block(rows, gpu) else awaited


def begun_in_call(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    """Return which copies began while their call still ran, and all rows for which it waited [g]."""
    begun: NDArray[np.bool_] = _launched_copies(rows, gpu) & (rows.ts[gpu.row] < _call_end(rows, gpu))
    return begun | awaited_by_call(rows, gpu)


def launches_block(rows: Rows, gpu: GpuStreams) -> bool:
    """Return whether launches return when their kernel is over, as CUDA_LAUNCH_BLOCKING=1 makes them.

    Every kernel lies within its launch, and most of what launches differ by is what their kernels differ by: a slow
    launch that does not wait may be longer than a short kernel, too.
    """
    kernel = np.flatnonzero(gpu.launched & (rows.kind[gpu.row] == KERNEL))
    if not len(kernel) or not _within_launch(rows, gpu)[kernel].all():
        return False
    call = rows.dur[rows.parent[gpu.row[kernel]]]
    return bool(2 * _spread(call - rows.dur[gpu.row[kernel]]) < _spread(call))


def _spread(ns: NDArray[np.int64]) -> float:
    """Return what times differ by, but for the shortest and the longest tenth, such as of launches that load code."""
    low, high = np.percentile(ns, (10, 90))
    return float(high - low)


def _within_launch(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    within: NDArray[np.bool_] = gpu.launched & (rows.end[gpu.row] <= _call_end(rows, gpu))
    return within


def _asynchronous(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    """Return which rows are copies between the GPU and pinned memory, issued by a call that never waits for these [g].

    CUDA Runtime API, "API synchronization behavior". By a clock that is behind, a short one may end before its call.
    """
    pinned, at_once = rows.named(lambda name: "Pinned" in name), rows.named(lambda name: "MemcpyAsync" in name)
    asynchronous: NDArray[np.bool_] = pinned[gpu.row] & at_once[np.maximum(rows.parent[gpu.row], 0)]
    return asynchronous


def _launched_copies(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    copies: NDArray[np.bool_] = gpu.launched & (rows.kind[gpu.row] == MEMCPY)
    return copies


def _call_end(rows: Rows, gpu: GpuStreams) -> NDArray[np.int64]:
    """Return when the call of each GPU row ended, ns; of a row without one any value [g]."""
    return rows.end[np.maximum(rows.parent[gpu.row], 0)]
