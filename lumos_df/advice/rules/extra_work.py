"""Work of late ranks that no other rank has, such as an evaluation: what if they had it no more."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import outermost, without_stretches
from lumos_df.advice.pipelines import pipelines
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules import late_rank
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import ordinals

_NAMED: Final = 3
"""Operators that are named: more do not fit on the line."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that ranks which others wait for do without the operators that they alone have.

    Stages of a pipeline run other programs, and so may each rank of a job without a GPU whose rows nothing joins.
    """
    ranks = len(advised.ranks)
    if len(np.unique(pipelines(advised))) < ranks or not all(rows.on_gpu.any() for rows in advised.ranks):
        return
    late = late_rank.waited_for(advised)
    if not len(late) or len(late) == ranks:
        return
    calls = _alone(advised, late)
    taken, apply = without_stretches(advised, calls, [np.zeros(len(call), np.int64) for call in calls])
    count = sum(map(len, calls))
    if not count:
        return
    numbers = [advised.ranks[place].rank for place in late.tolist() if len(calls[place])]
    with_it = len(np.unique(np.concatenate([rows.step[call] for rows, call in zip(advised.ranks, calls, strict=True)])))
    steps = len(advised.steps_ns)
    yield Remedy(
        rule="extra_work",
        what=f"{late_rank.listed(numbers)} alone run{'s' * (len(numbers) == 1)} {_named(advised, calls)}, "
        f"in {with_it} of {len(np.unique(advised.step_number))} steps, and others wait for it, "
        f"{format_ns(taken // steps)} of the GPU in the mean of all ranks: share it out, or let fewer steps have it",
        known=Known.MEASURED,
        rests_on=f"{format_count(count, 'operator')} that no other rank has",
        apply=apply,
    )


def _alone(advised: AdvisedJob, late: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the outermost operators of late ranks of which none of the others has as many in the step [k]; by rank.

    In a step in which a late rank lacks what all others have it runs another program, not more of the same.
    """
    outer = [outermost(rows) for rows in advised.ranks]
    number = {name: place for place, name in enumerate(sorted({name for rows in advised.ranks for name in rows.names}))}
    keys, steps = [], [rows.step[row] for rows, row in zip(advised.ranks, outer, strict=True)]
    for rows, row, step in zip(advised.ranks, outer, steps, strict=True):
        name = np.array([number[text] for text in rows.names], np.int64)[rows.name[row]]
        keys.append(packed(step, name, ordinals(packed(step, name))))
    others = [place for place in range(len(keys)) if place not in late]
    some, first = np.concatenate([keys[place] for place in others]), others[0]
    of_all = np.logical_and.reduce([np.isin(keys[first], keys[place]) for place in others])
    found = [row[:0] for row in outer]
    for place in late.tolist():
        lacks = steps[first][of_all & ~np.isin(keys[first], keys[place])]
        found[place] = outer[place][~np.isin(keys[place], some) & ~np.isin(steps[place], lacks)]
    return found


def _named(advised: AdvisedJob, calls: list[NDArray[np.int64]]) -> str:
    """Name the operators of which there are most."""
    count = Counter(
        rows.names[name] for rows, call in zip(advised.ranks, calls, strict=True) for name in rows.name[call].tolist()
    )
    return ", ".join(name for name, _ in count.most_common(_NAMED)) + ", ..." * (len(count) > _NAMED)
