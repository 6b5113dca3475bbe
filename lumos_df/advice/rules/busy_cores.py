"""Operators of a host without a GPU that in most steps take far longer than ones that do the same: what if none did."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose cores of its own for a job whose operators are late in most steps, by what the step in the middle loses.

    What one step loses more than that is a stall.
    """
    delays, steps = advised.operator_delays, advised.steps_ns
    if delays.usual_ns.sum() < typical_values.LEAST_PCT / 100 * steps.sum():
        return
    part = np.minimum(1, delays.usual_ns / np.maximum(delays.lost_ns, 1))
    less, node = (delays.over_ns * part[delays.step]).astype(np.int64), delays.node

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] -= np.minimum(less, changed.own[node])

    lasts = format_ns(round(int(less.sum()) / len(steps)))
    yield Remedy(
        rule="busy_cores",
        what=f"operators take {lasts} a step longer than most of their name and shapes: other programs on these "
        "cores, or more threads than cores? run alone",
        known=Known.MEASURED,
        rests_on=format_count(len(node), "operator"),
        apply=apply,
    )
