"""The graphs of a job's traces as one graph of events, and its simulation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import collective_waits
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.contracted_graph import ContractedGraph, contracted
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate import forward
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


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
    """Lay the graphs of a job out for simulation; without `instances` the ranks run by themselves."""
    ranks = [graph.rows for graph in graphs]
    base = np.cumsum([0, *map(len, ranks)])
    nodes = int(base[-1])
    shift = to_job_time(ranks, instances)
    src = np.concatenate([graph.edges.src + np.int32(base[k]) for k, graph in enumerate(graphs)])
    floor = [forward.shifted(graph.earliest_starts, shift[k]) for k, graph in enumerate(graphs)]
    instance = np.full(nodes, NONE, np.int32)
    transfer = np.empty(0, np.int64)
    order = graphs[0].order
    if instances is not None:
        transfer = instances.transfer
        instance[base[instances.trace] + instances.row] = instances.instance
        if len(graphs) > 1:
            members = members_of_traces(instances, len(graphs))
            parts = [contracted(graph, row) for graph, (row, _) in zip(graphs, members, strict=True)]
            instance[np.isin(instance, in_circles(contracted_graph(parts, shift, instances), instances))] = NONE
    if len(graphs) > 1:
        order = _joint_order(graphs, base, shift, src, instance, len(transfer))
    unseen, waited = collective_waits.lasting(ranks, instances)
    own = np.concatenate([graph.own for graph in graphs])
    return _laid_out(
        base=base,
        shift=shift,
        order=order,
        src=src,
        dst=np.concatenate([graph.edges.dst + np.int32(base[k]) for k, graph in enumerate(graphs)]),
        binds=np.concatenate([graph.edges.binds for graph in graphs]),
        lag=np.concatenate([graph.edges.lag for graph in graphs]),
        own=own,
        floor=np.concatenate(floor),
        instance=instance,
        transfer=transfer,
        unseen=unseen,
        waited=np.minimum(waited, own),
    )


def contracted_graph(parts: list[ContractedGraph], shift: NDArray[np.int64], instances: Instances) -> EventGraph:
    """Lay the contracted graphs of a job out; collectives that make a circle are left out.

    Args:
        parts: those of its ranks.
        shift: what to add to each trace's time to get job time, ns [traces].
        instances: its collectives.
    """
    base = np.cumsum([0, *(len(part.own) for part in parts)])
    nodes = int(base[-1])
    src, dst, order = (
        np.concatenate([getattr(part, name) + np.int32(base[k]) for k, part in enumerate(parts)])
        for name in ("src", "dst", "order")
    )
    begun = np.concatenate([part.begun + shift[k] for k, part in enumerate(parts)])
    pointer, edge = forward.forward_star(src, nodes)
    instance = np.full(nodes, NONE, np.int32)
    for k, (row, collective) in enumerate(members_of_traces(instances, len(parts))):
        place = np.searchsorted(parts[k].row, row)
        there = np.append(parts[k].row, NONE)[place] == row
        instance[base[k] + place[there]] = collective[there]
    collectives = len(instances.transfer)
    by_time = order[np.argsort(begun[order], kind="stable")]
    while True:
        order = forward.topological(by_time, pointer, edge, dst, nodes, instance, _members(instance, collectives))
        broken = _broken(order, src, dst, instance, collectives)
        if not len(broken):
            break
        # What was matched wrongly, or cut off on one rank: these members last as long as they were recorded.
        instance = np.where(np.isin(instance, broken), NONE, instance).astype(np.int32)
    return _laid_out(
        base=base,
        shift=shift,
        order=order,
        src=src,
        dst=dst,
        binds=np.concatenate([part.binds for part in parts]),
        lag=np.concatenate([part.lag for part in parts]),
        own=np.concatenate([part.own for part in parts]),
        floor=np.concatenate([forward.shifted(part.floor, shift[k]) for k, part in enumerate(parts)]),
        instance=instance,
        transfer=instances.transfer,
        unseen=np.zeros(collectives, np.int64),
        waited=np.zeros(nodes, np.int64),
    )


def _laid_out(**columns: NDArray[Any]) -> EventGraph:
    """Return the event graph of some columns with those that follow from them: edges by source, members."""
    pointer, edge = forward.forward_star(columns["src"], int(columns["base"][-1]))
    members = _members(columns["instance"], len(columns["transfer"]))
    return EventGraph(pointer=pointer, edge=edge, members=members, **columns)


def to_job_time(ranks: list[Rows], instances: Instances | None) -> NDArray[np.int64]:
    """Return what to add to each trace's time to get job time, ns [traces].

    Job time starts with the first row of any rank, so that numbers stay small.
    """
    first = [int(rows.ts[0]) if len(rows) else 0 for rows in ranks]
    if instances is None:
        return -np.array(first, np.int64)
    unix = [rows.clock_origin - clock.offset_ns for rows, clock in zip(ranks, instances.clocks, strict=True)]
    return np.array(unix, np.int64) - min(start + to for start, to in zip(first, unix, strict=True))


def members_of_traces(instances: Instances, traces: int) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Return (row, collective) of the members on each trace."""
    place = np.argsort(instances.trace, kind="stable")
    bounds = np.searchsorted(instances.trace[place], np.arange(1, traces))
    return [(instances.row[here], instances.instance[here]) for here in np.split(place, bounds)]


def _members(instance: NDArray[np.int32], collectives: int) -> NDArray[np.int32]:
    """Return how many members each collective has, from the collective of each node."""
    return np.bincount(instance[instance >= 0], minlength=collectives).astype(np.int32)


def _broken(
    order: NDArray[np.int32],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    instance: NDArray[np.int32],
    collectives: int,
) -> NDArray[np.int32]:
    """Return the collectives of which a member is followed by something before all of them are there."""
    place = np.empty(len(instance), np.int64)
    place[order] = np.arange(len(order))
    complete = np.full(collectives, -1, np.int64)
    inside = np.flatnonzero(instance >= 0)
    np.maximum.at(complete, instance[inside], place[inside])
    leaves = instance[src] >= 0
    of_src = instance[src[leaves]]
    return np.unique(of_src[place[dst[leaves]] < complete[of_src]])


def in_circles(graph: EventGraph, instances: Instances) -> NDArray[np.int64]:
    """Return the collectives that a contracted graph leaves out."""
    return np.setdiff1d(instances.instance, graph.instance)


def _joint_order(
    graphs: list[TraceGraph],
    base: NDArray[np.int64],
    shift: NDArray[np.int64],
    src: NDArray[np.int32],
    instance: NDArray[np.int32],
    collectives: int,
) -> NDArray[np.int32]:
    """Return an order for all ranks of a job whose collectives make no circle."""
    begin = np.concatenate([graph.rows.ts + shift[k] for k, graph in enumerate(graphs)])
    by_time = np.concatenate([base[k] + graph.order for k, graph in enumerate(graphs)]).astype(np.int32)
    by_time = by_time[np.argsort(begin[by_time], kind="stable")]
    target = np.concatenate(
        [np.where(graph.order_target >= 0, graph.order_target + base[k], NONE) for k, graph in enumerate(graphs)]
    )
    real = target >= 0
    nodes = int(base[-1])
    pointer, edge = forward.forward_star(src[real], nodes)
    order: NDArray[np.int32] = forward.topological(
        by_time, pointer, edge, target[real].astype(np.int32), nodes, instance, _members(instance, collectives)
    )
    return order


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
