"""Waits of a thread for the GPU that no call shows: the allocator between a failed cudaMalloc and a cudaFree, a lock.

A thread did nothing recorded while the GPU ran what a stream had been sent last, or just one row, and went on when that
was over. It may be an accident: silences between calls of the same names are judged together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host, typical_values
from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE, SYNC_EDGE


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWaits:
    """Silences of threads that were waits for the GPU; k entries."""

    atom: NDArray[np.int64]
    """Atom before which the thread was silent."""
    source: NDArray[np.int32]
    """Row of the GPU that it waited for."""
    idle: NDArray[np.int64]
    """Part of the silence that was the wait, until that row was over; ns."""

    def edges(self, rows: Rows, atoms: Atoms) -> Edges:
        """Return the edges from the rows to what the threads did next; the time in between is work of the host."""
        lag = atoms.ts[self.atom] - rows.end[self.source]
        return edges(self.source, atoms.row[self.atom], SYNC_EDGE, lag, False)


def host_waits(rows: Rows, atoms: Atoms, gpu: GpuStreams, handoffs: Handoffs) -> HostWaits:
    """Find the silences that were waits for the GPU."""
    before = np.maximum(atoms.before, 0)
    begin = (atoms.ts + atoms.dur)[before]
    silent = (atoms.before >= 0) & (atoms.ts - begin >= host.IDLE_NS)
    silent[atoms.of_row[handoffs.target]] = False
    atom = np.flatnonzero(silent)
    source, streams = _ran_through(rows, gpu, begin[atom], atoms.ts[atom], before[atom])
    ran = source >= 0
    if not ran.any():
        return HostWaits(atom=atom[ran], source=source[ran], idle=np.empty(0, np.int64))
    _, likeness = np.unique(packed(rows.name[atoms.row[before[atom]]], rows.name[atoms.row[atom]]), return_inverse=True)
    likeness = likeness.reshape(-1)
    # Silences through which nothing ran, or what ran ran on, speak against.
    alike = np.bincount(likeness)
    atom, source, streams, likeness = atom[ran], source[ran], streams[ran], likeness[ran]
    lasted, after = atoms.ts[atom] - begin[atom], atoms.ts[atom] - rows.end[source]
    # A silence that has nothing to do with the rows ends anywhere after the last of them, within its own length: the
    # more streams had one, the sooner after.
    accident = streams * np.maximum(after, rows.resolution) / lasted
    prompt = accident <= typical_values.ACCIDENT_SHARE
    chance = np.bincount(likeness, np.log(np.minimum(accident, 1)), len(alike))
    waits = chance <= np.log(typical_values.ACCIDENT_SHARE / len(alike))
    waits &= np.bincount(likeness[prompt], minlength=len(alike)) == alike
    kept = waits[likeness]
    return HostWaits(atom=atom[kept], source=source[kept], idle=(lasted - after)[kept])


def _ran_through(
    rows: Rows, gpu: GpuStreams, begin: NDArray[np.int64], end: NDArray[np.int64], before: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the row for which each silence may have been a wait, or NONE, and of how many streams there was one.

    Of each stream it is the row that was issued last, if that ended within the silence, else the one that ran when the
    silence began; of all streams the one that ended last.

    Args:
        rows, gpu: the trace.
        begin, end: of each silence, ns.
        before: the atom in front of it: what was issued later, it did not wait for.
    """
    source, streams = np.full(len(begin), NONE, np.int32), np.zeros(len(begin), np.int64)
    over = begin.copy()
    for low, high in zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True):
        if low == high:
            continue
        running = np.searchsorted(rows.ts[gpu.row[low:high]], begin, side="right") - 1
        last = np.searchsorted(gpu.issued[low:high], before, side="right") - 1
        emptied = (last >= 0) & (rows.end[gpu.row[low + np.maximum(last, 0)]] <= end)
        place = np.where(emptied, last, running)
        row = gpu.row[low + np.maximum(place, 0)]
        fits = (place >= 0) & (gpu.issued[low + np.maximum(place, 0)] <= before)
        fits &= (rows.end[row] > begin) & (rows.end[row] <= end)
        streams += fits
        fits &= rows.end[row] > over
        source[fits], over[fits] = row[fits], rows.end[row[fits]]
    return source, streams
