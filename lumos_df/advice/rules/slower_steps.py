"""GPUs on which the same kernels take longer in some steps than in others: what if they had kept their pace."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.kernel_calls import KernelCalls
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.late_rank import listed
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.same_rows import ordinals
from lumos_df.schema.codes import ATTENTION, COMMUNICATION, CONVOLUTION, GEMM, NONE

_MULTIPLIES: Final = (GEMM, CONVOLUTION, ATTENTION)
"""Families whose kernels follow the GPU's clock; others follow its memory."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the GPUs of all ranks keep the pace of their quickest step."""
    more = np.zeros(len(advised.event_graph.own), np.int64)
    for place, calls in enumerate(advised.kernel_calls):
        row, ns = _longer(calls)
        more[advised.event_graph.base[place] + row] = ns
    if not more.any():
        return
    rank = np.repeat(np.arange(len(advised.ranks)), np.diff(advised.event_graph.base))
    late = np.unique(rank[more > 0])
    taken = format_ns(round(more.sum() / len(advised.steps_ns)))

    def apply(changed: ChangedGraph) -> None:
        changed.own[:] -= np.minimum(more, changed.own)

    of, mean = "", ""
    if len(late) < len(advised.ranks):
        numbers = [advised.ranks[place].rank for place in late.tolist()]
        of, mean = f"of {listed(numbers)} ", " in the mean of all ranks"
    yield Remedy(
        rule="slower_steps",
        what=f"kernels {of}take longer in some steps than in others with the same shapes, {taken} a step longer{mean}: "
        "look for the GPU's clock, which heat and power lower, or another program on it",
        known=Known.MEASURED,
        rests_on=format_count(int(np.count_nonzero(more)), "kernel"),
        apply=apply,
    )


def _longer(calls: KernelCalls) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the kernels of slow steps of a rank, how much longer they take, ns [k].

    Kernels are alike that have one name, shapes, and place among those in their step. A step is slow where three
    quarters of them take longer than in the quickest one; by chance half of them do.
    """
    rows, family = calls.trace.rows, calls.family
    step = rows.step[calls.row]
    place = np.flatnonzero((family != NONE) & (family != COMMUNICATION) & (calls.call != NONE) & (step >= 0))
    numbers, column = np.unique(step[place], return_inverse=True)
    like = packed(rows.name[calls.row[place]], calls.call[place])
    alike = dense(packed(like, ordinals(packed(like, column))))
    # What every step has.
    whole = np.bincount(alike)[alike] == len(numbers)
    place, column, alike = place[whole], column[whole], dense(alike[whole])
    taken = np.zeros((int(alike.max(initial=NONE)) + 1, len(numbers)))
    taken[alike, column] = calls.dur[place]
    multiplies = np.zeros(len(taken), np.bool_)
    multiplies[alike] = np.isin(family[place], _MULTIPLIES)
    more = np.zeros(taken.shape)
    for mine in (multiplies, ~multiplies):
        more[mine] = _over(taken[mine])
    ns = np.round(more[alike, column]).astype(np.int64)
    return calls.row[place], ns


def _over(taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much kernels of slow steps take longer than in the quickest one, ns [kernels, steps].

    Args:
        taken: how long each takes in each step, ns [kernels, steps].
    """
    kernels, steps = taken.shape
    # Three quarters of so many are longer by chance as seldom as this (Hoeffding's bound), in any of the steps.
    if steps < 2 or steps * np.exp(-kernels / 8) > typical_values.ACCIDENT_SHARE:
        return np.zeros(taken.shape)
    ratio = taken / np.maximum(taken[:, [np.argmin(taken.sum(axis=0))]], 1)
    low, middle = np.percentile(ratio, (25, 50), axis=0)
    return np.where(low > 1, taken * (1 - 1 / np.maximum(middle, 1)), 0.0)
