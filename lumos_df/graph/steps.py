"""Steps of a trace as windows of time, recorded and simulated, and the GPU's share of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import ANNOTATION, COMMUNICATION, CPU_OP, KERNEL, NONE, Rows
from lumos_df.graph.simulate import share
from lumos_df.schema import KINDS as _KINDS
from lumos_df.schema import STEP_MARK


@dataclass(frozen=True, slots=True)
class Steps:
    """Windows of the host's steps, one after another; times ns on the trace's clock.

    As in the view `step`: between the marks of torch.profiler, at the latest until the next mark. A trace without marks
    is one step without a number.
    """

    number: NDArray[np.int32]
    """n of ProfilerStep#n, or NONE."""
    mark: NDArray[np.int32]
    """Row of the mark, or NONE."""
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    again: NDArray[np.int64]
    """Marks with the same number that begin after the first is over."""


def steps(rows: Rows) -> Steps:
    """Return the steps of a trace."""
    said = [STEP_MARK.match(name) for name in rows.names]
    numbers = np.array([*(int(match[1]) if match else NONE for match in said), NONE], np.int32)
    mark = np.flatnonzero((numbers >= 0)[rows.name]).astype(np.int32)
    mark = mark[np.isin(rows.kind[mark], (ANNOTATION, CPU_OP)) & (rows.thread[mark] >= 0)]
    if not len(mark):
        timed = np.flatnonzero(rows.kind != len(_KINDS) - 1)
        low = rows.ts[timed].min(initial=np.iinfo(np.int64).max) if len(timed) else 0
        high = rows.end[timed].max(initial=0) if len(timed) else 0
        return Steps(
            np.array([NONE], np.int32),
            np.array([NONE], np.int32),
            np.array([low]),
            np.array([high]),
            np.zeros(1, np.int64),
        )
    found, first, inverse = np.unique(numbers[rows.name[mark]], return_index=True, return_inverse=True)
    high = np.full(len(found), np.iinfo(np.int64).min)
    inverse = inverse.reshape(-1)
    np.maximum.at(high, inverse, rows.end[mark])
    low = rows.ts[mark[first]]
    later = (rows.ts[mark] >= rows.end[mark[first]][inverse]) & (rows.ts[mark] > low[inverse])
    again = np.bincount(inverse[later], minlength=len(found))
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    high[:-1] = np.minimum(high[:-1], low[1:])
    return Steps(found[order].astype(np.int32), mark[first[order]], low, high, again[order])


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where each step's time went, seen from the GPU; the four parts add up to the step; ns [steps]."""

    exposed_compute: NDArray[np.int64]
    """Compute ran and no communication did."""
    overlapped: NDArray[np.int64]
    """Both ran."""
    exposed_communication: NDArray[np.int64]
    """Communication ran and no compute did."""
    other: NDArray[np.int64]
    """No kernel ran."""


def breakdown(
    rows: Rows, start: NDArray[np.int64], end: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> Breakdown:
    """Split the windows [low, high] by the kernels that run in [start, end] (both [n], ns)."""
    kernel = np.flatnonzero((rows.kind == KERNEL) & (rows.stream >= 0))
    kernel = kernel[np.argsort(start[kernel], kind="stable")]
    is_communication = rows.family[kernel] == COMMUNICATION
    begin, finish = start[kernel], end[kernel]
    communication = share(begin[is_communication], finish[is_communication], low, high)
    compute = share(begin[~is_communication], finish[~is_communication], low, high)
    either = share(begin, finish, low, high)
    return Breakdown(either - communication, compute + communication - either, either - compute, high - low - either)
