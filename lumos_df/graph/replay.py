"""Run a trace's graph again and compare."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import backward, threads
from lumos_df.graph import simulate as loops
from lumos_df.graph.collectives import Instances
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.edges import END_END
from lumos_df.graph.rows import NONE
from lumos_df.graph.steps import Breakdown, Steps, breakdown, steps


@dataclass(frozen=True, slots=True)
class Network:
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
    """[m] edges by source, as `simulate.forward_star` returns them."""
    src: NDArray[np.int32]
    """[m] node that is waited for."""
    dst: NDArray[np.int32]
    """[m] node that waits."""
    binds: NDArray[np.int8]
    """[m] place in `edges.BINDS`."""
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


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation; [N] each, ns, job time."""

    start: NDArray[np.int64]
    """When each node starts."""
    end: NDArray[np.int64]
    """When it ends."""
    start_cause: NDArray[np.int32]
    """Edge that bound its start, or a code of `simulate.simulate`."""
    end_cause: NDArray[np.int32]
    """The same of its end."""


def network(graphs: list[Graph], instances: Instances | None = None) -> Network:
    """Lay the graphs of a job out for simulation; without `instances` the ranks run by themselves.

    Rows without any predecessor, and those held by work that the recording does not have, start as recorded: that is
    the state in which it began, which nothing in it explains.
    """
    base = np.cumsum([0, *(len(graph.rows) for graph in graphs)])
    first = [int(graph.rows.ts[0]) if len(graph.rows) else 0 for graph in graphs]
    if instances is None:
        shift = -np.array(first, np.int64)
    else:
        unix = [
            graph.rows.clock_origin - clock.offset_ns for graph, clock in zip(graphs, instances.clocks, strict=True)
        ]
        # Job time starts with the first row of any rank, so that numbers stay small.
        shift = np.array(unix, np.int64) - min(start + to for start, to in zip(first, unix, strict=True))
    src = np.concatenate([graph.edges.src + np.int32(base[k]) for k, graph in enumerate(graphs)])
    dst = np.concatenate([graph.edges.dst + np.int32(base[k]) for k, graph in enumerate(graphs)])
    binds = np.concatenate([graph.edges.binds for graph in graphs])
    lag = np.concatenate([graph.edges.lag for graph in graphs])
    many = int(base[-1])
    floor = np.full(many, loops.UNSET, np.int64)
    led = np.zeros(many, np.bool_)
    led[dst[binds != END_END]] = True
    for k, graph in enumerate(graphs):
        free = graph.order[~led[base[k] : base[k + 1]][graph.order]]
        for rows in (free, graph.carried):
            floor[base[k] + rows] = graph.rows.ts[rows] + shift[k]
    pointer, edge = loops.forward_star(src, many)
    instance = np.full(many, NONE, np.int32)
    transfer = np.empty(0, np.int64)
    if instances is not None:
        instance[base[instances.trace] + instances.row] = instances.instance
        transfer = instances.transfer
    members = np.bincount(instance[instance >= 0], minlength=len(transfer)).astype(np.int32)
    order = graphs[0].order
    if len(graphs) > 1:
        begin = np.concatenate([graph.rows.ts + shift[k] for k, graph in enumerate(graphs)])
        nodes = np.concatenate([base[k] + graph.order for k, graph in enumerate(graphs)]).astype(np.int32)
        nodes = nodes[np.argsort(begin[nodes], kind="stable")]
        order, instance = _joint_order(graphs, base, nodes, src, instance, members)
        members = np.bincount(instance[instance >= 0], minlength=len(transfer)).astype(np.int32)
    own = np.concatenate([graph.own for graph in graphs])
    return Network(base, shift, order, pointer, edge, src, dst, binds, lag, own, floor, instance, members, transfer)


