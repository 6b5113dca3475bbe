"""Ranks that the others wait for: what if they took no longer for any row than the others do for the same row."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice import steady_lateness
from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.pipelines import pipelines
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import longest, same_rows, usual
from lumos_df.schema.codes import NONE, THREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """What late ranks take longer than the others for the same rows, ns."""

    own: NDArray[np.int64]
    """[N] nodes of the job."""
    lag: NDArray[np.int64]
    """[m] edges of the job."""
    floor: NDArray[np.int64]
    """[N] how much later the recording of its rank begins to work."""
    net: NDArray[np.int64]
    """[ranks] all of that, less what they are quicker in."""

    def of_ranks(self, graph: EventGraph, late: NDArray[np.int64]) -> "Excess":
        """Return that of some ranks alone, by their places."""
        mine = np.isin(np.repeat(np.arange(len(graph.base) - 1), np.diff(graph.base)), late)
        own, floor = (np.where(mine, each, 0) for each in (self.own, self.floor))
        return replace(self, own=own, lag=np.where(mine[graph.dst], self.lag, 0), floor=floor)

    def take_from(self, changed: ChangedGraph, part: float = 1.0) -> None:
        """Let a job take less by a part of it."""
        own, lag, floor = (np.round(each * part).astype(np.int64) for each in (self.own, self.lag, self.floor))
        changed.own[:] -= np.minimum(own, changed.own)
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))
        changed.floor[:] -= floor


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that ranks which make others wait more than their share, step after step, be as quick as the others."""
    late, excess = advised.once(late_ranks)
    if not len(late):
        return
    ranks, matched, caused = len(advised.graphs), advised.waits.last >= 0, _caused(advised)
    larger, part = uneven(advised, late, excess)
    steps = max(len(replay.low) for replay in advised.played.replays)
    numbers = [advised.ranks[place].rank for place in late.tolist()]
    silent, why = cause(advised, late, excess)
    longest = format_ns(round(caused[late].max() / steps / (ranks - 1)))
    yield Remedy(
        rule="late_rank",
        what=f"{listed(numbers)} {'is' if len(numbers) == 1 else 'are'} waited for, "
        f"{'' if len(numbers) == 1 else 'up to '}{longest} a step by each other rank: {larger or why}",
        known=Known.MEASURED,
        rests_on=f"{format_count(int(np.count_nonzero(matched)), 'matched kernel')} of {format_count(ranks, 'rank')}",
        view="waited_for",
        switches=f"--no-wait rank={numbers[0]}" if silent and len(numbers) == 1 else "",
        apply=partial(excess.take_from, part=part),
    )


def late_ranks(advised: AdvisedJob) -> tuple[NDArray[np.int64], Excess]:
    """Return the places of the ranks that make others wait, step after step, and what they take longer than these."""
    late, graph = waited_for(advised), advised.event_graph
    if not len(late):
        own, lag, net = (np.zeros(count, np.int64) for count in (len(graph.own), len(graph.lag), len(advised.ranks)))
        return late, Excess(own=own, lag=lag, floor=own, net=net)
    # Who waits for a late rank in a group comes late to the next, with nothing that takes longer.
    excess = excess_of(advised, late)
    late = late[100 * excess.net[late] >= typical_values.LEAST_PCT * _replayed_ns(advised)[late]]
    return late, excess.of_ranks(graph, late)


def waited_for(advised: AdvisedJob) -> NDArray[np.int64]:
    """Return the places of the ranks that make others wait more than their share, step after step."""
    caused = _caused(advised)
    return np.flatnonzero((caused > caused.mean()) & steady_lateness.of_waits(advised.ranks, advised.waits))


def _caused(advised: AdvisedJob) -> NDArray[np.float64]:
    """Return how long others waited for each rank, ns [ranks]."""
    waits = advised.waits
    matched = waits.last >= 0
    caused = np.zeros(len(advised.graphs))
    np.add.at(caused, waits.trace[waits.last[matched]], waits.waiting[matched])
    return caused


