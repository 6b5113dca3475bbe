"""Calls and stretches of host work that once took what like ones never take: lazy loading, growing memory, collection.

Whoever tells a usual step from a recording leaves them out: they do not come again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.corpus import table_files
from lumos_df.corpus.folder import traces_without
from lumos_df.graph import calls, typical_values
from lumos_df.graph.first_uses import around_growth, first_launches, growth, inside_first_calls
from lumos_df.graph.host_work import HostWork, host_work
from lumos_df.graph.job import groups, load
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows, shape_codes
from lumos_df.graph.steps import Steps, steps
from lumos_df.graph.steps import works as worked
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """k stalls of one trace: calls, and stretches of host work; times ns."""

    item: NDArray[np.int64]
    """Row of the call; or edge of the trace whose lag is the work."""
    works: NDArray[np.bool_]
    """Whether it is such an edge."""
    row: NDArray[np.int64]
    """Row of the call; or the row before which the work was done."""
    ns: NDArray[np.int64]
    """How long it took."""
    longest: NDArray[np.int64]
    """What the longest like it takes that is none."""
    usual: NDArray[np.int64]
    """What it takes when it does not stall: as long as in another step, or, of one step, as its like in the median."""
    step: NDArray[np.int64]
    """Number of its step, NONE where nothing marks it."""
    name: list[str]
    """What took so long."""
    unusual: NDArray[np.bool_]
    """Whether its step loses more to stalls than others do, or is the only one."""

    @property
    def over(self) -> NDArray[np.int64]:
        """How much longer each took than any like it that is none."""
        return self.ns - self.longest

    def some(self, kept: NDArray[np.bool_]) -> "Stalls":
        """Return those that are kept [k]."""
        columns = {name: getattr(self, name)[kept] for name in self.__slots__ if name != "name"}
        return Stalls(**columns, name=[self.name[place] for place in np.flatnonzero(kept).tolist()])


def find(
    graph: TraceGraph,
    host: HostWork | None = None,
    *,
    shape: NDArray[np.int32],
    beside: Sequence[TraceGraph] = (),
    every: bool = False,
) -> Stalls:
    """Return the stalls of a trace.

    Of several steps the longest like row of one is held against the longest of the others, the second against the
    second: a stall takes over twice as long as in any other step, and its step loses over twice as much to stalls as
    the others usually do, and is longer for it, or it is but noise. In one step, those few calls do that take over
    twice as long as all others, those first launches of kernels, however many, that take over twice as long as all
    that launch one again, and those few stretches that do inside an operator's first call, or that no trace beside it
    has; and what gets memory where none is given back, with what that costs around it.

    Args:
        graph: the trace.
        host: its host work, if that is known already.
        shape: code of the shapes of each row's inputs, NONE where none were recorded [n].
        beside: the same job at other sizes: of its one step what they have is held against theirs.
        every: also those of steps that lose no more than others do.
    """
    host = host or host_work(graph)
    rows, edges, marks = graph.rows, graph.edges, steps(graph.rows)
    node = graph.order[~rows.on_gpu[graph.order]].astype(np.int64)
    several = len(marks.low) > 1
    # In one step operators of a name have other shapes, and what waits or copies lasts as long as what it is about.
    if not several:
        node = node[(rows.kind == RUNTIME)[node] & (calls.roles(rows.kind, rows.name, rows.names)[node] == calls.OTHER)]
    edge = host.edge
    row = np.concatenate((node, edges.dst[edge]))
    item, ns = np.concatenate((node, edge)), np.concatenate((graph.own[node], edges.lag[edge]))
    works = np.arange(len(item)) >= len(node)
    # What ends with a step has one name, whatever the number of the next.
    name = np.where(host.marks[rows.name[row]], len(rows.names), rows.name[row])
    # In one step stretches are like all others of the thread: none of a name comes before the same.
    like = packed(np.where(works & (not several), NONE, name), rows.thread[row], works)
    in_step = (rows.step[row] >= 0) | (marks.mark[0] == NONE)
    # Nobody waits for a watchdog, which sleeps between its questions.
    in_step &= np.isin(rows.thread[row], rows.thread[worked(rows)])
    loads = ~works & (not several) & np.isin(item, np.flatnonzero(first_launches(graph)))
    grows = ~works & np.isin(item, growth(rows)) & (not several)
    may = ~works | several
    if not several:
        may[works] = inside_first_calls(host, shape) | _longer_than(edges.lag[edge], beside)

    def over(least: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        told = grows & bool(ns[grows].sum() >= least)
        compared = np.flatnonzero(in_step & (told | np.isin(like, like[in_step & (ns >= least)])))
        like_it, took = like[compared], ns[compared]
        if several:
            longest = _in_other_steps(like_it, rows.step[row[compared]], took)
        else:
            again = _longest_again(like_it, took, loads[compared])
            longest = np.where(again == NONE, longest_usual(like_it, took), again)
        # Most of it is what no other takes; otherwise such times merely differ.
        stalls = (longest != NONE) & (took - longest >= np.maximum(least, longest)) & may[compared]
        unusual = np.ones(len(stalls), np.bool_)
        if several:
            of_step, lost = rows.step[row[compared]], np.where(stalls, took - longest, 0)
            # A stretch lies in the step that ends with it, if the next one begins behind it.
            when = rows.ts[row[compared]] - works[compared]
            unusual = _of_unusual_steps(of_step, lost, marks.number) & _longer_for_it(when, lost, marks)
            stalls &= unusual | every
        longest[told[compared]] = 0
        stalls |= told[compared]
        of_like = longest if several else np.minimum(_median_of_like(like_it, took, ~stalls), longest)
        return compared[stalls], longest[stalls], of_like[stalls], unusual[stalls]

    # What is little of a step that lasts long through stalls alone, is much of it without them.
    whole = int((marks.high - marks.low).sum())
    least = _least(whole)
    chosen, longest, takes, unusual = over(least)
    while (less := _least(whole - int((ns[chosen] - longest).sum()))) < least:
        chosen, longest, takes, unusual = over(least := less)
    cost, without_it = around_growth(host, item[chosen[grows[chosen]]])
    place = len(node) + np.searchsorted(edge, cost)
    beside_it = ~np.isin(place, chosen)
    chosen = np.append(chosen, place[beside_it])
    longest, takes = (np.append(each, without_it[beside_it]) for each in (longest, takes))
    # Memory is told to grow in the only step alone.
    unusual = np.append(unusual, np.ones(int(beside_it.sum()), np.bool_))
    return Stalls(
        item=item[chosen],
        works=works[chosen],
        row=row[chosen].astype(np.int64),
        ns=ns[chosen],
        longest=longest,
        usual=takes,
        step=rows.step[row[chosen]].astype(np.int64),
        name=[*_calls(rows, item[chosen[~works[chosen]]]), *_works(host, item[chosen[works[chosen]]])],
        unusual=unusual,
    )


def of_job(found: Sequence[Stalls], graphs: Sequence[TraceGraph]) -> list[Stalls]:
    """Return the stalls of a job's ranks that come no more: those of steps that lose over twice as much as others do.

    What befalls another rank in every step, each of them once, makes every step of the job as late.

    Args:
        found: the stalls of each rank.
        graphs: the ranks.
    """
    numbers = np.unique(np.concatenate([steps(graph.rows).number for graph in graphs]))
    if len(numbers) < 2:
        return [*found]
    lost = np.zeros((len(found), len(numbers)), np.int64)
    for rank, stalls in enumerate(found):
        np.add.at(lost[rank], np.searchsorted(numbers, stalls.step), stalls.over)
    most = lost.max(axis=0)
    unusual = _of_unusual_steps(numbers, most, numbers)
    return [stalls.some(unusual[np.searchsorted(numbers, stalls.step)]) for stalls in found]


def without(graph: TraceGraph, stalls: Stalls) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (own, lag) of a trace whose stalls take what is usual; ns [n] and [edges]."""
    own, lag = graph.own.copy(), graph.edges.lag.copy()
    own[stalls.item[~stalls.works]] = stalls.usual[~stalls.works]
    lag[stalls.item[stalls.works]] = stalls.usual[stalls.works]
    return own, lag


