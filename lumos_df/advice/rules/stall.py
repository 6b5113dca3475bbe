"""Calls and stretches of host work that once took what they never take: what if they had taken what is usual."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice import ranked_advice
from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import calls, typical_values
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME

_MOST: Final = 3
"""Kinds of stall that are proposed: those that take most time."""
_MEMORY: Final = re.compile(r"(?:cuda|hip|cu)\w*(?:Malloc|Alloc|Free|MemCreate|MemMap)")
_CODE: Final = re.compile(r"(?:cuda|hip|cu)\w*(?:Launch|Module|Library|Func)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stalls:
    """k stalls of one rank: calls, and stretches of host work."""

    item: NDArray[np.int64]
    """Node of the call; or edge of the job whose lag is the work."""
    works: NDArray[np.bool_]
    """Whether it is such an edge."""
    over: NDArray[np.int64]
    """How much longer it took than any like it, ns."""
    step: NDArray[np.int64]
    """Number of its step, NONE where nothing marks it."""
    name: list[str]
    """What took so long."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that what once takes long takes no longer than the longest like it."""
    of_ranks = [_stalls(advised, rank) for rank in range(len(advised.graphs))]
    item, works, over, step = (
        np.concatenate([getattr(stalls, name) for stalls in of_ranks]) for name in ("item", "works", "over", "step")
    )
    names, kind = np.unique([name for stalls in of_ranks for name in stalls.name], return_inverse=True)
    for place in np.argsort(-np.bincount(kind, over, len(names)))[:_MOST].tolist():
        mine = kind == place
        # What most steps have happens more than once.
        if 2 * len(np.unique(step[mine])) > max(len(np.unique(advised.step_number)), 2):
            continue
        yield _remedy(advised, str(names[place]), item[mine], works[mine], over[mine], step[mine])


def _remedy(
    advised: AdvisedJob,
    name: str,
    item: NDArray[np.int64],
    works: NDArray[np.bool_],
    over: NDArray[np.int64],
    step: NDArray[np.int64],
) -> Remedy:
    node, edge = item[~works], item[works]

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] -= np.minimum(over[~works], changed.own[node])
        changed.lag[edge] -= np.minimum(over[works], np.maximum(changed.lag[edge], 0))

    steps = len(np.unique(advised.step_number))
    when = f"in {len(np.unique(step))} of {steps} steps" if steps > 1 else "once"
    return Remedy(
        rule="stall",
        what=f"{name}, {when}, takes {format_ns(int(over.max()))} longer than ever else: {_cause(name)}",
        known=Known.MEASURED,
        rests_on=f"{format_count(len(item), 'stall')} on {format_count(len(advised.graphs), 'rank')}",
        command="critical-path",
        apply=apply,
        once=True,
    )


def _cause(name: str) -> str:
    if _MEMORY.match(name):
        return "memory grows? warm up first, set expandable_segments:True"
    if _CODE.match(name):
        return "code loaded late? warm up first, set CUDA_MODULE_LOADING=EAGER"
    return "warm up first; look for algorithms tried out, compilation, garbage collection"


def _stalls(advised: AdvisedJob, rank: int) -> _Stalls:
    graph, host, replay = advised.graphs[rank], advised.host_works[rank], advised.played.replays[rank]
    rows, edges = graph.rows, graph.edges
    node = graph.order[~rows.on_gpu[graph.order]].astype(np.int64)
    several = len(replay.low) > 1
    # Stretches of one step are like none of it, and what waits or copies lasts as long as what it is about.
    if not several:
        node = node[calls.roles(rows.kind, rows.name, rows.names)[node] == calls.OTHER]
    edge = host.edge if several else host.edge[:0]
    row = np.concatenate((node, edges.dst[edge]))
    item, ns = np.concatenate((node, edge)), np.concatenate((graph.own[node], edges.lag[edge]))
    works = np.arange(len(item)) >= len(node)
    least = ranked_advice.LEAST_PCT / 100 * float((replay.high - replay.low).sum())
    like = packed(rows.name[row], rows.thread[row], works)
    in_step = (rows.step[row] >= 0) == several
    compared = np.flatnonzero(in_step & np.isin(like, like[in_step & (ns >= least)]))
    longest = _longest_elsewhere(like[compared], rows.step[row[compared]], ns[compared], several=several)
    over = ns[compared] - longest
    # Most of it is what no other takes; otherwise such times merely differ.
    stalls = (longest != NONE) & (over >= least) & (over >= longest)
    over, chosen = over[stalls], compared[stalls]
    first = np.where(works, advised.edge_base[rank], advised.event_graph.base[rank])
    return _Stalls(
        item=(item + first)[chosen],
        works=works[chosen],
        over=over,
        step=rows.step[row[chosen]].astype(np.int64),
        name=[*_calls(rows, item[chosen[~works[chosen]]]), *_works(host, item[chosen[works[chosen]]])],
    )


def _longest_elsewhere(
    like: NDArray[np.int64], step: NDArray[np.int32], ns: NDArray[np.int64], *, several: bool
) -> NDArray[np.int64]:
    """Return what the longest that is like each one takes, ns.

    Of several steps the longest one of a step is held against the longest ones of the others, and so on: a step that
    has none takes no time. Of one step it is all others, NONE if these are few.
    """
    turn = np.zeros(len(ns), np.int64)
    if several:
        order = np.lexsort((-ns, step, like))
        begin, size = _groups(packed(like, step)[order])
        turn[order] = np.arange(len(ns)) - np.repeat(begin, size)
    against = packed(like, turn)
    order = np.lexsort((-ns, against))
    begin, size = _groups(against[order])
    first = ns[order[begin]]
    second = np.where(size > 1, ns[order[np.minimum(begin + 1, len(ns) - 1)]], 0)
    longest = np.repeat(first, size)
    longest[begin] = second
    if not several:
        longest[np.repeat(size < typical_values.FEW, size)] = NONE
    of_each = np.empty(len(ns), np.int64)
    of_each[order] = longest
    return of_each


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
    of, dur, row, silent = host.parts(host.thread[:, column], host.at[:, column], edges.lag[edge], edges.dst[edge])
    order = np.lexsort((-dur, of))
    part = order[np.searchsorted(of[order], np.arange(len(edge)))]
    return [
        f"a silence before {rows.names[name]}" if nothing else rows.names[name]
        for name, nothing in zip(rows.name[row[part]].tolist(), silent[part].tolist(), strict=True)
    ]
