"""A job in which some operators of the host, and all that they call, take no time."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.graph.simulate.forward import inherited


def without_calls(advised: AdvisedJob, call: list[NDArray[np.int64]]) -> tuple[int, Callable[[ChangedGraph], None]]:
    """Return what some operators of each rank, with all that they call, take, ns, and the change that it is nothing."""
    inside = []
    for rows, mine in zip(advised.ranks, call, strict=True):
        called = np.zeros(len(rows), np.bool_)
        called[mine] = True
        inside.append(inherited(called, rows.parent))
    shares = np.concatenate([host.share(each) for host, each in zip(advised.host_works, inside, strict=True)])
    lag = np.round(np.maximum(advised.event_graph.lag, 0) * shares).astype(np.int64)
    nodes = np.flatnonzero(np.concatenate(inside) & advised.simulated)

    def apply(changed: ChangedGraph) -> None:
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))
        changed.own[nodes] = 0

    return int(lag.sum() + advised.event_graph.own[nodes].sum()), apply
