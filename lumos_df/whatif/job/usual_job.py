"""A recorded job without what happened once: its stalls take what like ones take."""

from dataclasses import replace

from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import stalls
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.trace_graph import TraceGraph


def without_stalls(job: Job) -> tuple[Job, list[str]]:
    """Return a job whose stalls take what the longest like them takes, and what to say of it."""
    of_ranks = [stalls.find(graph) for graph in job.graphs]
    count = sum(len(found.item) for found in of_ranks)
    if not count:
        return job, []
    graphs = [_usual(graph, found) for graph, found in zip(job.graphs, of_ranks, strict=True)]
    total = sum(int(found.over.sum()) for found in of_ranks)
    longest = max((found for found in of_ranks if len(found.item)), key=lambda found: int(found.over.max()))
    most = longest.name[int(longest.over.argmax())]
    told = (
        f"left out {format_count(count, 'stall')} of {format_ns(total)} that came once, the longest {most}: the view "
        "`stall` lists them, --keep-stalls keeps them"
    )
    return replace(job, graphs=graphs, event_graph=event_graph(graphs, job.instances)), [told]


def _usual(graph: TraceGraph, found: stalls.Stalls) -> TraceGraph:
    if not len(found.item):
        return graph
    own, lag = stalls.without(graph, found)
    return replace(graph, own=own, edges=replace(graph.edges, lag=lag))
