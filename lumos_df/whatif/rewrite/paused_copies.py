"""Pauses of the host in the only recorded step: copies of the block that one lies in have none."""

from dataclasses import replace

import numpy as np

from lumos_df.graph import host_spread, stalls
from lumos_df.schema.codes import NONE
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten


def paused_once(made: Rewritten) -> Rewritten:
    """Return rewritten rows of which copies pause no longer than the longest usual stretch of their thread's work.

    Blocks that are copied are alike, and a stretch over twice as long as all others is in one of them alone, so it is
    none of what they do. Where several steps were recorded, it is a stall, or it comes in each of them.
    """
    graph = made.graph
    edge = np.flatnonzero(host_spread.works_between(graph) & (graph.edges.lag > 0))
    to = graph.edges.dst[edge]
    steps = np.unique(graph.rows.step[graph.rows.step != NONE])
    if not (made.copy[to] > 0).any() or len(steps) > 1:
        return made
    longest = stalls.longest_usual(graph.rows.thread[to].astype(np.int64), graph.edges.lag[edge])
    lag = graph.edges.lag.copy()
    lag[edge] = np.where((longest != NONE) & (made.copy[to] > 0), longest, lag[edge])
    return replace(made, graph=replace(graph, edges=replace(graph.edges, lag=lag)))
