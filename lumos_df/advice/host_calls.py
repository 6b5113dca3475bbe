"""A job in which some operators of the host, and all that they call, take less time or none."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.graph.host_work import HostWork, selected_rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import NONE


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


def less_lag(work: HostWork, row: NDArray[np.int64], ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how much shorter the lag of each edge of a trace is, ns [m], when some operators take less.

    Args:
        work: the host work of the trace.
        row: the operators [k].
        ns: by how much each takes less, of its work between calls [k].
    """
    selector = np.full(len(work.graph.rows), NONE, np.int32)
    selector[row] = np.arange(len(row))
    edge, which, part = work.shares(selected_rows(selector, work.graph.rows.parent))
    worked = part * work.graph.edges.lag[edge]
    gone = np.minimum(ns / np.maximum(np.bincount(which, worked, len(row)), 1), 1)
    return np.bincount(edge, worked * gone[which], len(work.graph.edges)).astype(np.int64)
