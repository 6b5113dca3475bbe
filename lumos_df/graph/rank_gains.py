"""What the steps of a job would gain, found rank by rank: each is contracted once more, with all changed times.

The contracted graphs of all ranks are simulated as one, several changes at once, as a whole job is. They end with the
moments between which steps lie, so that no rank is visited again.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.runner import results
from lumos_df.graph import event_graph as event_graphs
from lumos_df.graph.changed_steps import ChangedTimes, lengths_of
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.contracted_graph import ContractedGraph, Sinks, contracted_times
from lumos_df.graph.gains import changed_times, chosen_rows, gains_of
from lumos_df.graph.gpu_pace import paced
from lumos_df.graph.host_work import host_work
from lumos_df.graph.job import Job
from lumos_df.graph.path_tables import write_trace_gains
from lumos_df.graph.rank_paths import MapRanks
from lumos_df.graph.rank_replay import RankReplay, RankTask, beside_others
from lumos_df.graph.simulate import forward
from lumos_df.graph.simulate.first_rows import first_rows
from lumos_df.graph.simulate.variants import CHANGES, FACTORS, VARIANTS
from lumos_df.graph.step_ends import StepEnds, ends_of
from lumos_df.graph.steps import steps
from lumos_df.graph.switches import Selector
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE, START_START


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangedRank:
    """The contracted graph of a rank, and what lasts less in it without the rows of some selectors."""

    graph: ContractedGraph
    """Its last nodes are the moments between which its steps lie."""
    ends: StepEnds
    """These steps, by the nodes of the graph."""
    nodes: ChangedTimes
    """By its nodes."""
    lags: ChangedTimes
    """By its edges."""
    collectives: ChangedTimes
    """By the collectives of the job."""
    time: NDArray[np.int64]
    """[selectors, steps] as `ChosenRows.times` returns it."""
    meant: NDArray[np.bool_]
    """[selectors]"""


def write_rank_gains(  # each says one thing of the job
    corpus: Path,
    graphs: Path,
    map_ranks: MapRanks[Any, Any],
    tasks: list[RankTask],
    replays: list[RankReplay],
    selectors: list[Selector],
    instances: Instances,
) -> None:
    """Store what every step of a job would gain from faster operators.

    Args:
        corpus: the corpus folder.
        graphs: where the ranks' graphs are kept.
        map_ranks: where each rank is worked on.
        tasks: its ranks, all of them.
        replays: their replays.
        selectors: the operators of which gains are asked.
        instances: its collectives, by the rows of the traces.

    Raises:
        LumosError: a trace cannot be read, or nothing can be stored.
    """
    moves = np.any([replay.moves for replay in replays], axis=0)
    ranks: list[_ChangedRank] = results(map_ranks(partial(_changed_rank, corpus, graphs, selectors, moves), tasks))
    shift = np.array([task.shift for task in tasks])
    whole = event_graphs.contracted_graph([rank.graph for rank in ranks], shift, instances)
    first = np.cumsum([0, *(len(rank.graph.src) for rank in ranks)])
    ends = StepEnds.joined([rank.ends for rank in ranks], whole.base)
    usual = np.concatenate([replay.steps["replayed_ns"] for replay in replays])
    lengths = np.tile(usual, (len(selectors), FACTORS, 1))
    for batch in _batches(moves):
        parts = (
            ChangedTimes.joined([rank.nodes.within(batch) for rank in ranks], whole.base),
            ChangedTimes.joined([rank.lags.within(batch) for rank in ranks], first),
            # A collective is one transfer, whoever's kernels are meant.
            ChangedTimes.joined([rank.collectives.within(batch) for rank in ranks], np.zeros_like(first)).distinct(),
        )
        lengths[batch] = lengths_of(whole, ends, usual, np.isin(np.arange(len(moves)), batch), parts)[batch]
    bounds = np.cumsum([0, *(len(replay.step) for replay in replays)]).tolist()
    for task, replay, rank, part in zip(tasks, replays, ranks, pairwise(bounds), strict=True):
        of_rank = slice(*part)
        gained = gains_of(selectors, rank.time, rank.meant, usual[of_rank], lengths[:, :, of_rank])
        write_trace_gains(corpus, task.trace_id, task.rank, replay.step, gained)


def _changed_rank(
    corpus: Path, graphs: Path, selectors: list[Selector], moves: NDArray[np.bool_], task: RankTask
) -> _ChangedRank:
    """Contract a rank to its collectives and the ends of its steps. Raise `CorpusError` when it cannot be read.

    Args:
        corpus, graphs: as for `write_rank_gains`.
        selectors: those of the job.
        moves: [selectors] which are simulated.
        task: the rank.
    """
    graph, events = beside_others(corpus, graphs, task)
    chosen, marks = chosen_rows(graph, selectors), paced(graph, steps(graph.rows))
    changed = changed_times(Job([graph], None, events), [chosen], [host_work(graph)])
    nodes, lags, collectives = (part.by_change(moves) for part in changed)
    nodes = replace(nodes, item=nodes.item - len(task.number))
    sinks, ends = _as_sinks(graph, ends_of(graph, marks))
    contracted, lag = _with_root(
        *contracted_times(graph, task.row, sinks, graph.edges.lag[:, None], graph.own[:, None])
    )
    place = np.searchsorted(contracted.row, nodes.item)
    stays = np.append(contracted.row, NONE)[place] == nodes.item
    base = len(contracted.own) - 1 - sinks.count
    time, meant = chosen.times(marks, len(selectors))
    return _ChangedRank(
        graph=replace(contracted, lag=lag[:, 0]),
        ends=replace(
            ends, start_node=ends.start_node + base, end_node=ends.end_node + base, gpu_node=ends.gpu_node + base
        ),
        nodes=replace(nodes, item=place).only(stays),
        lags=_changed_lags(graph, task.row, sinks, lag, moves, nodes.only(~stays), lags),
        collectives=replace(collectives, item=task.number[collectives.item].astype(np.int64)),
        time=time,
        meant=meant,
    )


def _as_sinks(graph: TraceGraph, ends: StepEnds) -> tuple[Sinks, StepEnds]:
    """Return the moments between which steps lie as sinks of their own, and the steps by the numbers of these."""
    atoms = len(ends.start_node)
    moments = [2 * ends.start_node, 2 * ends.end_node + 1]
    first = np.empty(0, np.int64)
    if len(ends.gpu_node):
        first = _first_of(graph, ends.gpu_node)
        moments += [2 * first, 2 * ends.gpu_node + 1]
    each = 2 * atoms + len(first)
    # All ends of the GPU's rows, which are last, in one.
    last = np.full(len(ends.gpu_node), each)
    gpu_node = np.arange(2 * atoms, each + bool(len(last)))
    return Sinks(
        moment=np.concatenate(moments), sink=np.concatenate((np.arange(each), last)), count=each + bool(len(last))
    ), replace(
        ends,
        start_node=np.arange(atoms),
        end_node=np.arange(atoms, 2 * atoms),
        gpu_node=gpu_node,
        gpu_extent=np.zeros(len(gpu_node), np.int32),
    )


def _first_of(graph: TraceGraph, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of some rows those of which one starts first, whatever takes less."""
    marked = np.zeros(len(graph.rows), np.bool_)
    marked[row] = True
    edges = graph.edges
    pointer, edge = forward.forward_star(edges.src, len(graph.rows))
    return np.flatnonzero(first_rows(graph.order, pointer, edge, edges.dst, edges.binds, edges.lag, marked))