def _joint_order(
    graphs: list[Graph],
    base: NDArray[np.int64],
    nodes: NDArray[np.int32],
    src: NDArray[np.int32],
    instance: NDArray[np.int32],
    members: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return an order for all ranks, and the collectives without those that would make a circle."""
    target = np.concatenate(
        [np.where(graph.order_target >= 0, graph.order_target + base[k], NONE) for k, graph in enumerate(graphs)]
    )
    real = target >= 0
    from_, to = src[real], target[real].astype(np.int32)
    pointer, edge = loops.forward_star(from_, int(base[-1]))
    while True:
        order = loops.topological(nodes, pointer, edge, to, int(base[-1]), instance, members)
        place = np.empty(int(base[-1]), np.int64)
        place[order] = np.arange(len(order))
        complete = np.full(len(members), -1, np.int64)
        inside = np.flatnonzero(instance >= 0)
        np.maximum.at(complete, instance[inside], place[inside])
        leaves = instance[from_] >= 0
        early = place[to[leaves]] < complete[instance[from_[leaves]]]
        broken = np.unique(instance[from_[leaves]][early])
        if not len(broken):
            return order, instance
        # What was matched wrongly, or cut off on one rank: these members last as long as they were recorded.
        instance = np.where(np.isin(instance, broken), NONE, instance).astype(np.int32)
        members = np.bincount(instance[instance >= 0], minlength=len(members)).astype(np.int32)


def kept_members(net: Network, instances: Instances) -> NDArray[np.int64]:
    """Return which members stayed members: those of collectives that make no circle."""
    return np.flatnonzero(net.instance[net.base[instances.trace] + instances.row] >= 0)


def run(net: Network) -> Run:
    """Simulate the job."""
    return Run(
        *loops.simulate(
            net.order,
            net.pointer,
            net.edge,
            net.dst,
            net.binds,
            net.lag,
            net.own,
            net.floor,
            net.instance,
            net.members,
            net.transfer,
        )
    )


def of_trace(net: Network, result: Run, k: int) -> Run:
    """Return one trace's part of a simulation, on the trace's clock."""
    low, high = int(net.base[k]), int(net.base[k + 1])
    start, end = result.start[low:high], result.end[low:high]
    shift = net.shift[k]
    return Run(
        loops.shifted(start, -shift),
        loops.shifted(end, -shift),
        result.start_cause[low:high],
        result.end_cause[low:high],
    )


def moments(graph: Graph, result: Run, thread: NDArray[np.int32], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when moments of host threads come in the simulation, ns; between two atoms time runs evenly."""
    atoms = graph.atoms
    placed: NDArray[np.int64] = threads.moments(
        at,
        thread,
        atoms.by_thread,
        atoms.bounds,
        atoms.row,
        atoms.ts,
        atoms.dur,
        result.start,
        result.end,
        graph.idle_before,
    )
    return placed


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace beside its simulation; [steps] unless said otherwise, ns."""

    graph: Graph
    """The trace."""
    run: Run
    """Its simulation: the nodes of the graph."""
    steps: Steps
    """Its steps as recorded."""
    start: NDArray[np.int64]
    """[n] simulated start of every row, or UNSET outside the graph."""
    end: NDArray[np.int64]
    """[n]"""
    low: NDArray[np.int64]
    """When each step begins, simulated."""
    high: NDArray[np.int64]
    """When it ends, simulated."""
    unexplained: NDArray[np.int64]
    """Time of the recorded step that no edge explains."""
    recorded: Breakdown
    """Where the time went as recorded."""
    replayed: Breakdown
    """Where it went in the simulation."""


def replay(graph: Graph, result: Run) -> Replay:
    """Place every row and step of a trace by a simulation of its graph."""
    rows = graph.rows
    marks = steps(rows)
    start, end = _every_row(graph, result)
    low, high = windows(graph, result, marks)
    return Replay(
        graph,
        result,
        marks,
        start,
        end,
        low,
        high,
        _unexplained(graph, marks),
        breakdown(rows, rows.ts, rows.end, marks.low, marks.high),
        breakdown(rows, start, end, low, high),
    )


def windows(graph: Graph, result: Run, marks: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each step begins and ends in a simulation, ns on the trace's clock."""
    if marks.mark[0] == NONE:
        start, end = _every_row(graph, result)
        placed = start != loops.UNSET
        if not placed.any():
            return marks.low, marks.high
        return np.array([start[placed].min()]), np.array([end[placed].max()])
    thread = graph.rows.thread[marks.mark]
    low = moments(graph, result, thread, marks.low)
    return low, np.maximum(moments(graph, result, thread, marks.high), low)


def _every_row(graph: Graph, result: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = graph.rows
    start = moments(graph, result, rows.thread, rows.ts)
    end = moments(graph, result, rows.thread, rows.end)
    threads.settle(graph.order, rows.thread, rows.dur, graph.own, result.start, result.end, start, end)
    return start, end


def _unexplained(graph: Graph, marks: Steps) -> NDArray[np.int64]:
    """Walk back from the end of each recorded step and add up the time that no edge explains."""
    rows, found = graph.rows, graph.edges
    ready = backward.recorded_causes(
        found.src, found.dst, found.binds, found.lag, graph.own, rows.ts, graph.ended, graph.carried
    )
    total: NDArray[np.int64] = backward.unexplained(
        last_nodes(graph, marks, graph.ended),
        marks.low,
        found.src,
        found.binds,
        ready[2],
        ready[3],
        rows.ts,
        graph.ended,
        ready[0],
        ready[1],
    )
    return total


def last_nodes(graph: Graph, marks: Steps, end: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the node from whose end each step's end follows, or NONE; `end`: [n] ns."""
    if marks.mark[0] == NONE:
        return graph.order[np.argmax(end[graph.order], keepdims=True)] if len(graph.order) else marks.mark
    found = np.full(len(marks.mark), NONE, np.int32)
    of_mark = graph.rows.thread[marks.mark]
    for thread in np.unique(of_mark).tolist():
        own = of_mark == thread
        at = graph.atoms.last_before(thread, marks.high[own])
        found[own] = np.where(at >= 0, graph.atoms.row[np.maximum(at, 0)], NONE)
    return found
