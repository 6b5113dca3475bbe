"""Rows of a job that are not there any more, with what they launched."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.graph.simulate.forward import inherited


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedWork:
    """What goes of a job's graph: N nodes, m edges."""

    node: NDArray[np.bool_]
    """[N]"""
    lag: NDArray[np.float64]
    """[m] share of each lag."""
    collective: NDArray[np.bool_]
    """[collectives] those without any member left."""

    def apply(self, changed: ChangedGraph) -> None:
        """Take it away."""
        changed.own[self.node] = 0
        changed.transfer[self.collective] = 0
        less = np.round(np.maximum(changed.lag, 0) * self.lag).astype(np.int64)
        changed.lag[:] -= less


def removed_work(advised: AdvisedJob, marked: list[NDArray[np.bool_]]) -> RemovedWork:
    """Return what goes with some rows of each rank [n], all that is inside them and all that they launched."""
    shares, nodes = [], []
    for of_trace, host, of_rank in zip(advised.graphs, advised.host_works, marked, strict=True):
        inside = inherited(of_rank, of_trace.rows.parent)
        share = host.share(inside & ~of_trace.rows.on_gpu)
        # What is not launched costs no latency and no gap.
        share[(inside & of_trace.rows.on_gpu)[of_trace.edges.dst]] = 1
        shares.append(share)
        nodes.append(inside)
    graph, node = advised.event_graph, np.concatenate(nodes)
    left = np.bincount(graph.instance[(graph.instance >= 0) & ~node], minlength=len(graph.transfer))
    return RemovedWork(node=node, lag=np.concatenate(shares), collective=left == 0)
