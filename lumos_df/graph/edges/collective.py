"""Collective edges of a job: which kernels wait for a member on another rank."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import CollectiveWaits
from lumos_df.graph.event_graph import EventGraph
from lumos_df.schema.codes import NONE


def waiting_members(graph: EventGraph, found: CollectiveWaits, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the kernels of the k-th trace that wait for a later one, and that one of each, as places in `found`.

    Those of collectives that make a circle wait for none.
    """
    own = found.of_trace(k)
    member, last = np.arange(own.start, own.stop), found.last[own]
    kept = graph.instance[graph.base[k] + found.row[own]] != NONE
    waits = kept & (last != NONE) & (last != member)
    return member[waits], last[waits]
