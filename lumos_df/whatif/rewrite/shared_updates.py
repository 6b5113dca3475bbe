"""The host's work for an optimizer: as much as a rank has parameters, and as replicas share them out."""

from dataclasses import replace

import numpy as np

from lumos_df.graph.job import Job
from lumos_df.whatif.durations import list_launches, operator_times, optimizer_shares
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.job.recorded_job import RecordedJob


def with_shared_updates(job: Job, anchor: RecordedJob, change: PlannedChange) -> Job:
    """Return a job whose hosts go through their part of the parameters.

    Args:
        job: the job.
        anchor: as it was recorded.
        change: how it was cut, and how it shall be.
    """
    graphs, grown = [], (operator_times.growth(change), operator_times.layers_grown(change))
    for rank, graph in enumerate(job.graphs):
        share = optimizer_shares.of_host(anchor, change.old, change.new, rank)
        slower = list_launches.slower(graph, anchor.about.ranks[rank].structure, *grown)
        if share == 1 and (slower == 1).all():
            graphs.append(graph)
            continue
        between, calls = optimizer_shares.host_work(graph, anchor.about.ranks[rank])
        lag = graph.edges.lag * np.where(between, share * slower[graph.edges.dst], 1.0)
        own = graph.own * np.where(calls, share * slower, 1.0)
        lag, own = (np.round(each).astype(np.int64) for each in (lag, own))
        graphs.append(replace(graph, own=own, edges=replace(graph.edges, lag=lag)))
    return job if all(new is old for new, old in zip(graphs, job.graphs, strict=True)) else replace(job, graphs=graphs)
