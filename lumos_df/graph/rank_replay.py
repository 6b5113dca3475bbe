"""A rank of a job replayed by itself: what the job tells it of the other ranks, and what they need of it."""

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import UnwritableError
from lumos_df.base.files import unwritable
from lumos_df.graph import event_graph as event_graphs
from lumos_df.graph import replay_warnings, rows, stored_graph, trace_graph
from lumos_df.graph.collective_waits import CollectiveWaits
from lumos_df.graph.critical_path import late
from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.gains import moving_here, taken
from lumos_df.graph.job import Job, Played
from lumos_df.graph.path_ways import WalkedGraph, Ways, last_members
from lumos_df.graph.rank_outline import RankOutline, outline
from lumos_df.graph.replay import in_the_long_run, replay
from lumos_df.graph.replayed_tables import columns_of_steps, write_rank
from lumos_df.graph.simulate import backward, forward
from lumos_df.graph.step_nodes import last_nodes, step_nodes
from lumos_df.graph.steps import Steps
from lumos_df.graph.switches import Selector
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """A rank, and what the job knows of the c collectives that it takes part in; ns, job time."""

    trace_id: str
    rank: int
    shift: int
    """What to add to the trace's time to get job time."""
    waits: CollectiveWaits
    """Its kernels alone."""
    row: NDArray[np.int32]
    """[k] the rows that are members."""
    collective: NDArray[np.int32]
    """[k] the collective of each, counted from 0."""
    number: NDArray[np.int32]
    """[c] its number in the job."""
    transfer: NDArray[np.int64]
    """[c]"""
    others_start: NDArray[np.int64]
    """[c] when the last member starts, where that is on another rank; else before all."""
    latest_end: NDArray[np.int64]
    """[c] by when it has to end, so that no step of any rank ends later."""
    missing: list[str]
    """What the reader should know of the ranks that are not there."""
    misfits: list[str]
    """What did not fit the other ranks."""

    def __str__(self) -> str:
        return f"rank {self.rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReplay:
    """What is left to say of a replayed rank when all of them are."""

    step: NDArray[np.int32]
    """The numbers of its steps, NONE of a trace without marks."""
    steps: dict[str, Any]
    """Columns of `replay_steps` but for those of paths."""
    of_steps: Ways
    """The ways back from its steps."""
    of_collectives: Ways
    """The ways back from the collectives whose last member it was."""
    number: NDArray[np.int32]
    """The numbers of these in the job."""
    differs: bool
    """Whether anything that was stored differs from before."""
    moves: NDArray[np.bool_]
    """[selectors] which of those that gains are asked of may move the end of a step, as far as it lies here."""


