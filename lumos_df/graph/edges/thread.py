"""Thread edges: an atom follows the one before on its thread, after the host's work between them."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.edges.host_wait import HostWaits
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE, THREAD


def thread_edges(rows: Rows, atoms: Atoms, handoffs: Handoffs, waits: HostWaits) -> tuple[Edges, NDArray[np.int64]]:
    """Return the order within every thread.

    Returns:
        The edges; their lag is the host's work between two atoms, without its waits for another thread or for the GPU.
        And ns of the gap before each row that was such a wait [n].
    """
    idle_before = np.zeros(len(rows), np.int64)
    has = atoms.before >= 0
    before = np.maximum(atoms.before, 0)
    end = atoms.ts + atoms.dur
    gap = np.where(has, atoms.ts - end[before], 0)
    atom = atoms.of_row[handoffs.target]
    waited = has[atom]
    idle = np.clip(handoffs.woken - handoffs.idle, 0, np.maximum(gap[atom], 0))
    idle_before[handoffs.target[waited]] = idle[waited]
    idle_before[atoms.row[waits.atom]] = waits.idle
    src = np.where(has, atoms.row[before], NONE)
    return edges(src, atoms.row, THREAD, gap - idle_before[atoms.row], True), idle_before
