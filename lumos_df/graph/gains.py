"""What the steps of a job would gain from faster operators: each kind of them at zero and at half, simulated again."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph, of_trace, run
from lumos_df.graph.host_work import host_work
from lumos_df.graph.job import Job, Played
from lumos_df.graph.replay import Replay, windows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.graph.switches import Change, Selector, changed
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema import FAMILIES, STEP_MARK
from lumos_df.schema.codes import CPU_OP

_LEAST_PART: Final = 1000
"""Threshold, one part in. A name whose operators take less of all steps cannot gain more, and is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the steps of a trace would gain if some operators took less; [steps] ns."""

    selector: Selector
    time: NDArray[np.int64]
    """What they take."""
    none: NDArray[np.int64]
    """When they take no time."""
    half: NDArray[np.int64]
    """When they take half."""


def gains(job: Job, played: Played) -> list[list[Gain]]:
    """Simulate the job again without each kernel family and operator name, and with half of it; one list a trace."""
    by_trace: list[list[Gain]] = [[] for _ in job.graphs]
    before = [replay.high - replay.low for replay in played.replays]
    works = [host_work(graph) for graph in job.graphs]
    for selector in _worthwhile(job, played):
        none, half = (
            _step_lengths(job, played, changed(job.event_graph, job.graphs, [Change(selector, factor)], works))
            for factor in (0.0, 0.5)
        )
        for k, (graph, replay) in enumerate(zip(job.graphs, played.replays, strict=True)):
            chosen = selector.rows(graph)
            if chosen.any():
                time = _time(graph, replay, chosen)
                gain = Gain(selector=selector, time=time, none=before[k] - none[k], half=before[k] - half[k])
                by_trace[k].append(gain)
    return by_trace


def _worthwhile(job: Job, played: Played) -> list[Selector]:
    """Return every family of kernels, and the names whose operators take some time."""
    families: set[int] = set()
    names: dict[str, int] = {}
    for graph in job.graphs:
        rows = graph.rows
        families |= set(np.unique(rows.family[rows.on_gpu & (rows.family >= 0)]).tolist())
        counted = rows.on_gpu | (rows.kind == CPU_OP)
        total = np.bincount(rows.name[counted], rows.dur[counted], len(rows.names))
        for place in np.flatnonzero(total).tolist():
            names[rows.names[place]] = names.get(rows.names[place], 0) + int(total[place])
    steps = sum(int((replay.steps.high - replay.steps.low).sum()) for replay in played.replays)
    worth = sorted(name for name, took in names.items() if took * _LEAST_PART >= steps and not STEP_MARK.match(name))
    return [
        *(Selector("family", FAMILIES[family], pattern=False) for family in sorted(families)),
        *(Selector("name", name, pattern=False) for name in worth),
    ]


def _time(graph: TraceGraph, replay: Replay, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the time of some operators in each step, ns; of nested ones the outer only."""
    rows = graph.rows
    outer = chosen & ~((rows.parent >= 0) & inherited(chosen, rows.parent)[np.maximum(rows.parent, 0)])
    if replay.steps.number[0] < 0:
        return np.array([int(rows.dur[outer].sum())])
    outer &= rows.step >= 0
    total = np.bincount(rows.step[outer], rows.dur[outer], int(replay.steps.number.max()) + 1)
    return total[replay.steps.number].astype(np.int64)


def _step_lengths(job: Job, played: Played, event_graph: EventGraph) -> list[NDArray[np.int64]]:
    """Return how long each step of each trace is in a changed event graph, ns."""
    result = run(event_graph)
    lengths = []
    for k, (graph, replay) in enumerate(zip(job.graphs, played.replays, strict=True)):
        low, high = windows(graph, of_trace(event_graph, result, k), replay.steps)
        lengths.append(high - low)
    return lengths
