"""What the steps of a job would gain from faster operators: each kind of them at zero and at half, simulated again."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.changed_steps import SHARES, ChangedTimes, changed_steps, moving
from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.gpu_pace import paced
from lumos_df.graph.host_work import HostWork, SelectedRows, host_work, selected_rows
from lumos_df.graph.job import Job, Played
from lumos_df.graph.step_ends import StepEnds, ends_of
from lumos_df.graph.steps import Steps, steps
from lumos_df.graph.switches import Selector, multiplied
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema import FAMILIES, STEP_MARK
from lumos_df.schema.codes import CPU_OP, LATEST, NONE

_LEAST_PART: Final = 1000
"""Threshold, one part in. A name whose operators take less of all steps cannot gain more, and is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What the steps of a trace would gain if some of its operators took less; [selectors, steps] ns."""

    selectors: list[Selector]
    """Which operators: one family of kernels or one name each."""
    time: NDArray[np.int64]
    """What they take; of nested ones the outer only."""
    none: NDArray[np.int64]
    """When they take no time."""
    half: NDArray[np.int64]
    """When they take half."""


def gains(job: Job, played: Played, works: list[HostWork]) -> list[Gains]:
    """Simulate a job again without each kernel family and operator name, and with half of it; one result a trace.

    Args:
        job: the job.
        played: its simulation.
        works: the host work of each trace.
    """
    selectors = worthwhile([taken(graph) for graph in job.graphs])
    chosen = [chosen_rows(graph, selectors) for graph in job.graphs]
    lengths = changed_steps(played, len(selectors), *changed_times(job, chosen, works))
    gained = []
    bounds = np.cumsum([0, *(len(replay.low) for replay in played.replays)]).tolist()
    for replay, operators, part in zip(played.replays, chosen, pairwise(bounds), strict=True):
        time, meant = operators.times(replay.steps, len(selectors))
        gained.append(gains_of(selectors, time, meant, replay.high - replay.low, lengths[:, :, slice(*part)]))
    return gained


def gains_of(
    selectors: list[Selector],
    time: NDArray[np.int64],
    meant: NDArray[np.bool_],
    usual: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> Gains:
    """Return what the steps of a trace would gain.

    Args:
        selectors: those of its job.
        time, meant: as `ChosenRows.times` returns them.
        usual: how long its steps are, simulated, ns [steps].
        lengths: how long they are in every variant, ns [selectors, len(SHARES), steps].
    """
    none, half = (usual - lengths[meant, k] for k in range(len(SHARES)))
    of_trace = [selectors[k] for k in np.flatnonzero(meant).tolist()]
    return Gains(selectors=of_trace, time=time[meant], none=none, half=half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What the operators of a trace take, ns."""

    families: set[int]
    """Of its kernels."""
    names: dict[str, int]
    """The time of the kernels and operators of each name."""
    steps: int
    """All its steps together."""


def taken(graph: TraceGraph) -> Taken:
    """Return what the operators of a trace take."""
    rows, marks = graph.rows, steps(graph.rows)
    counted = rows.on_gpu | (rows.kind == CPU_OP)
    total = np.bincount(rows.name[counted], rows.dur[counted], len(rows.names))
    return Taken(
        families=set(np.unique(rows.family[rows.on_gpu & (rows.family >= 0)]).tolist()),
        names={rows.names[place]: int(total[place]) for place in np.flatnonzero(total).tolist()},
        steps=int((marks.high - marks.low).sum()),
    )


def worthwhile(traces: list[Taken]) -> list[Selector]:
    """Return every family of kernels of a job's traces, and the names whose operators take some time."""
    families: set[int] = set().union(*(trace.families for trace in traces))
    names: Counter[str] = Counter()
    for trace in traces:
        names.update(trace.names)
    lasted = sum(trace.steps for trace in traces)
    worth = sorted(name for name, took in names.items() if took * _LEAST_PART >= lasted and not STEP_MARK.match(name))
    return [
        *(Selector("family", FAMILIES[family], pattern=False) for family in sorted(families)),
        *(Selector("name", name, pattern=False) for name in worth),
    ]