def outline_rank(corpus: Path, graphs: Path, trace_id: str, *, gains: bool = False) -> RankOutline:
    """Rebuild the graph of a trace, keep it in the folder `graphs`, and return its outline.

    `gains`: also what its operators take.

    Raises `CorpusError` when the trace cannot be read, `UnwritableError` when its graph cannot be kept.
    """
    graph = _built(corpus, trace_id)
    try:
        with (graphs / trace_id).open("wb") as file:
            pickle.dump(graph, file, pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        raise UnwritableError(unwritable(corpus, error)) from None
    return replace(outline(graph), taken=taken(graph) if gains else None)


def replay_rank(corpus: Path, graphs: Path, selectors: list[Selector], task: RankTask) -> RankReplay:
    """Simulate a rank beside the collectives of its job and store what comes out, but for steps and clock.

    `selectors`: of what gains are asked.

    Raises `CorpusError` when the trace cannot be read, `UnwritableError` when nothing can be stored.
    """
    graph, events, result = simulated(corpus, graphs, task)
    replayed = in_the_long_run(replay(graph, event_graphs.of_trace(events, result, 0)))
    others = len(task.number)
    job, played = Job([graph], None, events), Played(events, result, [replayed])
    slack = slack_of(graph, replayed.steps, events, result, task)
    differs = write_rank(corpus, job, played, task.waits, 0, slack)
    warnings = [*task.missing, *replay_warnings.of_graph(graph), *task.misfits]
    walked = WalkedGraph.of(events, result, [graph])
    last = last_members(events, result)
    here = np.flatnonzero(last >= others)
    return RankReplay(
        step=replayed.steps.number,
        steps=columns_of_steps(played, task.waits, 0, warnings),
        of_steps=_in_job(walked.of_steps(replayed, 0), task),
        of_collectives=_in_job(walked.from_members(last[here]), task),
        number=task.number[here],
        differs=differs,
        moves=moving_here(graph, events, result, selectors, last[here]) if selectors else np.zeros(0, np.bool_),
    )


def simulated(corpus: Path, graphs: Path, task: RankTask) -> tuple[TraceGraph, EventGraph, Run]:
    """Simulate a rank beside the collectives of its job; its own nodes follow those of these.

    Raises `CorpusError` when the trace cannot be read.
    """
    graph, events = beside_others(corpus, graphs, task)
    return graph, events, event_graphs.run(events)


def beside_others(corpus: Path, graphs: Path, task: RankTask) -> tuple[TraceGraph, EventGraph]:
    """Return the graph of a rank, and what `simulated` simulates. Raises as that does."""
    graph = _kept(corpus, graphs, task.trace_id)
    return graph, _beside_others(event_graphs.event_graph([graph]), task)


def slack_of(graph: TraceGraph, marks: Steps, events: EventGraph, result: Run, task: RankTask) -> NDArray[np.int64]:
    """Return ns by which each row of a rank may begin later without any step of its job ending later.

    Args:
        graph: its graph.
        marks: its steps.
        events, result: as `simulated` returns them.
        task: what the job knows of it.
    """
    others, ends = len(task.number), result.end[len(task.number) :]
    limit = np.full(len(events.own), backward.FAR)
    limit[:others] = task.latest_end
    node, step = step_nodes(graph, marks)
    limit[others + node] = ends[last_nodes(graph, marks, ends)[step]]
    slack, _ = late(events, result, limit)
    return slack[others:]


def _built(corpus: Path, trace_id: str) -> TraceGraph:
    return stored_graph.as_stored(corpus, trace_graph.build(rows.read(corpus, trace_id)))


def _kept(corpus: Path, graphs: Path, trace_id: str) -> TraceGraph:
    """Return a graph that was kept, or rebuild it where that was on another machine."""
    try:
        with (graphs / trace_id).open("rb") as file:
            graph: TraceGraph = pickle.load(file)  # noqa: S301 - written by this run, in a folder of its own
    except OSError:
        return _built(corpus, trace_id)
    return graph


def _beside_others(alone: EventGraph, task: RankTask) -> EventGraph:
    """Return the event graph of a rank with a node before its own for each collective: the members elsewhere.

    That node starts when the last of them does, if none of this rank is later, and has to end when any of them has to.
    """
    others = len(task.number)
    instance = np.concatenate((np.arange(others, dtype=np.int32), np.full(len(alone.own), NONE, np.int32)))
    instance[others + task.row] = task.collective
    none = np.zeros(others, np.int64)
    kernels = task.waits.of_trace(0)
    row, of_unseen = task.waits.row[kernels], np.maximum(task.waits.unseen[kernels], 0)
    waited, unseen = np.zeros(len(alone.own), np.int64), np.zeros(others, np.int64)
    waited[row] = np.maximum(task.waits.waiting[kernels], 0) + of_unseen
    unseen[task.collective] = of_unseen[np.searchsorted(row, task.row)]
    return replace(
        alone,
        base=alone.base + others,
        shift=np.array([task.shift]),
        order=np.concatenate((np.arange(others, dtype=np.int32), alone.order + np.int32(others))),
        pointer=np.concatenate((np.zeros(others, np.int32), alone.pointer)),
        src=alone.src + np.int32(others),
        dst=alone.dst + np.int32(others),
        own=np.concatenate((none, alone.own)),
        floor=np.concatenate((task.others_start, forward.shifted(alone.floor, task.shift - alone.shift[0]))),
        instance=instance,
        members=np.bincount(instance[instance >= 0], minlength=others).astype(np.int32),
        transfer=task.transfer,
        unseen=unseen,
        waited=np.concatenate((none, np.minimum(waited, alone.own))),
    )


def _in_job(ways: Ways, task: RankTask) -> Ways:
    """Return ways that stop at collectives of the job."""
    return replace(ways, stop=np.append(task.number, np.int32(NONE))[ways.stop])
