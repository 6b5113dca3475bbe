"""A job replayed rank by rank, in the memory of a few ranks: they exchange only the times of their collectives.

Every rank is visited twice. First its graph is rebuilt and contracted to its collectives; the contracted graphs of all
ranks, simulated as one, say when each collective starts and by when it has to end. With that, each rank is simulated
and stored by itself, and all is as if the whole job had been simulated at once. Where critical paths are wanted, each
is visited again, and before that once more where the path of another one leads over it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.runner import results
from lumos_df.corpus.folder import scratch
from lumos_df.graph import collective_instances, event_graph
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.collective_waits import CollectiveWaits, waits
from lumos_df.graph.contracted_graph import ContractedGraph
from lumos_df.graph.critical_path import LastMembers, StepPaths, late
from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.gains import worthwhile
from lumos_df.graph.matching import write_matched
from lumos_df.graph.path_ways import Ways, last_members
from lumos_df.graph.rank_classes import RankClasses, classes, each_by_itself, profile
from lumos_df.graph.rank_gains import write_rank_gains
from lumos_df.graph.rank_outline import RankOutline, communication_of, in_trace, like
from lumos_df.graph.rank_paths import MapRanks, write_rank_paths
from lumos_df.graph.rank_replay import RankReplay, RankTask, outline_rank, replay_rank
from lumos_df.graph.replay_warnings import beside_others
from lumos_df.graph.replayed_tables import remove_paths, share_columns, write_steps
from lumos_df.graph.simulate import backward, forward
from lumos_df.schema.codes import NONE


def replay_by_rank(
    corpus: Path,
    trace_ids: Sequence[str],
    map_ranks: MapRanks[Any, Any],
    *,
    path: bool = False,
    gains: bool = False,
    by_class: bool = False,
) -> set[int]:
    """Replay the ranks of a job, several of them, and store what `replayed_tables.write_replay` stores.

    Args:
        corpus: the corpus folder.
        trace_ids: its traces, by rank.
        map_ranks: where each rank is worked on.
        path: also store the critical path of every step.
        gains: also store what every step would gain from faster operators.
        by_class: of ranks that are alike, replay one, and store of the others their collectives and clocks alone; all
            are replayed where paths or gains are wanted.

    Returns:
        The numbers of the steps, NONE of traces without marks.

    Raises:
        LumosError: a trace cannot be read, or nothing can be stored.
    """
    alike = each_by_itself(len(trace_ids))
    if by_class and not path and not gains:
        alike = classes(results(map_ranks(partial(profile, corpus), trace_ids)))
    replayed, place = np.unique(alike.stands_for, return_inverse=True)
    with scratch(corpus) as graphs:
        chosen: list[RankOutline] = results(
            map_ranks(partial(outline_rank, corpus, graphs, gains=gains), [trace_ids[k] for k in replayed])
        )
        ranks = dict(zip(replayed.tolist(), chosen, strict=True))
        others = [k for k in range(len(trace_ids)) if k not in ranks]
        if others:
            rows = results(map_ranks(partial(communication_of, corpus), [trace_ids[k] for k in others]))
            ranks |= {k: like(chosen[place[k]], *of_rank) for k, of_rank in zip(others, rows, strict=True)}
        outlines = [ranks[k] for k in range(len(trace_ids))]
        instances = collective_instances.match([rank.communication for rank in outlines])
        job = _told(outlines, instances, alike)
        selectors = worthwhile([rank.taken for rank in outlines if rank.taken])
        replays: list[RankReplay] = results(map_ranks(partial(replay_rank, corpus, graphs, selectors), job.tasks))
        of_collectives = _of_collectives(replays, job.way)
        columns = share_columns([replay.of_steps for replay in replays], *of_collectives)
        differs = any(replay.differs for replay in replays)
        for k, replay, of_path in zip(replayed.tolist(), replays, columns, strict=True):
            rank = outlines[k].communication
            differs |= write_steps(corpus, rank, instances.clocks[k], replay.steps | of_path)
        for k in others:
            write_matched(corpus, outlines[k].communication, job.waits, k, instances.clocks[k])
        if differs:
            remove_paths(corpus, list(trace_ids))
        if path:
            paths = StepPaths.of([replay.of_steps for replay in replays], *of_collectives, job.last)
            write_rank_paths(corpus, graphs, map_ranks, job.tasks, replays, paths)
        if gains:
            write_rank_gains(corpus, graphs, map_ranks, job.tasks, replays, selectors, job.instances)
    return {number for replay in replays for number in replay.step.tolist()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContractedJob:
    """What the contracted graphs of a job say."""

    tasks: list[RankTask]
    """What each rank that is replayed has to know."""
    waits: CollectiveWaits
    """Of all ranks, by the rows of their traces."""
    way: NDArray[np.int32]
    """[collectives] the collective whose way back is that of each, or NONE."""
    last: LastMembers
    """Of its collectives, by the rows of their traces."""
    instances: Instances
    """Those of its collectives that make no circle, by the rows of their traces."""


def _told(outlines: list[RankOutline], instances: Instances, alike: RankClasses) -> _ContractedJob:
    """Simulate the contracted graphs of a job and return what each rank has to know of it.

    Args:
        outlines: its ranks.
        instances: their collectives, by the rows of `RankOutline.communication`.
        alike: which of them are replayed.
    """
    ranks = [rank.communication for rank in outlines]
    collectives = waits(ranks, instances)
    rows = [rank.row for rank in outlines]
    collectives = replace(collectives, row=in_trace(rows, collectives.trace, collectives.row))
    shift = event_graph.to_job_time(ranks, instances)
    instances = replace(instances, row=in_trace(rows, instances.trace, instances.row))
    # A rank that another one is replayed for has the graph of that one, and what happens in it happens when it does.
    whole = event_graph.contracted_graph([rank.graph for rank in outlines], shift[alike.stands_for], instances)
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
        if alike.stands_for[k] != k:
            continue
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
                missing=[*filter(None, [alike.notes[k]]), *told[k][0]],
                misfits=told[k][1],
            )
        )
    last_row = np.concatenate([_in_contracted(rank.graph) for rank in outlines])[last]
    return _ContractedJob(
        tasks=tasks,
        waits=collectives,
        way=_ways(whole, last, last_trace, alike),
        last=LastMembers(trace=last_trace.astype(np.int32), row=last_row),
        instances=of_kept,
    )


def _in_contracted(graph: ContractedGraph) -> NDArray[np.int32]:
    """Return the row of each node of a contracted graph, or NONE."""
    row = np.full(len(graph.own), NONE, np.int32)
    row[: len(graph.row)] = graph.row
    return row


def _ways(
    whole: EventGraph, last: NDArray[np.int64], last_trace: NDArray[np.int64], alike: RankClasses
) -> NDArray[np.int32]:
    """Return the collective of which the last member is on a rank that is replayed, and stands for that of each.

    Args:
        whole: the contracted job.
        last: [collectives] the node of the member that started last, or NONE.
        last_trace: [collectives] the rank that it is on.
        alike: which ranks are replayed.
    """
    replayed = alike.stands_for[last_trace]
    here = replayed == last_trace
    there = whole.instance[whole.base[replayed] + last - whole.base[last_trace]]
    way = np.where(here | (last < 0), np.arange(len(last)), there).astype(np.int32)
    if here.all():
        return way
    # From one to another, twice as far each time; those in a circle are of no rank that is replayed.
    for _ in range(len(way).bit_length()):
        way = np.append(way, np.int32(NONE))[way]
    return np.where(np.append(here, False)[way], way, NONE).astype(np.int32)


def _latest_ends(whole: EventGraph, result: Run, outlines: list[RankOutline]) -> NDArray[np.int64]:
    """Return by when each collective of a contracted job has to end, so that no step ends later, ns, job time."""
    limit = np.full(len(whole.own), backward.FAR)
    steps = np.concatenate(
        [np.arange(end - rank.graph.steps, end) for end, rank in zip(whole.base[1:], outlines, strict=True)]
    )
    limit[steps] = result.end[steps]
    _, decided = late(whole, result, limit)
    return decided


def _of_collectives(replays: list[RankReplay], way: NDArray[np.int32]) -> tuple[Ways, NDArray[np.int64]]:
    """Return the ways back from collectives, and which of them is that of each collective of a job.

    Args:
        replays: the ranks that were replayed.
        way: as in `_ContractedJob`; that of a collective without one is empty.
    """
    number = np.concatenate([replay.number for replay in replays])
    known = Ways.joined([*(replay.of_collectives for replay in replays), Ways.empty()])
    place = np.full(len(way) + 1, len(number))
    place[number] = np.arange(len(number))
    return known, place[way]
