"""Which ranks are late step after step; some rank is late by chance in any recording."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.collective_waits import CollectiveWaits
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE

_ANGLES = np.linspace(0.0, np.pi / 2, 10_001)
"""Student's t is the tangent of an angle times the square root of its degrees of freedom."""


def of_waits(ranks: list[Rows], waits: CollectiveWaits) -> NDArray[np.bool_]:
    """Return which ranks come later to kernels of collectives than the other members, step after step [ranks]."""
    mean = np.bincount(waits.instance, waits.waiting)[waits.instance] / waits.members
    late_ns: NDArray[np.float64] = mean - waits.waiting
    step = np.concatenate([rows.step[waits.row[waits.of_trace(place)]] for place, rows in enumerate(ranks)])
    known = (waits.last != NONE) & (step >= 0)
    return steady(sums_by_step(len(ranks), waits.trace[known], step[known], late_ns[known]))


def of_host_waits(
    ranks: int, rank: NDArray[np.int64], step: NDArray[np.int64], wait_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return the same of ranks without GPUs [ranks], by how long each waits in collectives that all take part in.

    Args:
        ranks: how many there are.
        rank, step: of each row of a collective, by place of the rank [k].
        wait_ns: how long it waits for the last member, ns [k].
    """
    waited = sums_by_step(ranks, rank, step, wait_ns)
    return steady(waited.mean(axis=0) - waited)


def sums_by_step(ranks: int, rank: NDArray[np.int64], step: NDArray[np.int64], ns: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums of times of each rank and step, ns [ranks, steps]."""
    numbers, place = np.unique(step, return_inverse=True)
    sums = np.zeros((ranks, len(numbers)))
    np.add.at(sums, (rank, place), ns)
    return sums


def steady(late_ns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which ranks are late by more than chance makes one of so many [ranks]; all where one step tells nothing.

    The mean of a rank's steps is held against its standard error (Student's test, as often as there are ranks). That is
    what the steps of all ranks differ by, or those of the rank, if by more: who stalls once is late once.

    Args:
        late_ns: how much less than others a rank waited for them in a step, ns [ranks, steps].
    """
    ranks, steps = late_ns.shape
    if steps < 2 or ranks < 2:
        return np.ones(ranks, np.bool_)
    # What ranks are late by adds up to nothing in each step, so that one of them tells nothing.
    freedom = (ranks - 1) * (steps - 1)
    own = late_ns.var(axis=1, ddof=1)
    error = np.sqrt(np.maximum(own, own.mean()) / steps)
    late: NDArray[np.bool_] = late_ns.mean(axis=1) > _student(typical_values.ACCIDENT_SHARE / ranks, freedom) * error
    return late


def _student(share: float, freedom: int) -> float:
    """Return what a value of Student's distribution exceeds in this share of all cases, at most a half."""
    density = np.cos(_ANGLES) ** (freedom - 1)
    below = np.cumsum(density) - density / 2 - density[0] / 2
    return float(np.sqrt(freedom) * np.tan(np.interp(1 - 2 * share, below / below[-1], _ANGLES)))
