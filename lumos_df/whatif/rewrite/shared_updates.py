"""The host's share of an optimizer's work that replicas share out: as much less as its part of the parameters is."""

from dataclasses import replace

import numpy as np

from lumos_df.graph.job import Job
from lumos_df.whatif.durations import optimizer_shares
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.job.recorded_job import RecordedJob


def with_shared_updates(job: Job, anchor: RecordedJob, change: PlannedChange) -> Job:
    """Return a job whose hosts go through their part of the parameters.

    Args:
        job: the job.
        anchor: as it was recorded.
        change: how it was cut, and how it shall be.
    """
    graphs = []
    for rank, graph in enumerate(job.graphs):
        share = optimizer_shares.of_host(anchor, change.old, change.new, rank)
        if share == 1:
            graphs.append(graph)
            continue
        between, calls = optimizer_shares.host_work(graph, anchor.about.ranks[rank])
        lag = np.where(between, np.round(graph.edges.lag * share), graph.edges.lag).astype(np.int64)
        own = np.where(calls, np.round(graph.own * share), graph.own).astype(np.int64)
        graphs.append(replace(graph, own=own, edges=replace(graph.edges, lag=lag)))
    return job if all(new is old for new, old in zip(graphs, job.graphs, strict=True)) else replace(job, graphs=graphs)
