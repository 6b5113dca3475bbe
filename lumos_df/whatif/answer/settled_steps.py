"""When the steps of a changed job begin and end: on the host, and by what the GPU falls further behind."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph, of_trace, run
from lumos_df.graph.gpu_pace import GpuPace
from lumos_df.graph.replay import Replay, windows
from lumos_df.graph.steps import Steps, breakdown
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE
from lumos_df.whatif.changed_job import ChangedJob


def settled(after: Replay, before: Replay) -> Replay:
    """Return a replay whose steps include the GPU work by which they fall behind the host more than they did.

    A host that waits for nothing runs ahead, and a step of slower kernels is as long on it as before; but what one step
    leaves behind, the next one finds. So a step ends that much later, and begins later where the one before it does.
    Where the GPU has more work than the host's steps last, they are the GPU's.
    """
    low, high = _later(after.graph, after.steps, (after.low, after.high), after.start, after.end, _tail_of(before))
    parts = breakdown(after.graph.rows, after.start, after.end, low, high)
    return replace(after, low=low, high=high, replayed=parts)


def recorded_lengths(replay: Replay) -> NDArray[np.int64]:
    """Return how long the recorded steps of a rank are, ns [s]."""
    rows, steps = replay.graph.rows, replay.steps
    pace = GpuPace.of(replay.graph, steps)
    low, high = pace.windows(rows.ts, rows.end, steps.low, steps.high) if pace else (steps.low, steps.high)
    return high - low


def lengths(changed: ChangedJob, net: EventGraph) -> list[NDArray[np.float64]]:
    """Return how long each step of each rank is when the job runs with other durations, ns [s].

    Args:
        changed: the job.
        net: its event graph with other durations, lags or transfers.
    """
    result = run(net)
    lasted = []
    for place, graph in enumerate(changed.job.graphs):
        mine, marks = of_trace(net, result, place), changed.after.replays[place].steps
        tail = _tail_of(changed.played.replays[changed.ranks[place]])
        low, high = _later(graph, marks, windows(graph, mine, marks), mine.start, mine.end, tail)
        lasted.append((high - low).astype(np.float64))
    return lasted


def _later(
    graph: TraceGraph,
    steps: Steps,
    window: tuple[NDArray[np.int64], NDArray[np.int64]],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    tail: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each step begins and ends; `start`, `end`: of every row [n], `tail`: of the job as it was [s]."""
    low, high = window
    pace = GpuPace.of(graph, steps)
    if pace is not None:
        paced = pace.windows(start, end, low, high)
        if paced[0] is not low:
            return paced
    growth = np.maximum(_tail(graph, steps, high, end) - np.maximum(tail, 0), 0)
    low = low + np.append(0, growth[:-1])
    return low, np.maximum(high + growth, low)


def _tail_of(replay: Replay) -> NDArray[np.int64]:
    return _tail(replay.graph, replay.steps, replay.high, replay.end)


def _tail(graph: TraceGraph, steps: Steps, high: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return by how much the GPU's work of each step ends after it, ns; 0 where the trace has no marks."""
    row = graph.gpu.row
    step = graph.rows.step[row]
    if steps.number[0] == NONE:
        return np.zeros(len(high), np.int64)
    last = np.full(int(steps.number.max()) + 1, np.iinfo(np.int64).min)
    inside = (step >= 0) & (step < len(last))
    np.maximum.at(last, step[inside], end[row][inside])
    ended = last[steps.number]
    return np.where(ended > np.iinfo(np.int64).min, ended - high, 0)
