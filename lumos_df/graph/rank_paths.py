"""Critical paths of a job that is replayed rank by rank: each rank names what ran on it, and stores its own paths.

Most of a path lies on its own rank. What it has of others is named on these first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.outcome import Outcome
from lumos_df.base.runner import results
from lumos_df.graph.critical_path import SegmentPieces, StepPaths
from lumos_df.graph.gpu_pace import paced
from lumos_df.graph.host_work import host_work
from lumos_df.graph.path_parts import Parts, parts_of
from lumos_df.graph.path_tables import PathSteps, write_path
from lumos_df.graph.path_ways import WalkedGraph
from lumos_df.graph.rank_replay import RankReplay, RankTask, simulated, slack_of
from lumos_df.graph.steps import steps
from lumos_df.schema.codes import NONE

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
MapRanks = Callable[[Callable[[_Item], _Result], Sequence[_Item]], Iterator[Outcome[_Result]]]
"""Runs a function over items somewhere, as `base.runner.map_items` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedOnRank:
    """Segments of paths that lie on one rank."""

    task: RankTask
    """The rank."""
    pieces: SegmentPieces
    """What they are made of."""

    def __str__(self) -> str:
        return str(self.task)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankPath:
    """The paths of the steps of one rank."""

    own: _NamedOnRank
    """Their segments that lie on it."""
    others: Parts
    """Those that lie on other ranks."""
    segment: NDArray[np.int64]
    """The segments of one step after another: places among its own and then the others."""
    steps: PathSteps

    def __str__(self) -> str:
        return str(self.own)


def write_rank_paths(  # each says one thing of the job
    corpus: Path,
    graphs: Path,
    map_ranks: MapRanks[Any, Any],
    tasks: list[RankTask],
    replays: list[RankReplay],
    paths: StepPaths,
) -> None:
    """Store the critical paths of the steps of a job.

    Args:
        corpus: the corpus folder.
        graphs: where the ranks' graphs are kept.
        map_ranks: where each rank is worked on.
        tasks: its ranks, all of them.
        replays: their replays.
        paths: the paths of their steps.

    Raises:
        LumosError: a trace cannot be read, or nothing can be stored.
    """
    segment = _of_others(paths, replays)
    first = np.searchsorted(paths.trace[segment], np.arange(len(tasks) + 1))
    asked = [
        _NamedOnRank(task=tasks[k], pieces=paths.pieces(segment[first[k] : first[k + 1]]))
        for k in np.flatnonzero(np.diff(first)).tolist()
    ]
    named: list[Parts] = results(map_ranks(partial(_name_parts, corpus, graphs), asked))
    place = np.full(len(paths.trace), NONE)
    place[segment] = np.arange(len(segment))
    shared = _Shared(place=place, parts=Parts.joined([Parts.empty(), *named]))
    results(map_ranks(partial(_write_rank_path, corpus, graphs), _RankPaths(tasks, replays, paths, shared)))


def _name_parts(corpus: Path, graphs: Path, on_rank: _NamedOnRank) -> Parts:
    """Name what ran in some segments. Raise `CorpusError` when the trace cannot be read."""
    graph, events, result = simulated(corpus, graphs, on_rank.task)
    slack = slack_of(graph, paced(graph, steps(graph.rows)), events, result, on_rank.task)
    walked = WalkedGraph.of(events, result, [graph])
    return parts_of(walked, 0, host_work(graph), slack, on_rank.pieces)


def _write_rank_path(corpus: Path, graphs: Path, path: _RankPath) -> None:
    """Store the paths of a rank. Raise `CorpusError` as `_name_parts` does, `UnwritableError` when that fails."""
    parts = Parts.joined([_name_parts(corpus, graphs, path.own), path.others])
    write_path(corpus, path.steps, parts.of(path.segment))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """Segments that are part of paths of other ranks than theirs."""

    place: NDArray[np.int64]
    """Place among `parts` of each segment of a job, or NONE."""
    parts: Parts


class _RankPaths(Sequence[_RankPath]):
    """The paths of a job by rank, each put together when it is asked for: all together are as long as all steps."""

    def __init__(self, tasks: list[RankTask], replays: list[RankReplay], paths: StepPaths, shared: _Shared) -> None:
        """Keep what is known of a job: its ranks, their replays, the paths of their steps, what paths share."""
        self._tasks, self._replays, self._paths, self._shared = tasks, replays, paths, shared
        self._steps = np.cumsum([0, *(len(replay.step) for replay in replays)]).tolist()

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, k: int) -> _RankPath: ...

    @overload
    def __getitem__(self, k: slice) -> Sequence[_RankPath]: ...

    def __getitem__(self, k: int | slice) -> _RankPath | Sequence[_RankPath]:
        if isinstance(k, slice):
            return [self[place] for place in range(*k.indices(len(self)))]
        if k >= len(self):
            raise IndexError(k)
        task, replay = self._tasks[k], self._replays[k]
        bounds, segment = self._paths.of_steps(self._steps[k], self._steps[k + 1])
        distinct, place = np.unique(segment, return_inverse=True)
        here = self._paths.trace[distinct] == k
        # Its own first, then the others.
        number = np.where(here, np.cumsum(here) - 1, np.count_nonzero(here) + np.cumsum(~here) - 1)
        ways = replay.of_steps
        return _RankPath(
            own=_NamedOnRank(task=task, pieces=self._paths.pieces(distinct[here])),
            others=self._shared.parts.of(self._shared.place[distinct[~here]]),
            segment=number[place.reshape(-1)],
            steps=PathSteps(
                trace_id=task.trace_id,
                rank=task.rank,
                shift=task.shift,
                number=replay.step,
                high=ways.high - task.shift,
                recorded=replay.steps["recorded_ns"],
                replayed=replay.steps["replayed_ns"],
                bounds=bounds,
            ),
        )


def _of_others(paths: StepPaths, replays: list[RankReplay]) -> NDArray[np.int64]:
    """Return the segments that are part of paths of other ranks than theirs, those of one rank after another."""
    steps_of = np.repeat(np.arange(len(replays)), [len(replay.step) for replay in replays])
    used = np.zeros(len(paths.trace), np.bool_)
    used[paths.segment[paths.trace[paths.segment] != np.repeat(steps_of, np.diff(paths.bounds))]] = True
    segment = np.flatnonzero(used)
    return segment[np.argsort(paths.trace[segment], kind="stable")]
