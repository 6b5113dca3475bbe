"""The graphs of a job's traces as one graph of events, and its simulation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import collective_waits
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.simulate import forward
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import END_END, NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGraph:
    """The graphs of a job as the loops want them: N nodes, the rows of its traces in turn; times ns, job time."""

    base: NDArray[np.int64]
    """[traces + 1] number of each trace's first row."""
    shift: NDArray[np.int64]
    """[traces] what to add to a trace's time to get job time, ns."""
    order: NDArray[np.int32]
    """The nodes in the order in which they run."""
    pointer: NDArray[np.int32]
    """[N + 1] where the edges of each source begin in `edge`."""
    edge: NDArray[np.int32]
    """[m] edges by source, as `simulate.forward.forward_star` returns them."""
    src: NDArray[np.int32]
    """[m] node that is waited for."""
    dst: NDArray[np.int32]
    """[m] node that waits."""
    binds: NDArray[np.int8]
    """[m] place in `schema.words.BINDS`."""
    lag: NDArray[np.int64]
    """[m] ns."""
    own: NDArray[np.int64]
    """[N] ns that a node lasts by itself."""
    floor: NDArray[np.int64]
    """[N] earliest start, ns, or UNSET."""
    instance: NDArray[np.int32]
    """Collective of which the row is a member, or NONE."""
    members: NDArray[np.int32]
    """[collectives] how many."""
    transfer: NDArray[np.int64]
    """[collectives] ns."""
    unseen: NDArray[np.int64]
    """[collectives] part of it in which members waited for ranks that were not recorded, ns: changes leave it."""
    waited: NDArray[np.int64]
    """[N] part of `own` in which a communication kernel waited for other ranks, ns: changes leave it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulation; [N] each, ns, job time."""

    start: NDArray[np.int64]
    """When each node starts."""
    end: NDArray[np.int64]
    """When it ends."""
    start_cause: NDArray[np.int32]
    """Edge that bound its start, or a code of `simulate.forward.simulate`."""
    end_cause: NDArray[np.int32]
    """The same of its end."""


def event_graph(graphs: list[TraceGraph], instances: Instances | None = None) -> EventGraph:
    """Lay the graphs of a job out for simulation; without `instances` the ranks run by themselves.

    Rows without any predecessor, and those that waited for work from before the recording, start as recorded: that is
    the state in which it began, which nothing in it explains.
    """
    base = np.cumsum([0, *(len(graph.rows) for graph in graphs)])
    nodes = int(base[-1])
    shift = _shift(graphs, instances)
    src = np.concatenate([graph.edges.src + np.int32(base[k]) for k, graph in enumerate(graphs)])
    dst = np.concatenate([graph.edges.dst + np.int32(base[k]) for k, graph in enumerate(graphs)])
    binds = np.concatenate([graph.edges.binds for graph in graphs])
    floor = np.full(nodes, forward.UNSET, np.int64)
    led = np.zeros(nodes, np.bool_)
    led[dst[binds != END_END]] = True
    for k, graph in enumerate(graphs):
        free = graph.order[~led[base[k] : base[k + 1]][graph.order]]
        for rows in (free, graph.carried):
            floor[base[k] + rows] = graph.rows.ts[rows] + shift[k]
    pointer, edge = forward.forward_star(src, nodes)
    instance = np.full(nodes, NONE, np.int32)
    transfer = np.empty(0, np.int64)
    if instances is not None:
        instance[base[instances.trace] + instances.row] = instances.instance
        transfer = instances.transfer
    unseen, waited = collective_waits.lasting([graph.rows for graph in graphs], instances)
    own = np.concatenate([graph.own for graph in graphs])
    order = graphs[0].order
    if len(graphs) > 1:
        begin = np.concatenate([graph.rows.ts + shift[k] for k, graph in enumerate(graphs)])
        by_time = np.concatenate([base[k] + graph.order for k, graph in enumerate(graphs)]).astype(np.int32)
        by_time = by_time[np.argsort(begin[by_time], kind="stable")]
        order, instance = _joint_order(graphs, base, by_time, src, instance, len(transfer))
    return EventGraph(
        base=base,
        shift=shift,
        order=order,
        pointer=pointer,
        edge=edge,
        src=src,
        dst=dst,
        binds=binds,
        lag=np.concatenate([graph.edges.lag for graph in graphs]),
        own=own,
        floor=floor,
        instance=instance,
        members=_members(instance, len(transfer)),
        transfer=transfer,
        unseen=unseen,
        waited=np.minimum(waited, own),
    )


