"""A pause of the host in the only recorded step: copies of the block that it lies in have none."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host_spread, typical_values
from lumos_df.schema.codes import NONE
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten


def paused_once(made: Rewritten) -> Rewritten:
    """Return rewritten rows of which copies pause no longer than the second longest stretch of their thread's work.

    Blocks that are copied are alike, and one stretch over twice as long as all others is in one of them alone, so it is
    none of what they do. Several long ones are: a host may pause in each layer, now here and now there. Where several
    steps were recorded, a single one is a stall, or it comes in each of them.
    """
    graph = made.graph
    edge = np.flatnonzero(host_spread.works_between(graph) & (graph.edges.lag > 0))
    to = graph.edges.dst[edge]
    copied = made.copy[to] > 0
    steps = np.unique(graph.rows.step[graph.rows.step != NONE])
    if not copied.any() or len(steps) > 1:
        return made
    thread, ns = graph.rows.thread[to], graph.edges.lag[edge]
    lag = graph.edges.lag.copy()
    lag[edge[copied]] = np.minimum(ns[copied], _longest_usual(thread[~copied], ns[~copied], thread[copied]))
    return replace(made, graph=replace(graph, edges=replace(graph.edges, lag=lag)))


def _longest_usual(thread: NDArray[np.int32], ns: NDArray[np.int64], asked: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how long stretches of threads usually are at most, ns [asked]: the longest, unless it is a pause.

    Args:
        thread, ns: of recorded stretches [k].
        asked: threads.
    """
    longest, second, count = np.zeros((3, max(int(thread.max(initial=0)), int(asked.max())) + 1), np.int64)
    np.add.at(count, thread, 1)
    np.maximum.at(longest, thread, ns)
    order = np.lexsort((-ns, thread))
    others = order[np.append(False, thread[order][1:] == thread[order][:-1])]
    np.maximum.at(second, thread[others], ns[others])
    pauses = (longest >= 2 * second) & (count > typical_values.FEW)
    # A thread of which nothing was recorded but copies keeps them.
    usual = np.where(count > 0, np.where(pauses, second, longest), np.iinfo(np.int64).max)
    return usual[asked]
