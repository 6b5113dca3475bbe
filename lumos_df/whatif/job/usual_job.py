"""A recorded job without what was of that run alone: its stalls, and how fast its host happened to be."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import host_speed, stalls, typical_values
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.trace_graph import TraceGraph


def without_stalls(job: Job, shapes: list[NDArray[np.int32]], siblings: list[TraceGraph]) -> tuple[Job, list[str]]:
    """Return a job whose stalls take what the longest like them takes, and what to say of it.

    Args:
        job: the job.
        shapes: code of the shapes of each row's inputs, one array a rank.
        siblings: the same job at other sizes, whose host does the same.
    """
    found = [stalls.find(graph, shape=shape, beside=siblings) for graph, shape in zip(job.graphs, shapes, strict=True)]
    of_ranks = stalls.of_job(found, job.graphs)
    if not any(len(found.item) for found in of_ranks):
        return job, []
    graphs = [_usual(graph, found) for graph, found in zip(job.graphs, of_ranks, strict=True)]
    # Ranks stall at the same time, so what all of them lose together is no time of the job.
    place = max(range(len(of_ranks)), key=lambda rank: int(of_ranks[rank].over.sum()))
    most = of_ranks[place]
    rank = f" of rank {job.graphs[place].rows.rank}" if len(job.graphs) > 1 else ""
    told = (
        f"left out {format_count(len(most.item), 'stall')}{rank}, {format_ns(int(most.over.sum()))} that came once, "
        f"the longest {most.name[int(most.over.argmax())]}: the view `stall` lists them, --keep-stalls keeps them"
    )
    return replace(job, graphs=graphs, event_graph=event_graph(graphs, job.instances)), [told]


def with_usual_host(job: Job, recorded: TraceGraph, siblings: list[TraceGraph]) -> tuple[Job, list[str]]:
    """Return a job of one rank whose host is as fast as those of all its recordings on average, and what to say of it.

    Args:
        job: the job, whose durations may have changed.
        recorded: its rank as recorded.
        siblings: the same job at other sizes, whose host does the same.
    """
    slow = host_speed.slowness([recorded, *siblings])
    if slow is None:
        return job, []
    factor = float(np.exp(-slow[0]))
    graphs = [host_speed.scaled(graph, factor) for graph in job.graphs]
    scaled = replace(job, graphs=graphs, event_graph=event_graph(graphs, job.instances))
    apart = 100 * (factor - 1)
    if abs(apart) < typical_values.LEAST_PCT:
        return scaled, []
    runs = format_count(len(siblings) + 1, "recording")
    how = f"{abs(apart):.1f}% {'slower' if apart > 0 else 'faster'}"
    return scaled, [f"the host is taken to be as fast as in {runs} on average: {how} than in this one"]


def _usual(graph: TraceGraph, found: stalls.Stalls) -> TraceGraph:
    if not len(found.item):
        return graph
    own, lag = stalls.without(graph, found)
    return replace(graph, own=own, edges=replace(graph.edges, lag=lag))
