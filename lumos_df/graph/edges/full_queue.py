"""Sync edges of a full launch queue: a launch call ends after the row that had to end first, to make room."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import END_END, SYNC_EDGE

_DEPTH: Final = 256
"""Threshold, rows. A launch call that is followed by fewer unfinished rows did not wait for the queue.
Evidence: no recorded trace decides it; of literal ones, 200 rows are beside calls that load code, 300 fill a queue."""
_LONG_CALLS: Final = 10
"""Threshold, usual launch calls. A launch call that lasts no longer did not wait."""
_USUAL_PERCENTILE: Final = 25
"""Threshold, percentile. What a launch call takes that did not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaits:
    """Launch calls that may wait for a full queue; k entries."""

    source: NDArray[np.int32]
    """Row that has to end."""
    call: NDArray[np.int32]
    """Row of the launch call."""
    waited: NDArray[np.bool_]
    """Whether the call was seen to wait."""
    unseen: NDArray[np.int32]
    """Rows of launch calls that waited for what was issued before the recording and is not in it."""
    usual_ns: int
    """What a launch call takes that did not wait."""

    def freed_ns(self, rows: Rows) -> int:
        """Return the median time from the end of the row to that of the call, among calls that waited."""
        if not self.waited.any():
            return 0
        return round(float(np.median((rows.end[self.call] - rows.end[self.source])[self.waited])))

    def edges(self, rows: Rows) -> Edges:
        """Return the edges from the rows to the calls."""
        return edges(self.source, self.call, SYNC_EDGE, self.freed_ns(rows), False, END_END)


def queue_waits(rows: Rows, atoms: Atoms, gpu: GpuStreams) -> QueueWaits:
    """Return which launch calls a full queue holds back.

    A stream takes its queue in order, and what was issued before the recording began is at its front. How many rows a
    full queue holds differs, because events take places, too: it is judged by the rows that were unfinished when a long
    launch call ended, and for calls between two of these it is what it was at the one before.
    """
    launched = np.flatnonzero(gpu.launched)
    usual = int(np.percentile(atoms.dur[gpu.call[launched]], _USUAL_PERCENTILE)) if len(launched) else 0
    none = np.empty(0, np.int32)
    sources, calls, waited, unseen = [none], [none], [np.empty(0, np.bool_)], [none]
    queued = np.flatnonzero(gpu.launched | gpu.early)
    for stream in np.unique(rows.stream[gpu.row[launched]]).tolist():
        on_stream = queued[rows.stream[gpu.row[queued]] == stream]
        on_stream = on_stream[np.argsort(gpu.call[on_stream], kind="stable")]
        row = gpu.row[on_stream]
        early = int(np.count_nonzero(~gpu.launched[on_stream]))
        call = gpu.call[on_stream[early:]]
        call_end = (atoms.ts + atoms.dur)[call]
        turn = np.arange(early, len(on_stream))
        unfinished = turn + 1 - np.searchsorted(np.sort(rows.end[row]), call_end, side="right")
        blocked = np.flatnonzero((atoms.dur[call] > _LONG_CALLS * usual) & (unfinished >= _DEPTH))
        if len(blocked) < typical_values.FEW:
            continue
        near = blocked[np.maximum(np.searchsorted(blocked, turn - early, side="right") - 1, 0)]
        source = turn - unfinished[near]
        unseen.append(atoms.row[call[blocked[source[blocked] < 0]]])
        kept = np.flatnonzero(source >= 0)
        # A call that ended before this row did cannot have waited for it.
        kept = kept[rows.end[row[source[kept]]] <= call_end[kept]]
        sources.append(row[source[kept]])
        calls.append(atoms.row[call[kept]])
        waited.append(rows.end[row[source[kept]]] > atoms.ts[call[kept]])
    return QueueWaits(
        source=np.concatenate(sources),
        call=np.concatenate(calls),
        waited=np.concatenate(waited),
        unseen=np.concatenate(unseen),
        usual_ns=usual,
    )
