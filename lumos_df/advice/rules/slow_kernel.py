"""Single calls of an operator whose kernels take far longer than those of most like it: what if they took as long."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.kernel_calls import KernelCalls
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.distinct_texts import distinct
from lumos_df.schema.codes import COMMUNICATION, NONE

_MOST: Final = 3
"""Operators that are proposed: those whose kernels lose most time."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose for each of some operators that its slow kernels take what most of their name and shapes take."""
    found = [_slow(calls) for calls in advised.kernel_calls]
    names, kind = distinct(
        calls.calls[call].name
        for calls, (place, _) in zip(advised.kernel_calls, found, strict=True)
        for call in calls.call[place].tolist()
    )
    ranks = list(zip(advised.kernel_calls, found, strict=True))
    row = [calls.row[place].astype(np.int64) for calls, (place, _) in ranks]
    node = np.concatenate([base + rows for base, rows in zip(advised.event_graph.base[:-1], row, strict=True)])
    step = np.concatenate([calls.trace.rows.step[rows] for (calls, _), rows in zip(ranks, row, strict=True)])
    over = np.concatenate([ns for _, ns in found])
    total = np.bincount(kind, over, len(names))
    for place in np.argsort(-total)[:_MOST].tolist():
        if total[place] >= typical_values.LEAST_PCT / 100 * advised.steps_ns.sum():
            mine = kind == place
            yield _remedy(advised, names[place], node[mine], over[mine], len(np.unique(step[mine])))


def _slow(calls: KernelCalls) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the slow kernels of a rank [k], and by how much each takes longer than most like it, ns.

    Kernels are alike that have one name, of an operator with the same shapes and types. A slow one takes more than
    twice as long as the one in the middle, and is an outlier: where many take long, there are two kinds of calls.
    """
    family = calls.family
    place = np.flatnonzero((family != NONE) & (family != COMMUNICATION) & (calls.call != NONE))
    dur, name = calls.dur[place], calls.trace.rows.name[calls.row[place]].astype(np.int64)
    _, alike = np.unique(np.stack((name, calls.call[place])), axis=1, return_inverse=True)
    alike = alike.reshape(-1)
    usual, known = typical_values.medians(dur, alike)
    slow = known & (dur > np.maximum(2 * usual, typical_values.highest_usual_of(dur, alike)))
    return place[slow], (dur - usual)[slow]


def _remedy(advised: AdvisedJob, name: str, node: NDArray[np.int64], over: NDArray[np.int64], in_steps: int) -> Remedy:
    def apply(changed: ChangedGraph) -> None:
        changed.own[node] -= np.minimum(over, changed.own[node])

    steps = len(np.unique(advised.step_number))
    lasts = format_ns(round(over.sum() / len(advised.steps_ns)))
    return Remedy(
        rule="slow_kernel",
        what=f"single kernels of {name} take {lasts} a step longer, in {in_steps} of {steps} steps, than most of their "
        "name and shapes: compare layouts, values, and what else the GPU did",
        known=Known.MEASURED,
        rests_on=f"{format_count(len(node), 'kernel')} on {format_count(len(advised.graphs), 'rank')}",
        apply=apply,
        once=2 * in_steps <= steps and steps > 1,
    )
