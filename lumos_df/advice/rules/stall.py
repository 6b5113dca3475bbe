"""Calls and stretches of host work that once took what they never take: what if they had taken what is usual."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.program_words import ProgramWords
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.distinct_texts import distinct
from lumos_df.graph.stalls import find

_MOST: Final = 3
"""Kinds of stall that are proposed: those that take most time."""
_LISTED: Final = 2
"""Further operators of which code is loaded that are named."""
_OF: Final = " of "
"""What stands between a call and the operator that makes it."""
_LOADS: Final = "code is loaded"
"""The kind of all stalls for which code is loaded late."""
_MEMORY: Final = re.compile(r"(?:cuda|hip|cu)\w*(?:Malloc|Alloc|Free|MemCreate|MemMap)")
_CODE: Final = re.compile(r"(?:cuda|hip|cu)\w*(?:Launch|Module|Library|Func)")


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that what once takes long takes no longer than the longest like it."""
    of_ranks = [
        find(graph, host, shape=shape, every=True)
        for graph, host, shape in zip(advised.graphs, advised.host_works, advised.shapes, strict=True)
    ]
    works, over, step, unusual = (
        np.concatenate([getattr(stalls, name) for stalls in of_ranks]) for name in ("works", "over", "step", "unusual")
    )
    first = (advised.event_graph.base, advised.edge_base)
    item = np.concatenate(
        [stalls.item + np.where(stalls.works, first[1][rank], first[0][rank]) for rank, stalls in enumerate(of_ranks)]
    )
    name = [name for stalls in of_ranks for name in stalls.name]
    one_step = len(np.unique(advised.step_number)) == 1
    # What is done about code that is loaded late is done once for all of it.
    names, kind = distinct(_kind(text) if one_step else text for text in name)
    for place in np.argsort(-np.bincount(kind[unusual], over[unusual], len(names)))[:_MOST].tolist():
        mine = (kind == place) & unusual
        if not mine.any():
            return
        with_it = np.unique(step[mine])
        # What most steps have happens more than once.
        if 2 * len(with_it) > max(len(np.unique(advised.step_number)), 2):
            continue
        # Where other steps lose as much to other rows, any row may stall in any step, and none of them is the cause.
        others = step[~np.isin(step, with_it)]
        _, of_step = np.unique(others, return_inverse=True)
        lost = np.bincount(of_step, over[~np.isin(step, with_it)])
        if over[mine].sum() <= len(with_it) * lost.max(initial=0):
            continue
        label = _label([name[stall] for stall in np.flatnonzero(mine)[np.argsort(-over[mine], kind="stable")]])
        yield _remedy(advised, label, item[mine], works[mine], over[mine], step[mine])


def _kind(name: str) -> str:
    """Return what stalls have in common that one change takes away."""
    return _LOADS if _CODE.match(name) else name


def _label(names: list[str]) -> str:
    """Return what some stalls of one kind are called; that with the longest one first."""
    first, *others = dict.fromkeys(names)
    further = [*dict.fromkeys(other.partition(_OF)[2] or other for other in others)]
    further = [other for other in further if other != first.partition(_OF)[2]]
    return ", ".join([first, *further[:_LISTED]]) + ", ..." * (len(further) > _LISTED)


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
    most = "up to " if len(item) > 1 else ""
    cause = _cause(name, advised.words)
    return Remedy(
        rule="stall",
        what=f"{name}, {when}, takes {most}{format_ns(int(over.max()))} longer than ever else: {cause}",
        known=Known.MEASURED,
        rests_on=f"{format_count(len(item), 'stall')} on {format_count(len(advised.graphs), 'rank')}",
        view="stall",
        apply=apply,
        once=True,
    )


def _cause(name: str, words: ProgramWords) -> str:
    if _MEMORY.match(name):
        keep = f", {'set' if words.torch else 'or use'} {words.keeps_memory}" if words.keeps_memory else ""
        return f"memory grows? warm up first{keep}"
    if _CODE.match(name):
        setting = "HIP_ENABLE_DEFERRED_LOADING=0" if words.hip else "CUDA_MODULE_LOADING=EAGER"
        return f"code loaded late? warm up first, set {setting}"
    return f"warm up first; look for algorithms tried out, compilation{', garbage collection' * words.torch}"
