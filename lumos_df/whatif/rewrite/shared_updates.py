"""The host's share of an optimizer's work that replicas share out: as much less as its kernels are."""

from dataclasses import replace

import numpy as np

from lumos_df.graph.job import Job
from lumos_df.schema.codes import OPTIMIZER, RUNTIME, THREAD
from lumos_df.schema.plan_words import SHARD_OPTIMIZER
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.job.settings import Sizes


def with_shared_updates(job: Job, ranks: list[DescribedRank], old: Sizes, new: Sizes) -> Job:
    """Return a job whose hosts go through their part of the parameters.

    Args:
        job: the job.
        ranks: what is known of its ranks.
        old: how it was cut.
        new: how it shall be.
    """
    share = old.copies(SHARD_OPTIMIZER) / new.copies(SHARD_OPTIMIZER)
    if share == 1:
        return job
    graphs = []
    for graph, rank in zip(job.graphs, ranks, strict=True):
        rows, edges = graph.rows, graph.edges
        updating = (rank.structure.phase == OPTIMIZER) & (rows.thread >= 0)
        # The host's work is what lies between two moments of a thread.
        between = (edges.kind == THREAD) & updating[edges.src] & updating[edges.dst]
        lag = np.where(between, np.round(edges.lag * share), edges.lag).astype(np.int64)
        calls = updating & (rows.kind == RUNTIME)
        own = np.where(calls, np.round(graph.own * share), graph.own).astype(np.int64)
        graphs.append(replace(graph, own=own, edges=replace(edges, lag=lag)))
    return replace(job, graphs=graphs)