def listed(ranks: list[int]) -> str:
    """Name some ranks."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:4]))
    return f"ranks {shown}, ..." if len(ranks) > 4 else f"ranks {shown}"


def excess_of(advised: AdvisedJob, late: NDArray[np.int64], *, joined: bool = True) -> Excess:
    """Return what late ranks take longer.

    Without a graph that joins the ranks no late start shows, and what no other rank has is all too long.
    """
    graph, ranks = advised.event_graph, advised.ranks
    same, like = same_rows(ranks, of_stages=len(np.unique(pipelines(advised))) < len(ranks))
    gpu = np.concatenate([rows.on_gpu for rows in ranks])
    rank = np.repeat(np.arange(len(ranks)), np.diff(graph.base))
    is_late = np.zeros(len(ranks), np.bool_)
    is_late[late] = True
    # A collective's transfer is all ranks' at once; what a member lasts is no work of its own.
    works = np.zeros(len(same), np.bool_)
    works[graph.order] = graph.instance[graph.order] == NONE
    own = np.zeros(len(same), np.int64)
    mine, others = (np.flatnonzero(works & (is_late[rank] == of)) for of in (True, False))
    # A kernel of a name may be any work; what the host does before or in a row of a name is alike wherever it stands.
    expected = usual(same[others], graph.own[others], same[mine])
    otherwise = np.where(gpu[mine] | (not joined), NONE, longest(like[others], graph.own[others], like[mine]))
    own[mine] = _more(graph.own[mine], expected, otherwise, joined=joined)
    lag = np.zeros(len(graph.lag), np.int64)
    on_thread = np.concatenate([each.edges.kind == THREAD for each in advised.graphs]) & (graph.lag >= 0)
    mine, others = (np.flatnonzero(on_thread & (is_late[rank[graph.dst]] == of)) for of in (True, False))
    to_mine, to_others = graph.dst[mine], graph.dst[others]
    expected = usual(same[to_others], graph.lag[others], same[to_mine])
    otherwise = np.where(joined, longest(like[to_others], graph.lag[others], like[to_mine]), NONE)
    lag[mine] = _more(graph.lag[mine], expected, otherwise, joined=joined)
    began = np.array([_begins(advised, place) for place in range(len(ranks))])
    later = np.where(is_late & joined, np.maximum(began - int(np.median(began[~is_late])), 0), 0)
    net = later + np.bincount(rank, own, len(ranks)) + np.bincount(rank[graph.dst], lag, len(ranks))
    return Excess(own=np.maximum(own, 0), lag=np.maximum(lag, 0), floor=later[rank], net=net.astype(np.int64))


def _begins(advised: AdvisedJob, place: int) -> int:
    """Return when a rank's first node starts, ns of the job's time."""
    graph = advised.graphs[place]
    first = graph.rows.ts[graph.order].min() if len(graph.order) else 0
    return int(first) + int(advised.event_graph.shift[place])


def _more(
    values: NDArray[np.int64], expected: NDArray[np.int64], at_most: NDArray[np.int64], *, joined: bool
) -> NDArray[np.int64]:
    """Return by how much times differ from those of the same rows, or exceed the longest like ones; NONE: of none."""
    above = np.where(at_most == NONE, 0 if joined else values, np.maximum(values - at_most, 0))
    return np.where(expected == NONE, above, values - expected)


def _replayed_ns(advised: AdvisedJob) -> NDArray[np.int64]:
    """Return how long the steps of each rank are in the replay, ns [ranks]."""
    steps = np.cumsum([0, *(len(replay.low) for replay in advised.played.replays)])
    return np.add.reduceat(advised.steps_ns, steps[:-1])


def cause(advised: AdvisedJob, late: NDArray[np.int64], excess: Excess) -> tuple[bool, str]:
    """Return whether it is one silence of the host that makes most of the excess, and in words what does."""
    graph = advised.event_graph
    gpu = np.concatenate([rows.on_gpu for rows in advised.ranks])
    sums = {
        "later start": int(excess.floor[graph.base[late]].sum()),
        "slower work of the GPU": int(excess.own[gpu].sum()),
        "slower work of the host": int(excess.own[~gpu].sum() + excess.lag.sum()),
    }
    spent: dict[tuple[bool, str], float] = {}
    for place in late.tolist():
        for what, ns in _host_time(advised, excess, place).items():
            spent[what] = spent.get(what, 0) + ns
    largest = max(spent, key=lambda what: spent[what], default=(False, ""))
    # Most of it, else no single row is the cause.
    if largest in spent and 2 * spent[largest] > sum(sums.values()):
        silent, name = largest
        nothing = f"nothing recorded{'' if name.startswith('in ') else ','} {name}"
        return silent, nothing if silent else f"longer {name}"
    return False, max(sums, key=lambda cause: sums[cause])


def uneven(advised: AdvisedJob, late: NDArray[np.int64], excess: Excess) -> tuple[str, float]:
    """Return in words by how much larger the tensors of late ranks are, and which part of their excess would go.

    Nothing where that is not most of the excess, or no shapes were recorded: then all of it would. What is evened out
    the others get, so that all take the mean.
    """
    larger = _larger(advised, late, excess)
    if not larger:
        return "", 1.0
    said = f"tensors {larger:.0%} larger than those of others: even out samples, or tokens"
    return said, 1 - len(late) / len(advised.ranks)


def _larger(advised: AdvisedJob, late: NDArray[np.int64], excess: Excess) -> float:
    """Return by how much tensors of late ranks are larger than those of the same operators elsewhere; else 0."""
    graph, ranks = advised.event_graph, advised.ranks
    same, _ = same_rows(ranks, of_stages=len(np.unique(pipelines(advised))) < len(ranks))
    rank = np.repeat(np.arange(len(ranks)), np.diff(graph.base))
    elements = np.concatenate([advised.elements(place) for place in range(len(ranks))])
    shaped = elements != NONE
    around = [
        np.where(mine, np.arange(len(rows)), rows.nearest(mine, np.arange(len(rows), dtype=np.int32)))
        for mine, rows in zip(np.split(shaped, graph.base[1:-1]), ranks, strict=True)
    ]
    operator = np.concatenate(
        [np.where(at >= 0, at + base, NONE) for at, base in zip(around, graph.base[:-1].tolist(), strict=True)]
    )
    spent = np.bincount(graph.dst, excess.lag, len(same)) + excess.own
    whole = spent.sum() + excess.floor[graph.base[late]].sum()
    row = np.flatnonzero((spent > 0) & (operator >= 0))
    at = operator[row]
    other = shaped & ~np.isin(rank, late)
    usually = usual(same[other], elements[other], same[at])
    more = (usually > 0) & (elements[at] > usually)
    if 2 * spent[row[more]].sum() <= whole:
        return 0.0
    return float(np.average(elements[at][more] / usually[more], weights=spent[row[more]])) - 1


def _host_time(advised: AdvisedJob, excess: Excess, place: int) -> dict[tuple[bool, str], float]:
    """Return the excess of a late rank's host, ns by operator, and whether that ran or ended a silence."""
    rows, graph, host = advised.ranks[place], advised.graphs[place], advised.host_works[place]
    over = excess.lag[int(advised.edge_base[place]) :][host.edge]
    slow = np.flatnonzero(over)
    lag = graph.edges.lag[host.edge[slow]]
    thread, at = host.thread[:, slow], host.at[:, slow]
    of, dur, row, silent = host.parts(thread, at, lag, graph.edges.dst[host.edge[slow]])
    named = row >= 0
    of, silent = of[named], silent[named]
    label = np.where(silent, host.labels(thread, at, lag)[of], NONE).astype(np.int64)
    name = rows.name[row[named]].astype(np.int64)
    _, first, kind = np.unique(packed(label, name, silent), return_index=True, return_inverse=True)
    spent: dict[tuple[bool, str], float] = {}
    took = np.bincount(kind, (over[slow] / lag)[of] * dur[named])
    for at_first, ns in zip(first.tolist(), took.tolist(), strict=True):
        nothing, of_row = bool(silent[at_first]), name[at_first]
        what = nothing, host.said(label[at_first], of_row) if nothing else rows.names[of_row]
        spent[what] = spent.get(what, 0) + ns
    return spent
