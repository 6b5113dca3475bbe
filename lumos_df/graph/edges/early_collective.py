"""Waits for collectives that had always ended early enough: parameters gathered ahead, buckets of gradients.

They delayed nothing, so no start tells of them; over slower links they hold back what reads the result. No program
issues a collective for nothing: it waits with an event that was recorded behind it, once, in the order of issue.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls
from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate.forward import forward_star
from lumos_df.graph.simulate.pending_rows import oldest_pending
from lumos_df.graph.simulate.threads import reached
from lumos_df.schema.codes import COMMUNICATION, EVENT, NONE


def early_collectives(
    rows: Rows,
    atoms: Atoms,
    gpu: GpuStreams,
    waits: NDArray[np.int32],
    role: NDArray[np.int8],
    known: tuple[NDArray[np.int32], NDArray[np.int32]],
    run: NDArray[np.int64],
    group: NDArray[np.int64],
) -> Edges:
    """Return the edges from collectives to what the waits for them hold back.

    Open are waits of which nothing is known, or only what another one between the same launches says, too. One that
    comes right behind the record of an event waits for that one, so it is for what was issued last. Waits that look
    alike are for one stream: that of which most find a collective, of several the one whose are issued first.

    Args:
        rows, atoms, gpu: the trace.
        waits: atoms of the waits, in their order [w].
        role: what every row does as a call, of `calls` [n].
        known: row that each wait is for, and row that it holds back, or NONE [w].
        run: the same for waits of a thread between the same two launches [w].
        group: the same for waits that look alike [w].
    """
    before = atoms.before[waits]
    recorded = role[atoms.row] == calls.RECORD
    is_open = ((known[0] < 0) | _said_again(*known, run)) & ~((before >= 0) & recorded[before])
    reduces = _communicating(rows, gpu)
    streams = np.flatnonzero(reduces).tolist()
    if not streams or not is_open.any() or not recorded.any():
        return edges(np.empty(0, np.int32), np.empty(0, np.int32), EVENT, 0, False)
    held = _next_computing(rows, atoms, gpu, waits, reduces)
    start = np.where(held >= 0, rows.ts[np.maximum(held, 0)], -FAR)

    def pending(stream: int, asking: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the place among GPU rows of what each wait takes of a stream, or NONE [w]."""
        low, high = int(gpu.bounds[stream]), int(gpu.bounds[stream + 1])
        on_stream = gpu.row[low:high]
        behind = np.zeros(len(rows) + 1, np.int64)
        behind[on_stream] = np.arange(len(on_stream)) + 1
        last = np.where(is_open, 0, behind[known[0]])
        issued, end = gpu.issued[low:high], rows.end[on_stream]
        place: NDArray[np.int64] = oldest_pending(waits, asking, last, issued, end, start, rows.resolution)
        return np.where(place >= 0, low + place, NONE)

    many, first = np.zeros((2, len(streams), int(group.max()) + 1))
    for number, stream in enumerate(streams):
        place = pending(stream, is_open)
        found = place >= 0
        many[number] = np.bincount(group[found], minlength=len(many[number]))
        first[number] = np.bincount(group[found], gpu.issued[place[found]], len(first[number]))
    best = np.lexsort((first, -many), axis=0)[0]
    parts = []
    for number, stream in enumerate(streams):
        place = pending(stream, is_open & (best[group] == number))
        taken = np.flatnonzero(place >= 0)
        parts.append(edges(gpu.row[place[taken]], held[taken], EVENT, 0, False))
    return join(parts)


def _said_again(src: NDArray[np.int32], dst: NDArray[np.int32], run: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which waits would be for the same rows as a later one between the same launches [w]."""
    key = packed(run, src, dst)
    _, first = np.unique(key[::-1], return_index=True)
    again = np.ones(len(src), np.bool_)
    again[len(src) - 1 - first] = False
    return again & (src >= 0)


def _communicating(rows: Rows, gpu: GpuStreams) -> NDArray[np.bool_]:
    """Return which streams hold nothing but collectives [s]."""
    count = np.diff(gpu.bounds)
    family = rows.family[gpu.row] == COMMUNICATION
    of_family = np.bincount(rows.stream[gpu.row], family, len(count))
    alone: NDArray[np.bool_] = (count > 0) & (of_family == count)
    return alone


def _next_computing(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, waits: NDArray[np.int32], reduces: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Return the next row of the stream of other work that the thread of each wait issues to next, or NONE [w].

    A thread that issues no more, as autograd's behind its last node, had issued to that stream before.
    """
    launched = np.flatnonzero(gpu.launched & ~reduces[rows.stream[gpu.row]])
    stream_of = np.full(len(atoms.row), NONE, np.int32)
    stream_of[gpu.call[launched]] = rows.stream[gpu.row[launched]]
    launches = np.flatnonzero(stream_of >= 0)
    bounds, order = forward_star(atoms.thread[launches], len(atoms.bounds) - 1)
    stream = np.append(stream_of[launches[order]], NONE)
    thread = atoms.thread[waits]
    low, high = bounds[thread], bounds[thread + 1]
    place = reached(thread, waits.astype(np.int64), bounds, launches[order])
    stream = np.where(low < high, stream[np.minimum(place, high - 1)], NONE)
    held = np.full(len(waits), NONE, np.int32)
    for number in np.unique(stream[stream >= 0]).tolist():
        asking = stream == number
        held[asking] = gpu.next_issued(number, waits[asking])
    return held
