"""Calls and stretches of host work that once took what they never take: what if they had taken what is usual."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.program_words import ProgramWords
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.distinct_texts import distinct
from lumos_df.graph.host_collectives import waited
from lumos_df.graph.stalls import find

_MOST: Final = 3
"""Kinds of stall that are proposed: those that take most time."""
_LISTED: Final = 2
"""Further operators of which code is loaded that are named."""
_OF: Final = " of "
"""What stands between a call and the operator that makes it."""
_LOADS: Final = "code is loaded"
"""The kind of all stalls for which code is loaded late."""
_SILENCE: Final = "a silence "
"""How a stretch of time is called in which nothing was recorded."""
_WAIT: Final = "a wait for collectives of the host, "
"""The same, where collectives of the host ran in it."""
_MEMORY: Final = re.compile(r"(?:cuda|hip|cu)\w*(?:Malloc|Alloc|Free|MemCreate|MemMap)")
_CODE: Final = re.compile(r"(?:cuda|hip|cu)\w*(?:Launch|Module|Library|Func)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobStalls:
    """k stalls of all ranks of a job; times ns."""

    item: NDArray[np.int64]
    """Node of the job; or edge of it whose lag is the work."""
    works: NDArray[np.bool_]
    """Whether it is such an edge."""
    over: NDArray[np.int64]
    """How much longer each took than any like it that is none."""
    step: NDArray[np.int64]
    """Number of its step."""
    rank: NDArray[np.int64]
    """Place of its rank in the job."""
    unusual: NDArray[np.bool_]
    """Whether its step loses more than others do, or is the only one."""
    waits: NDArray[np.bool_]
    """Whether most of it waited for collectives of the host, so that something else is the cause."""
    name: list[str]
    """What took so long."""

    @classmethod
    def of(cls, advised: AdvisedJob) -> Self:
        """Find the stalls of a job."""
        parts = [
            find(graph, host, shape=shape, every=True)
            for graph, host, shape in zip(advised.graphs, advised.host_works, advised.shapes, strict=True)
        ]
        works, over, step, unusual = (
            np.concatenate([getattr(stalls, name) for stalls in parts]) for name in ("works", "over", "step", "unusual")
        )
        nodes, edges = advised.event_graph.base, advised.edge_base
        waits = [
            stalls.works & (2 * waited(host)[np.where(stalls.works, stalls.item, 0)] >= stalls.ns)
            for stalls, host in zip(parts, advised.host_works, strict=True)
        ]
        return cls(
            item=np.concatenate(
                [stalls.item + np.where(stalls.works, edges[at], nodes[at]) for at, stalls in enumerate(parts)]
            ),
            works=works,
            over=over,
            step=step,
            rank=np.repeat(np.arange(len(parts)), [len(stalls.item) for stalls in parts]),
            unusual=unusual,
            waits=np.concatenate(waits),
            name=[
                f"{_WAIT}{text.removeprefix(_SILENCE)}" if waiting and text.startswith(_SILENCE) else text
                for stalls, of_rank in zip(parts, waits, strict=True)
                for text, waiting in zip(stalls.name, of_rank.tolist(), strict=True)
            ],
        )

    def waiting_for(self, mine: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return by how much stalls of other ranks waited for some of a step meanwhile, ns [k]."""
        steps, place = np.unique(self.step, return_inverse=True)
        longest = np.zeros(len(steps), np.int64)
        np.maximum.at(longest, place[mine], self.over[mine])
        stalled = np.zeros((len(steps), int(self.rank.max(initial=0)) + 1), np.bool_)
        stalled[place[mine], self.rank[mine]] = True
        follows = self.waits & ~mine & ~stalled[place, self.rank]
        return np.where(follows, np.minimum(self.over, longest[place]), 0)


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that what once takes long takes no longer than the longest like it."""
    stalls = _JobStalls.of(advised)
    over, step = stalls.over, stalls.step
    one_step = len(np.unique(advised.step_number)) == 1
    # What is done about code that is loaded late is done once for all of it.
    names, kind = distinct(_kind(text) if one_step else text for text in stalls.name)
    # What waits goes with what it waited for, where that was recorded.
    told = np.zeros(len(over), np.bool_)
    for waits in (False, True):
        may = stalls.unusual & (stalls.waits == waits)
        for place in np.argsort(-np.bincount(kind[may], over[may], len(names)))[:_MOST].tolist():
            mine = (kind == place) & may & ~told
            if not mine.any():
                break
            with_it = np.unique(step[mine])
            # What most steps have happens more than once.
            if 2 * len(with_it) > max(len(np.unique(advised.step_number)), 2):
                continue
            # Where other steps lose as much to other rows, any row may stall in any step: none is the cause.
            others = step[~np.isin(step, with_it)]
            _, of_step = np.unique(others, return_inverse=True)
            lost = np.bincount(of_step, over[~np.isin(step, with_it)])
            most = max(lost.max(initial=0), advised.operator_delays.usual_ns.max(initial=0))
            if over[mine].sum() <= len(with_it) * most:
                continue
            less = np.where(mine, over, 0 if waits else stalls.waiting_for(mine))
            told |= less > 0
            yield _remedy(advised, stalls, mine, less)


def _kind(name: str) -> str:
    """Return what stalls have in common that one change takes away."""
    return _LOADS if _CODE.match(name) else name


def _label(names: list[str]) -> str:
    """Return what some stalls of one kind are called; that with the longest one first."""
    first, *others = dict.fromkeys(names)
    further = [*dict.fromkeys(other.partition(_OF)[2] or other for other in others)]
    further = [other for other in further if other != first.partition(_OF)[2]]
    return ", ".join([first, *further[:_LISTED]]) + ", ..." * (len(further) > _LISTED)


def _remedy(advised: AdvisedJob, stalls: _JobStalls, mine: NDArray[np.bool_], less: NDArray[np.int64]) -> Remedy:
    """Return the job without some stalls of one kind.

    Args:
        advised, stalls: the job, and its stalls [k].
        mine: which of them these are [k].
        less: what all stalls lose without them, ns [k].
    """
    held = less > 0
    works = stalls.works[held]
    node, edge = stalls.item[held][~works], stalls.item[held][works]
    of_node, of_edge = less[held][~works], less[held][works]

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] -= np.minimum(of_node, changed.own[node])
        changed.lag[edge] -= np.minimum(of_edge, np.maximum(changed.lag[edge], 0))

    name = _label([stalls.name[stall] for stall in np.flatnonzero(mine)[np.argsort(-stalls.over[mine], kind="stable")]])
    numbers, of_ranks = np.unique(advised.step_number), np.unique(stalls.rank[mine])
    steps, with_it = len(numbers), np.unique(stalls.step[mine])
    when = f"in {len(with_it)} of {steps} steps" if steps > 1 else "once"
    one_rank = len(of_ranks) == 1 and len(advised.ranks) > 1
    where = f" on rank {advised.ranks[of_ranks[0]].rank}" if one_rank else ""
    most = "up to " if np.count_nonzero(mine) > 1 else ""
    others = ", and others wait for it" if (held & ~mine).any() else ""
    return Remedy(
        rule="stall",
        what=f"{name}, {when}{where}, takes {most}{format_ns(int(stalls.over[mine].max()))} longer than ever "
        f"else{others}: {_cause(name, advised.words, early=bool(with_it[0] == numbers[0]))}",
        known=Known.MEASURED,
        rests_on=f"{format_count(int(np.count_nonzero(held)), 'stall')} on {format_count(len(advised.graphs), 'rank')}",
        view="stall",
        apply=apply,
        once=True,
    )


def _cause(name: str, words: ProgramWords, *, early: bool) -> str:
    """Say what may have made a stall, and what to do; `early`: whether it befell the first step."""
    if _MEMORY.match(name):
        keep = f", {'set' if words.torch else 'or use'} {words.keeps_memory}" if words.keeps_memory else ""
        return f"memory grows? warm up first{keep}"
    if _CODE.match(name):
        setting = "HIP_ENABLE_DEFERRED_LOADING=0" if words.hip else "CUDA_MODULE_LOADING=EAGER"
        return f"code loaded late? warm up first, set {setting}"
    if name.startswith(_WAIT):
        return "another rank came late, or the network was busy"
    collection = ", garbage collection" * words.torch
    if name.startswith(_SILENCE):
        return f"look for checkpoints, logging{collection}, other programs on the host"
    if early:
        return f"warm up first; look for algorithms tried out, compilation{collection}"
    return f"look for compilation{collection}, other programs on the host"