def _shift(graphs: list[TraceGraph], instances: Instances | None) -> NDArray[np.int64]:
    """Return what to add to each trace's time to get job time, ns [traces].

    Job time starts with the first row of any rank, so that numbers stay small.
    """
    first = [int(graph.rows.ts[0]) if len(graph.rows) else 0 for graph in graphs]
    if instances is None:
        return -np.array(first, np.int64)
    unix = [graph.rows.clock_origin - clock.offset_ns for graph, clock in zip(graphs, instances.clocks, strict=True)]
    return np.array(unix, np.int64) - min(start + to for start, to in zip(first, unix, strict=True))


def _members(instance: NDArray[np.int32], collectives: int) -> NDArray[np.int32]:
    """Return how many members each collective has, from the collective of each node."""
    return np.bincount(instance[instance >= 0], minlength=collectives).astype(np.int32)


def _joint_order(
    graphs: list[TraceGraph],
    base: NDArray[np.int64],
    by_time: NDArray[np.int32],
    src: NDArray[np.int32],
    instance: NDArray[np.int32],
    collectives: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return an order for all ranks, and each node's collective without those that would make a circle."""
    target = np.concatenate(
        [np.where(graph.order_target >= 0, graph.order_target + base[k], NONE) for k, graph in enumerate(graphs)]
    )
    real = target >= 0
    source, to = src[real], target[real].astype(np.int32)
    nodes = int(base[-1])
    pointer, edge = forward.forward_star(source, nodes)
    while True:
        order = forward.topological(by_time, pointer, edge, to, nodes, instance, _members(instance, collectives))
        place = np.empty(nodes, np.int64)
        place[order] = np.arange(len(order))
        complete = np.full(collectives, -1, np.int64)
        inside = np.flatnonzero(instance >= 0)
        np.maximum.at(complete, instance[inside], place[inside])
        leaves = instance[source] >= 0
        early = place[to[leaves]] < complete[instance[source[leaves]]]
        broken = np.unique(instance[source[leaves]][early])
        if not len(broken):
            return order, instance
        # What was matched wrongly, or cut off on one rank: these members last as long as they were recorded.
        instance = np.where(np.isin(instance, broken), NONE, instance).astype(np.int32)


def kept_members(graph: EventGraph, instances: Instances) -> NDArray[np.int64]:
    """Return which members stayed members: those of collectives that make no circle."""
    return np.flatnonzero(graph.instance[graph.base[instances.trace] + instances.row] >= 0)


def run(graph: EventGraph) -> Run:
    """Simulate the job."""
    start, end, start_cause, end_cause = forward.simulate(
        graph.order,
        graph.pointer,
        graph.edge,
        graph.dst,
        graph.binds,
        graph.lag,
        graph.own,
        graph.floor,
        graph.instance,
        graph.members,
        graph.transfer,
    )
    return Run(start=start, end=end, start_cause=start_cause, end_cause=end_cause)


def of_trace(graph: EventGraph, result: Run, k: int) -> Run:
    """Return the k-th trace's part of a simulation, on the trace's clock."""
    part = slice(int(graph.base[k]), int(graph.base[k + 1]))
    shift = graph.shift[k]
    return Run(
        start=forward.shifted(result.start[part], -shift),
        end=forward.shifted(result.end[part], -shift),
        start_cause=result.start_cause[part],
        end_cause=result.end_cause[part],
    )
