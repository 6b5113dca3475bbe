"""Collective edges of a job: which kernels wait for a member on another rank."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import CollectiveWaits
from lumos_df.graph.event_graph import EventGraph
from lumos_df.schema.codes import NONE


def waiting_members(
    graph: EventGraph, collectives: CollectiveWaits, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the kernels of the k-th trace that wait for a later one, and that one of each, as places in `collectives`.

    Those of collectives that make a circle wait for none.
    """
    kernels = collectives.of_trace(k)
    member, last = np.arange(kernels.start, kernels.stop), collectives.last[kernels]
    kept = graph.instance[graph.base[k] + collectives.row[kernels]] != NONE
    waits = kept & (last != NONE) & (last != member)
    return member[waits], last[waits]