def find_stalls(corpus: Path) -> list[str]:
    """Find the stalls of the traces that have no table `stalls` yet, store them, and return the ids of these traces.

    Raises:
        CorpusError: `corpus` is no corpus, or cannot be read or written.
    """
    missing = traces_without(corpus, schema.STALLS)
    found = []
    for ids in groups(corpus, needed=False) if missing else []:
        if missing & set(ids):
            for graph in load(corpus, ids).graphs:
                write(corpus, graph, find(graph, shape=shape_codes(corpus, graph.rows.trace_id)))
                found.append(graph.rows.trace_id)
    return found


def write(corpus: Path, graph: TraceGraph, stalls: Stalls) -> None:
    """Store the stalls of a trace. Raises `UnwritableError` when that fails."""
    order = np.argsort(graph.rows.ts[stalls.row], kind="stable")
    table_files.write(
        corpus,
        graph.rows.trace_id,
        schema.STALLS,
        {
            "rank": np.full(len(order), graph.rows.rank),
            "step": pa.array(stalls.step[order], mask=stalls.step[order] == NONE),
            "op_id": stalls.row[order],
            "what": [stalls.name[place] for place in order.tolist()],
            "dur": stalls.ns[order],
            "longest_ns": stalls.longest[order],
        },
    )


def _least(steps_ns: int) -> int:
    """Return what is told of steps that take so long together, ns."""
    return max(round(typical_values.LEAST_PCT / 100 * steps_ns), 1)