def moving_here(
    graph: TraceGraph, events: EventGraph, result: Run, selectors: list[Selector], last: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which selectors mean what the steps of a job may follow from on one of its ranks [selectors].

    Args:
        graph: the rank.
        events, result: its simulation beside the collectives of the job.
        selectors: those of the job.
        last: nodes of the rank that other ranks may wait for.
    """
    job, chosen = Job([graph], None, events), [chosen_rows(graph, selectors)]
    ends = StepEnds.joined([ends_of(graph, paced(graph, steps(graph.rows)))], events.base)
    return moving(events, result, ends, len(selectors), changed_times(job, chosen, [host_work(graph)]), last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRows:
    """Which of some selectors, numbered from 0, mean the rows of a trace."""

    graph: TraceGraph
    by_name: SelectedRows
    by_family: NDArray[np.int32]
    """[n] selector of the row's family, or NONE."""

    def nodes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (row, selector) [k] of the nodes whose own duration changes."""
        on_gpu = self.graph.rows.on_gpu[self.graph.order]
        gpu = self.graph.order[on_gpu]
        row, selector = self.by_name.of(self.graph.order[~on_gpu])
        row = np.concatenate((row, gpu, gpu))
        selector = np.concatenate((selector, self.by_name.selector[gpu], self.by_family[gpu]))
        return row[selector >= 0], selector[selector >= 0]

    def times(self, marks: Steps, selectors: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the time of the rows in each step, of nested ones the outer only, ns, and which selectors mean any.

        [selectors, steps] and [selectors]
        """
        rows = self.graph.rows
        row, selector = self._outer()
        place, count = marks.place(rows.step[row]), len(marks.number)
        inside = place >= 0
        total = np.bincount((selector * count + place)[inside], rows.dur[row[inside]], selectors * count)
        # Those of a damaged file add up beyond int64.
        most: NDArray[np.float64] = np.minimum(total, LATEST)
        meant = np.zeros(selectors, np.bool_)
        meant[selector] = True
        return most.astype(np.int64).reshape(selectors, count), meant

    def _outer(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (row, selector) [k] of the rows that lie in no other one of their selector."""
        named, of_family = self.by_name.outermost, np.flatnonzero(self.by_family >= 0)
        selector = np.concatenate((self.by_name.selector[named], self.by_family[of_family]))
        return np.concatenate((named, of_family)), selector.astype(np.int64)


def chosen_rows(graph: TraceGraph, selectors: list[Selector]) -> ChosenRows:
    """Return what the selectors, families and names, mean in a trace."""
    rows = graph.rows
    place = {selector.value: k for k, selector in enumerate(selectors) if selector.field == "name"}
    of_name = np.array([*(place.get(name, NONE) for name in rows.names), NONE], np.int32)
    of_family = np.full(len(FAMILIES) + 1, NONE, np.int32)
    for k, selector in enumerate(selectors):
        if selector.field == "family":
            of_family[FAMILIES.index(selector.value)] = k
    return ChosenRows(
        graph=graph,
        by_name=selected_rows(of_name[rows.name], rows.parent),
        by_family=np.where(rows.on_gpu, of_family[rows.family], np.int32(NONE)),
    )


def changed_times(
    job: Job, chosen: list[ChosenRows], works: list[HostWork]
) -> tuple[ChangedTimes, ChangedTimes, ChangedTimes]:
    """Return what nodes, lags and collectives of a job take without the rows of each selector, and with half of them.

    Args:
        job: the job.
        chosen: the rows that are meant in each trace.
        works: the host work of each trace.
    """
    nodes, collectives = _durations(job, chosen)
    return nodes, _lags(job, chosen, works), collectives


def _durations(job: Job, chosen: list[ChosenRows]) -> tuple[ChangedTimes, ChangedTimes]:
    """Return how long nodes last by themselves without some rows, and how long collectives take."""
    graph = job.event_graph
    nodes = [operators.nodes() for operators in chosen]
    node = np.concatenate([graph.base[k] + row for k, (row, _) in enumerate(nodes)])
    selector = np.concatenate([selector for _, selector in nodes])
    instance = graph.instance[node]
    alone = (instance < 0) & (graph.own[node] > 0)
    # Once for all ranks: a collective is one transfer, whoever's kernels are meant.
    together, of_collective = np.unique(np.stack((instance, selector))[:, instance >= 0], axis=1)
    return (
        _changed(node[alone], selector[alone], graph.own, stays=graph.waited),
        _changed(together.astype(np.int64), of_collective, graph.transfer, stays=graph.unseen),
    )


def _lags(job: Job, chosen: list[ChosenRows], works: list[HostWork]) -> ChangedTimes:
    """Return the lags that host work leaves without some rows."""
    first = np.cumsum([0, *(len(graph.edges) for graph in job.graphs)])
    shares = [work.shares(operators.by_name) for work, operators in zip(works, chosen, strict=True)]
    edge = np.concatenate([first[k] + edge for k, (edge, _, _) in enumerate(shares)])
    selector, part = (np.concatenate([columns[k] for columns in shares]) for k in (1, 2))
    return _changed(edge, selector, job.event_graph.lag, part=part)


def _changed(
    item: NDArray[np.int64],
    selector: NDArray[np.int32],
    times: NDArray[np.int64],
    *,
    part: NDArray[np.float64] | int = 1,
    stays: NDArray[np.int64] | None = None,
) -> ChangedTimes:
    """Return what is left of some of the times if a part of them [c], or all but what stays of each, takes less."""
    kept = 0 if stays is None else stays[item]
    left = [multiplied(times[item], 1 - (1 - share) * part, kept) for share in SHARES]
    return ChangedTimes(item=item, change=selector, times=np.stack(left, axis=1))
