"""Run a trace's graph again and compare."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import simulate as loops
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.edges import END_END
from lumos_df.graph.rows import NONE, Rows
from lumos_df.graph.steps import Breakdown, Steps, breakdown, steps


@dataclass(frozen=True, slots=True)
class Network:
    """A graph as the loops want it: nodes numbered by row; times ns from the trace's first row."""

    order: NDArray[np.int32]
    pointer: NDArray[np.int64]
    edge: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    binds: NDArray[np.int8]
    lag: NDArray[np.int64]
    own: NDArray[np.int64]
    floor: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation; [n] each."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    start_cause: NDArray[np.int32]
    end_cause: NDArray[np.int32]


def network(graph: Graph) -> Network:
    """Lay a graph out for simulation.

    Rows without any predecessor, and those held by work that the recording does not have, start as recorded: that is the
    state in which it began, which nothing in it explains.
    """
    rows, found = graph.rows, graph.edges
    pointer, edge = loops.forward_star(found.src, found.dst, len(rows))
    floor = np.full(len(rows), loops.UNSET, np.int64)
    led = np.zeros(len(rows), np.bool_)
    led[found.dst[found.binds != END_END]] = True
    free = graph.order[~led[graph.order]]
    floor[free] = rows.ts[free]
    floor[graph.carried] = rows.ts[graph.carried]
    return Network(graph.order, pointer, edge, found.src, found.dst, found.binds, found.lag, graph.own, floor)


_ALONE = np.empty(0, np.int32)


def run(net: Network) -> Run:
    """Simulate one trace by itself: every collective lasts as long as it was recorded."""
    alone = np.full(len(net.own), NONE, np.int32)
    return Run(
        *loops.simulate(
            net.order, net.pointer, net.edge, net.dst, net.binds, net.lag, net.own, net.floor, alone, _ALONE, np.empty(0, np.int64)
        )
    )


def moments(graph: Graph, result: Run, thread: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when moments of a host thread come in the simulation, ns; between two atoms time runs evenly."""
    atoms, rows = graph.atoms, graph.rows
    own = np.flatnonzero(atoms.thread == thread)
    if not len(own):
        return np.full(len(at), loops.UNSET, np.int64)
    ts, end = atoms.ts[own], atoms.ts[own] + atoms.dur[own]
    start, finish = result.start[atoms.row[own]], result.end[atoms.row[own]]
    place = np.searchsorted(ts, at, side="right") - 1
    inside = np.maximum(place, 0)
    after = np.minimum(inside + 1, len(own) - 1)
    # In a call, or after the last atom.
    done = np.where(at < end[inside], np.minimum(start[inside] + at - ts[inside], finish[inside]), finish[inside] + at - end[inside])
    between = (at >= end[inside]) & (place + 1 < len(own))
    gap = np.maximum(ts[after] - end[inside], 1)
    even = finish[inside] + (at - end[inside]) * ((start[after] - finish[inside]) / gap)
    idle = graph.idle_before[atoms.row[own[after]]]
    # Around a wait for another thread only the wait stretches: work before it follows the atom before, the rest the one after.
    work = gap - idle
    close = finish[inside] + np.minimum(at - end[inside], work)
    late = np.maximum(start[after] - (ts[after] - at), close)
    waited = np.where(at - end[inside] <= work, close, late)
    done = np.where(between, np.where(idle > 0, waited, even.astype(np.int64)), done)
    return np.where(place < 0, start[0] - (ts[0] - at), done)


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace beside its simulation; [steps] unless said otherwise, ns."""

    graph: Graph
    network: Network
    run: Run
    steps: Steps
    start: NDArray[np.int64]
    """[n] simulated start of every row, or UNSET outside the graph."""
    end: NDArray[np.int64]
    """[n]"""
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    unexplained: NDArray[np.int64]
    recorded: Breakdown
    replayed: Breakdown


def replay(graph: Graph, net: Network, result: Run) -> Replay:
    """Place every row and step of a trace by a simulation of its graph."""
    rows = graph.rows
    marks = steps(rows)
    start, end = _every_row(graph, result)
    if marks.mark[0] == NONE:
        placed = start != loops.UNSET
        low = np.array([start[placed].min(initial=0) if not placed.any() else start[placed].min()])
        high = np.array([end[placed].max(initial=0)])
    else:
        low, high = _windows(graph, result, marks)
    return Replay(
        graph,
        net,
        result,
        marks,
        start,
        end,
        low,
        high,
        _unexplained(graph, net, marks),
        breakdown(rows, rows.ts, rows.end, marks.low, marks.high),
        breakdown(rows, start, end, low, high),
    )


def _windows(graph: Graph, result: Run, marks: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    low, high = np.empty_like(marks.low), np.empty_like(marks.high)
    of_mark = graph.rows.thread[marks.mark]
    for thread in np.unique(of_mark).tolist():
        own = of_mark == thread
        low[own] = moments(graph, result, thread, marks.low[own])
        high[own] = moments(graph, result, thread, marks.high[own])
    return low, np.maximum(high, low)


def _every_row(graph: Graph, result: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = graph.rows
    start = np.full(len(rows), loops.UNSET, np.int64)
    end = start.copy()
    for thread in np.unique(graph.atoms.thread).tolist():
        own = np.flatnonzero(rows.thread == thread)
        start[own] = moments(graph, result, thread, rows.ts[own])
        end[own] = moments(graph, result, thread, rows.end[own])
    nodes = graph.order
    is_moment = rows.dur[nodes] != graph.own[nodes]
    calls = nodes[(rows.thread[nodes] < 0) | ~is_moment | (graph.own[nodes] > 0)]
    start[nodes] = result.start[nodes]
    end[calls] = result.end[calls]
    return start, np.maximum(end, start)


def _unexplained(graph: Graph, net: Network, marks: Steps) -> NDArray[np.int64]:
    """Walk back from the end of each recorded step and add up the time that no edge explains."""
    rows, atoms = graph.rows, graph.atoms
    end = rows.ts.copy()
    end[atoms.row] = atoms.ts + atoms.dur
    end[graph.gpu.row] = rows.end[graph.gpu.row]
    ready = loops.recorded_causes(net.src, net.dst, net.binds, net.lag, net.own, rows.ts, end, net.floor)
    total = np.zeros(len(marks.low), np.int64)
    for k, (mark, low, high) in enumerate(zip(marks.mark.tolist(), marks.low.tolist(), marks.high.tolist(), strict=True)):
        at = _last_node(graph, mark, high, end)
        if at >= 0:
            total[k] = loops.unexplained(at, low, net.src, net.binds, ready[2], ready[3], rows.ts, end, ready[0], ready[1])
    return total


def _last_node(graph: Graph, mark: int, high: int, end: NDArray[np.int64]) -> int:
    """Return the node from whose end a step's end follows."""
    if mark == NONE:
        return int(graph.order[np.argmax(end[graph.order])]) if len(graph.order) else NONE
    thread = int(graph.rows.thread[mark])
    at = int(graph.atoms.last_before(thread, np.array([high]))[0])
    return int(graph.atoms.row[at]) if at >= 0 else NONE


def rows_of(result: Replay) -> Rows:
    """Return the operators that were replayed."""
    return result.graph.rows
