"""What every node of a trace's graph lasts by itself: without what it waited for."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, typical_values
from lumos_df.graph.edges.full_queue import QueueWaits
from lumos_df.graph.gpu_streams import GpuStreams, awaited_by_call
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import FAR, Rows


def own_durations(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, role: NDArray[np.int8], queue: QueueWaits
) -> NDArray[np.int64]:
    """Return what each node lasts without waiting for another thread, the GPU or a full queue, ns [n].

    Args:
        rows, atoms, gpu: the trace.
        role: what every row does as a call, of `calls` [n].
        queue: the launch calls that a full queue holds back.
    """
    own = rows.dur.copy()
    own[atoms.row] = atoms.dur
    if not len(gpu.row):
        return own
    kind = role[atoms.row]
    waits = [
        np.flatnonzero(kind == waiting).astype(np.int32)
        for waiting in (calls.STREAM_SYNC, calls.DEVICE_SYNC, calls.EVENT_SYNC)
    ]
    rests = [atoms.dur[atom] - _waited(rows, atoms, gpu, atom) for atom in waits]
    # Few calls of a kind take what any call takes that waits.
    usual = _without_wait(np.concatenate(rests), 0)
    for atom, rest in zip(waits, rests, strict=True):
        own[atoms.row[atom]] = np.minimum(atoms.dur[atom], _without_wait(rest, usual))
    copies = awaited_by_call(rows, gpu)
    copying = atoms.row[gpu.call[copies]]
    rest = rows.end[copying] - rows.end[gpu.row[copies]]
    own[copying] = np.minimum(own[copying], _without_wait(rest, usual))
    release = np.flatnonzero(kind == calls.RELEASE).astype(np.int32)
    if len(release):
        # The call's own work begins when what it waits for is over.
        own[atoms.row[release]] = atoms.dur[release] - _waited(rows, atoms, gpu, release)
    blocked = np.append(queue.call[queue.waited], queue.unseen)
    own[blocked] = np.minimum(own[blocked], queue.usual_ns)
    return own


def _waited(rows: Rows, atoms: Atoms, gpu: GpuStreams, atom: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how long GPU rows that were issued before each call, and over at its end, still ran in it, ns."""
    begin, dur = atoms.ts[atom], atoms.dur[atom]
    over = np.full(len(atom), -FAR)
    for stream in range(len(rows.stream_keys)):
        last = gpu.last_issued(stream, atom)
        end = np.where(last >= 0, rows.end[np.maximum(last, 0)], -FAR)
        over = np.maximum(over, np.where(end <= begin + dur + rows.gpu_spread, end, -FAR))
    waited: NDArray[np.int64] = np.clip(over - begin, 0, dur)
    return waited


def _without_wait(durations: NDArray[np.int64], otherwise: int) -> int:
    """Return what a waiting call takes when it has nothing to wait for: the median, or `otherwise` of too few."""
    return round(float(np.median(durations))) if len(durations) >= typical_values.FEW else otherwise