def _longer_than(ns: NDArray[np.int64], beside: Sequence[TraceGraph]) -> NDArray[np.bool_]:
    """Return which stretches of host work are over twice as long as the longest of other traces in its turn [k]."""
    longest = np.zeros(len(ns), np.int64)
    for other in beside:
        theirs = np.sort(other.edges.lag[host_work(other).edge])[::-1][: len(ns)]
        longest[: len(theirs)] = np.maximum(longest[: len(theirs)], theirs)
    longer = np.zeros(len(ns), np.bool_)
    order = np.argsort(-ns, kind="stable")
    longer[order] = (ns[order] > 2 * longest) & bool(len(beside))
    return longer


def _of_unusual_steps(
    step: NDArray[np.int32], over: NDArray[np.int64], numbers: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return which rows are of a step that loses over twice as much as the others usually do [k]."""
    order = np.argsort(numbers)
    place = order[np.searchsorted(numbers[order], step)]
    lost = np.bincount(place, over, len(numbers))
    # The median of the others: of all in order, but for the step itself.
    by_loss = np.argsort(lost)
    turn = np.empty(len(lost), np.int64)
    turn[by_loss] = np.arange(len(lost))
    low, high = ((len(lost) - 2) // 2, (len(lost) - 1) // 2)
    usual = (lost[by_loss[low + (low >= turn)]] + lost[by_loss[high + (high >= turn)]]) / 2
    unusual: NDArray[np.bool_] = (lost > 2 * usual)[place]
    return unusual


def _longer_for_it(when: NDArray[np.int64], over: NDArray[np.int64], marks: Steps) -> NDArray[np.bool_]:
    """Return which rows are of a step that most of what it loses makes longer than the shortest other [k].

    On a machine that does other things each step is held up somewhere else, and none is longer for it than the rest.
    What lies between two steps makes neither longer, and counts.

    Args:
        when: a moment of each row [k].
        over: what its step loses with it, ns [k].
        marks: the steps, two or more.
    """
    lasts = marks.high - marks.low
    shortest = np.full(len(lasts), lasts.min())
    shortest[lasts.argmin()] = np.partition(lasts, 1)[1]
    place = np.minimum(np.searchsorted(marks.high, when), len(lasts) - 1)
    between = (when < marks.low[place]) | (when > marks.high[place])
    lost = np.bincount(place, np.where(between, 0, over), len(lasts))
    longer: NDArray[np.bool_] = between | (2 * (lasts - shortest) >= lost)[place]
    return longer


def _in_other_steps(like: NDArray[np.int64], step: NDArray[np.int32], ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the longest that is like each one takes in another step, ns; a step that has none takes no time."""
    turn = np.zeros(len(ns), np.int64)
    order = np.lexsort((-ns, step, like))
    begin, size = _groups(packed(like, step)[order])
    turn[order] = np.arange(len(ns)) - np.repeat(begin, size)
    against = packed(like, turn)
    order = np.lexsort((-ns, against))
    begin, size = _groups(against[order])
    longest = np.repeat(ns[order[begin]], size)
    longest[begin] = np.where(size > 1, ns[order[np.minimum(begin + 1, len(ns) - 1)]], 0)
    of_each = np.empty(len(ns), np.int64)
    of_each[order] = longest
    return of_each


def _longest_again(like: NDArray[np.int64], ns: NDArray[np.int64], first: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each first launch of a kernel what the longest like it takes that launches one again, ns [k].

    NONE for what is no first launch, and where too few launch one again to tell how long that may take.
    """
    kinds, of_kind = np.unique(like, return_inverse=True)
    count = np.bincount(of_kind[~first], minlength=len(kinds))
    longest = np.zeros(len(kinds), np.int64)
    np.maximum.at(longest, of_kind[~first], ns[~first])
    return np.where(first & (count >= typical_values.FEW)[of_kind], longest[of_kind], NONE)


def longest_usual(like: NDArray[np.int64], ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for the few that take over twice as long as the next of their like what that one takes, else NONE; ns [k].

    Nothing is told where too few are alike to tell what is usual.
    """
    order = np.lexsort((-ns, like))
    begin, size = _groups(like[order])
    place = np.arange(len(ns)) - np.repeat(begin, size)
    count = np.repeat(size, size)
    sorted_ns = ns[order]
    following = np.append(sorted_ns[1:], 0)
    few = place < np.maximum(typical_values.ACCIDENT_SHARE * count, 1)
    last = few & (sorted_ns >= 2 * following) & (place + 1 < count)
    # The last of the stalls of its kind decides what the longest of the others is.
    usual = np.where(last, following, NONE)
    number = np.repeat(np.arange(len(begin)), size)
    deepest = np.full(len(begin), NONE)
    np.maximum.at(deepest, number[last], place[last])
    at_deepest = np.zeros(len(begin), np.int64)
    held = deepest >= 0
    at_deepest[held] = usual[begin[held] + deepest[held]]
    known = held[number] & (place <= deepest[number]) & (count > typical_values.FEW)
    of_each = np.empty(len(ns), np.int64)
    of_each[order] = np.where(known, at_deepest[number], NONE)
    return of_each


def _median_of_like(like: NDArray[np.int64], ns: NDArray[np.int64], calm: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the median of those like each one that are calm, ns [k]; more than anything takes where none is."""
    _, kind = np.unique(like, return_inverse=True)
    usual = np.full(len(ns), np.iinfo(np.int64).max)
    median, _ = typical_values.medians(ns[calm], kind[calm])
    usual[kind[calm]] = median
    return usual[kind]


def _groups(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each run of equal values begins, and how long it is."""
    begin = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return begin, np.diff(np.append(begin, len(values)))


def _calls(rows: Rows, node: NDArray[np.int64]) -> list[str]:
    """Return the names of nodes; of calls with that of the operator around them."""
    around = np.where(rows.kind[node] == RUNTIME, rows.nearest(rows.kind == CPU_OP, node.astype(np.int32)), NONE)
    return [
        rows.names[name] if operator == NONE else f"{rows.names[name]} of {rows.names[rows.name[operator]]}"
        for name, operator in zip(rows.name[node].tolist(), around.tolist(), strict=True)
    ]


def _works(host: HostWork, edge: NDArray[np.int64]) -> list[str]:
    """Return what most of some stretches of host work was."""
    rows, edges = host.graph.rows, host.graph.edges
    column = np.searchsorted(host.edge, edge)
    thread, at, lag = host.thread[:, column], host.at[:, column], edges.lag[edge]
    of, dur, row, silent = host.parts(thread, at, lag, edges.dst[edge])
    order = np.lexsort((-dur, of))
    part = order[np.searchsorted(of[order], np.arange(len(edge)))]
    label = host.labels(thread, at, lag)
    return [
        f"a silence {host.said(inside, name)}" if nothing else rows.names[name]
        for inside, name, nothing in zip(
            label.tolist(), rows.name[row[part]].tolist(), silent[part].tolist(), strict=True
        )
    ]
