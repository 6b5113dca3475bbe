"""Handoff edges: a thread goes on after another one stopped, and a new thread after whatever ran before it."""

import numpy as np

from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.typical_values import medians
from lumos_df.schema.codes import HANDOFF, NONE


def handoff_edges(rows: Rows, atoms: Atoms, handoffs: Handoffs) -> Edges:
    """Return the edges from thread to thread."""
    return join([_after_waits(rows, atoms, handoffs), _to_new_threads(atoms, handoffs)])


def _after_waits(rows: Rows, atoms: Atoms, handoffs: Handoffs) -> Edges:
    """Return the edges to the rows that ended a thread's wait."""
    atom = atoms.of_row[handoffs.target]
    source = atoms.last_before(handoffs.source_thread, handoffs.signal)
    # The time to wake up is the trace's own, per direction; the rest is work measured on either thread. The first row
    # of a thread comes after the thread was made: that happens once, and is work, as are a direction's wakes too few to
    # be usual: before autograd's thread goes on, the one that asks it to looks through the whole graph.
    direction = packed(handoffs.source_thread, rows.thread[handoffs.target])
    wake = handoffs.woken - handoffs.signal
    again = np.flatnonzero(atoms.before[atom] >= 0)
    usual, known = medians(wake[again], direction[again])
    wake[again[known]] = usual[known]
    source_end = (atoms.ts + atoms.dur)[np.maximum(source, 0)]
    lag = np.maximum(handoffs.signal - source_end, 0) + wake + (rows.ts[handoffs.target] - handoffs.woken)
    forward = rows.forward[handoffs.target]
    recorded = (forward >= 0) & (rows.thread[np.maximum(forward, 0)] == handoffs.source_thread)
    src = np.where(source >= 0, atoms.row[np.maximum(source, 0)], NONE)
    return edges(src, handoffs.target, HANDOFF, lag, recorded)


def _to_new_threads(atoms: Atoms, handoffs: Handoffs) -> Edges:
    """Return the edges to first rows of threads of which nothing is known but that something was over before."""
    first = np.setdiff1d(np.flatnonzero(atoms.before < 0), atoms.of_row[handoffs.target])
    end = atoms.ts + atoms.dur
    by_end = np.lexsort((np.arange(len(end)), end))
    # Of what ends at that very moment nothing is known.
    place = np.searchsorted(end[by_end], atoms.ts[first], side="left") - 1
    has = place >= 0
    first, source = first[has], by_end[place[has]]
    return edges(atoms.row[source], atoms.row[first], HANDOFF, atoms.ts[first] - end[source], False)
