"""Steps of a trace as windows of time, recorded and simulated, and the GPU's share of them."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import share
from lumos_df.schema import STEP_MARK
from lumos_df.schema.codes import ANNOTATION, COMMUNICATION, CPU_OP, KERNEL, NONE, OTHER_KIND, RUNTIME

_ASKS: Final = re.compile(r"(?:cuda|cu|hip)\w*(?:Get[A-Z]\w*|EventQuery)$")
"""Calls that only ask for something."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    gpu_row: NDArray[np.int32]
    """[steps + 1] row of the GPU with whose end each step begins, and the last one ends; NONE: as the host does it."""

    def place(self, number: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return which of the steps each number is of, or NONE; the step of a trace without marks has all [k]."""
        if self.number[0] == NONE:
            return np.zeros(len(number), np.int64)
        by_number = np.argsort(self.number)
        place = by_number[np.minimum(np.searchsorted(self.number[by_number], number), len(by_number) - 1)]
        return np.where(self.number[place] == number, place, NONE)


def step_numbers(rows: Rows) -> NDArray[np.int32]:
    """Return n of each name `ProfilerStep#n`, NONE of the others, and NONE for no name at the end [names + 1]."""
    marks = [STEP_MARK.match(name) for name in rows.names]
    return np.array([*(int(mark[1]) if mark else NONE for mark in marks), NONE], np.int32)


def steps(rows: Rows) -> Steps:
    """Return the steps of a trace."""
    numbers = step_numbers(rows)
    mark = np.flatnonzero((numbers >= 0)[rows.name]).astype(np.int32)
    mark = mark[np.isin(rows.kind[mark], (ANNOTATION, CPU_OP)) & (rows.thread[mark] >= 0)]
    if not len(mark):
        return _whole(rows)
    number, first, inverse = np.unique(numbers[rows.name[mark]], return_index=True, return_inverse=True)
    high = np.full(len(number), np.iinfo(np.int64).min)
    inverse = inverse.reshape(-1)
    np.maximum.at(high, inverse, rows.end[mark])
    low = rows.ts[mark[first]]
    later = (rows.ts[mark] >= rows.end[mark[first]][inverse]) & (rows.ts[mark] > low[inverse])
    again = np.bincount(inverse[later], minlength=len(number))
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    high[:-1] = np.minimum(high[:-1], low[1:])
    return Steps(
        number=number[order].astype(np.int32),
        mark=mark[first[order]],
        low=low,
        high=high,
        again=again[order],
        gpu_row=_by_host(len(number)),
    )


def works(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are work, as in the view `step` [n]: calls, operators, rows of the GPU.

    Python frames wait in their thread as long as it lives, and the profiler has a row of its own. Calls that only ask
    are no work either: watchdogs ask now and then whether an event is over, and a library does for its settings when it
    is loaded, long before a program begins. In a trace without work every row counts but those of other kinds.
    """
    asks = rows.named(_ASKS.match)
    work: NDArray[np.bool_] = rows.on_gpu | rows.of_kind(CPU_OP) | rows.of_kind(RUNTIME) & ~asks
    return work if work.any() else rows.kind != OTHER_KIND


def _whole(rows: Rows) -> Steps:
    """Return a trace without marks as one step, from its first row of work to the end of its last."""
    timed = np.flatnonzero(works(rows))
    low = rows.ts[timed].min(initial=np.iinfo(np.int64).max) if len(timed) else 0
    high = rows.end[timed].max(initial=0) if len(timed) else 0
    none = np.array([NONE], np.int32)
    again = np.zeros(1, np.int64)
    return Steps(number=none, mark=none, low=np.array([low]), high=np.array([high]), again=again, gpu_row=_by_host(1))


def _by_host(steps: int) -> NDArray[np.int32]:
    return np.full(steps + 1, NONE, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where each step's time went: the parts of `schema.STEP_PARTS`, which says what each is; ns [steps]."""

    exposed_compute: NDArray[np.int64]
    overlapped: NDArray[np.int64]
    exposed_communication: NDArray[np.int64]
    other: NDArray[np.int64]


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
    return Breakdown(
        exposed_compute=either - communication,
        overlapped=compute + communication - either,
        exposed_communication=either - compute,
        other=high - low - either,
    )
