"""A trace beside its simulation: every row and step placed, and what is left unexplained."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import Run
from lumos_df.graph.gpu_pace import paced
from lumos_df.graph.simulate import backward, forward, threads
from lumos_df.graph.step_nodes import last_nodes
from lumos_df.graph.steps import Breakdown, Steps, breakdown, steps, works
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


def moments(graph: TraceGraph, result: Run, thread: NDArray[np.int32], at: NDArray[np.int64]) -> NDArray[np.int64]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A trace beside its simulation; [steps] unless said otherwise, ns."""

    graph: TraceGraph
    """The trace."""
    run: Run
    """Its simulation: the nodes of the graph."""
    steps: Steps
    """Its steps as recorded: those of the host, or those of `in_the_long_run`."""
    start: NDArray[np.int64]
    """[n] simulated start of every row, or UNSET outside the graph."""
    end: NDArray[np.int64]
    """[n]"""
    low: NDArray[np.int64]
    """When each step begins, simulated."""
    high: NDArray[np.int64]
    """When it ends, simulated."""
    unexplained: NDArray[np.int64]
    """Time of the recorded step that no edge explains, and that the replay lacks."""
    recorded: Breakdown
    """Where the time went as recorded."""
    replayed: Breakdown
    """Where it went in the simulation."""


def replay(graph: TraceGraph, result: Run) -> Replay:
    """Place every row and step of a trace by a simulation of its graph."""
    marks = steps(graph.rows)
    start, end = _every_row(graph, result)
    return _placed(graph, result, marks, (start, end), windows(graph, result, marks))


def _placed(
    graph: TraceGraph,
    result: Run,
    marks: Steps,
    rows_at: tuple[NDArray[np.int64], NDArray[np.int64]],
    window: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Replay:
    """Return the replay of some steps; `rows_at`: start and end of every row, `window`: of every step, simulated."""
    rows, (start, end), (low, high) = graph.rows, rows_at, window
    return Replay(
        graph=graph,
        run=result,
        steps=marks,
        start=start,
        end=end,
        low=low,
        high=high,
        unexplained=_unexplained(graph, marks),
        recorded=breakdown(rows, rows.ts, rows.end, marks.low, marks.high),
        replayed=breakdown(rows, start, end, low, high),
    )


def in_the_long_run(replay: Replay) -> Replay:
    """Return a replay whose steps are those of the GPU, where that falls behind the host: they are what a job takes."""
    graph, marks = replay.graph, paced(replay.graph, replay.steps)
    if marks is replay.steps:
        return replay
    low, high = windows(graph, replay.run, marks)
    return _placed(graph, replay.run, marks, (replay.start, replay.end), (low, high))


def windows(graph: TraceGraph, result: Run, marks: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each step begins and ends in a simulation, ns on the trace's clock."""
    if marks.mark[0] == NONE:
        start, end = _every_row(graph, result)
        placed = (start != forward.UNSET) & works(graph.rows)
        if not placed.any():
            return marks.low, marks.high
        return np.array([start[placed].min()]), np.array([end[placed].max()])
    thread = graph.rows.thread[marks.mark]
    low, high = (moments(graph, result, thread, at) for at in (marks.low, marks.high))
    ended = np.where(marks.gpu_row >= 0, result.end[marks.gpu_row], np.append(low[0], high))
    if (marks.gpu_row >= 0).any():
        low, high = ended[:-1], ended[1:]
    return low, np.maximum(high, low)


def _every_row(graph: TraceGraph, result: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = graph.rows
    start = moments(graph, result, rows.thread, rows.ts)
    end = moments(graph, result, rows.thread, rows.end)
    threads.settle(graph.order, rows.thread, rows.dur, graph.own, result.start, result.end, start, end)
    return start, end


def _unexplained(graph: TraceGraph, marks: Steps) -> NDArray[np.int64]:
    """Walk back from the end of each recorded step and add up the time that no edge explains."""
    rows, edges, ended = graph.rows, graph.edges, graph.ended
    start_ready, end_ready, start_cause, end_cause = backward.recorded_causes(
        edges.src, edges.dst, edges.binds, edges.lag, graph.own, rows.ts, ended, graph.earliest_starts
    )
    total: NDArray[np.int64] = backward.unexplained(
        last_nodes(graph, marks, ended),
        marks.low,
        edges.src,
        edges.binds,
        start_cause,
        end_cause,
        rows.ts,
        ended,
        start_ready,
        end_ready,
    )
    return total