def _with_root(
    graph: ContractedGraph, lag: NDArray[np.int64], floor: NDArray[np.int64]
) -> tuple[ContractedGraph, NDArray[np.int64]]:
    """Return a contracted graph with one node more, from whose start the earliest starts of others follow.

    So what changes of these is a lag, too.

    Args:
        graph, lag, floor: as `contracted_times` returns them.
    """
    held = np.flatnonzero(floor[:, 0] != forward.UNSET)
    root, begin = len(floor), int(graph.begun.min(initial=0))
    edges = len(held)
    return replace(
        graph,
        src=np.append(graph.src, np.full(edges, root, np.int32)),
        dst=np.append(graph.dst, held.astype(np.int32)),
        binds=np.append(graph.binds, np.full(edges, START_START, np.int8)),
        order=np.append(np.int32(root), graph.order),
        own=np.append(graph.own, 0),
        floor=np.append(np.full(root, forward.UNSET), begin),
        begun=np.append(graph.begun, begin),
    ), np.concatenate((lag, floor[held] - begin))


def _changed_lags(
    graph: TraceGraph,
    members: NDArray[np.int32],
    sinks: Sinks,
    usual: NDArray[np.int64],
    moves: NDArray[np.bool_],
    nodes: ChangedTimes,
    lags: ChangedTimes,
) -> ChangedTimes:
    """Return the lags of a contracted graph that changed times make shorter, `CHANGES` at once.

    Args:
        graph: the rank.
        members, sinks: as for `contracted_times`.
        usual: lags without changes, ns [m, 1].
        moves: as for `_changed_rank`.
        nodes, lags: their durations and lags, by change.
    """
    found = []
    for batch in _batches(moves):
        own, lag = _in_variants(graph.own, nodes, batch), _in_variants(graph.edges.lag, lags, batch)
        _, shorter = _with_root(*contracted_times(graph, members, sinks, lag, own))
        by_change = shorter.reshape(len(shorter), CHANGES, FACTORS)
        item, change = np.nonzero((by_change != usual[:, :, None]).any(axis=2))
        order = np.argsort(change, kind="stable")
        item, change = item[order], change[order]
        found.append(ChangedTimes(item=item, change=batch[change].astype(np.int32), times=by_change[item, change]))
    return ChangedTimes.joined(found, np.zeros(len(found), np.int64))


def _batches(moves: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return the numbers of the changes that are simulated at once, of these that move anything."""
    simulated = np.flatnonzero(moves)
    return np.split(simulated, np.arange(CHANGES, len(simulated), CHANGES)) if len(simulated) else []


def _in_variants(usual: NDArray[np.int64], changed: ChangedTimes, batch: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return times with the changes of a batch, ns [n, VARIANTS]."""
    times = np.repeat(usual[:, None], VARIANTS, axis=1)
    here = changed.within(batch)
    times.reshape(-1, CHANGES, FACTORS)[here.item, np.searchsorted(batch, here.change)] = here.times
    return times
