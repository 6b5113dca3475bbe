"""A job replayed rank by rank, in the memory of a few ranks: they exchange only the times of their collectives.

Every rank is visited twice. First its graph is rebuilt and contracted to its collectives; the contracted graphs of all
ranks, simulated as one, say when each collective starts and by when it has to end. With that, each rank is simulated
and stored by itself, and all is as if the whole job had been simulated at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.outcome import Outcome
from lumos_df.base.runner import results
from lumos_df.corpus.folder import scratch
from lumos_df.graph import collective_instances, event_graph
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.collective_waits import waits
from lumos_df.graph.critical_path import late
from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.path_ways import Ways, last_members
from lumos_df.graph.rank_outline import RankOutline, in_trace
from lumos_df.graph.rank_replay import RankReplay, RankTask, outline_rank, replay_rank
from lumos_df.graph.replay_warnings import beside_others
from lumos_df.graph.replayed_tables import remove_paths, share_columns, write_steps
from lumos_df.graph.simulate import backward, forward

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
MapRanks = Callable[[Callable[[_Item], _Result], Sequence[_Item]], Iterator[Outcome[_Result]]]
"""Runs a function over items somewhere, as `base.runner.map_items` does."""


def replay_by_rank(corpus: Path, trace_ids: Sequence[str], map_ranks: MapRanks[Any, Any]) -> set[int]:
    """Replay the ranks of a job, several of them, and store what `replayed_tables.write_replay` stores.

    Args:
        corpus: the corpus folder.
        trace_ids: its traces, by rank.
        map_ranks: where each rank is worked on.

    Returns:
        The numbers of the steps, NONE of traces without marks.

    Raises:
        LumosError: a trace cannot be read, or nothing can be stored.
    """
    with scratch(corpus) as graphs:
        outlines: list[RankOutline] = results(map_ranks(partial(outline_rank, corpus, graphs), trace_ids))
        ranks = [rank.communication for rank in outlines]
        instances = collective_instances.match(ranks)
        tasks = _tasks(outlines, instances)
        replays: list[RankReplay] = results(map_ranks(partial(replay_rank, corpus, graphs), tasks))
    columns = share_columns([replay.of_steps for replay in replays], _of_collectives(replays, len(instances.transfer)))
    differs = any(replay.differs for replay in replays)
    for rows, clock, replay, of_path in zip(ranks, instances.clocks, replays, columns, strict=True):
        differs |= write_steps(corpus, rows, clock, replay.steps | of_path)
    if differs:
        remove_paths(corpus, list(trace_ids))
    return {number for replay in replays for number in replay.step.tolist()}


def _tasks(outlines: list[RankOutline], instances: Instances) -> list[RankTask]:
    """Simulate the contracted graphs of a job and return what each rank has to know of it.

    Args:
        outlines: its ranks.
        instances: their collectives, by the rows of `RankOutline.communication`.
    """
    ranks = [rank.communication for rank in outlines]
    collectives = waits(ranks, instances)
    rows = [rank.row for rank in outlines]
    collectives = replace(collectives, row=in_trace(rows, collectives.trace, collectives.row))
    shift = event_graph.to_job_time(ranks, instances)
    instances = replace(instances, row=in_trace(rows, instances.trace, instances.row))
    whole = event_graph.contracted_graph([rank.graph for rank in outlines], shift, instances)
    result = event_graph.run(whole)
    last = last_members(whole, result)
    last_trace = np.searchsorted(whole.base, last, side="right") - 1
    latest = _latest_ends(whole, result, outlines)
    kept = np.isin(instances.instance, whole.instance)
    told = beside_others(ranks, instances, np.flatnonzero(kept), ())
    of_kept = replace(
        instances, instance=instances.instance[kept], trace=instances.trace[kept], row=instances.row[kept]
    )
    tasks = []
    for k, (row, collective) in enumerate(event_graph.members_of_traces(of_kept, len(ranks))):
        number, place = np.unique(collective, return_inverse=True)
        elsewhere = last_trace[number] != k
        tasks.append(
            RankTask(
                trace_id=ranks[k].trace_id,
                rank=ranks[k].rank,
                shift=int(shift[k]),
                waits=collectives.alone(k),
                row=row,
                collective=place.reshape(-1).astype(np.int32),
                number=number,
                transfer=instances.transfer[number],
                others_start=np.where(elsewhere, result.start[last[number]], forward.UNSET + 1),
                latest_end=latest[number],
                missing=told[k][0],
                misfits=told[k][1],
            )
        )
    return tasks


def _latest_ends(whole: EventGraph, result: Run, outlines: list[RankOutline]) -> NDArray[np.int64]:
    """Return by when each collective of a contracted job has to end, so that no step ends later, ns, job time."""
    limit = np.full(len(whole.own), backward.FAR)
    steps = np.concatenate(
        [np.arange(end - rank.graph.steps, end) for end, rank in zip(whole.base[1:], outlines, strict=True)]
    )
    limit[steps] = result.end[steps]
    _, decided = late(whole, result, limit)
    return decided


def _of_collectives(replays: list[RankReplay], collectives: int) -> Ways:
    """Return the ways back from each collective of a job; of one without members it is some other's."""
    number = np.concatenate([replay.number for replay in replays])
    way = np.zeros(collectives, np.int64)
    way[number] = np.arange(len(number))
    return Ways.joined([replay.of_collectives for replay in replays]).reordered(
        way[: collectives if len(number) else 0]
    )
