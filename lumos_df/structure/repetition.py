"""The block that a sequence of kernels repeats, found without knowing what it is.

The distance to the last place where the same few kernels began votes for a period; the period whose stretches hold most
of the work is the block's. Each step is linear in the sequence.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.structure import loops

_WIDTHS: Final = (8, 3)
"""Kernels that are compared at once: enough to tell places of a block apart, and few for blocks of a few kernels."""
_CANDIDATES: Final = 12
_ENOUGH: Final = 0.5
"""A shorter period with this share of the best one's work is the block; the longer one is a micro-batch or a step."""
_REACH: Final = 16
"""Kernels by which one block may differ from the next in one place."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """Where a sequence of n symbols repeats a block."""

    template: NDArray[np.int32]
    """The symbols of one block, from an arbitrary place of it [period]."""
    run: NDArray[np.int32]
    """Which run of blocks every symbol is in, from 0; NONE outside [n]."""
    place: NDArray[np.int64]
    """Its place in its run's endless template: `place // period` numbers the blocks, from any one [n]."""
    joined: NDArray[np.bool_]
    """Which runs the next one follows without a break [runs]."""
    covered: float
    """Share of the weight that is inside."""

    @property
    def period(self) -> int:
        """Symbols of one block."""
        return len(self.template)


def find(symbols: NDArray[np.int32], weight: NDArray[np.int64]) -> Repetition | None:
    """Return the block that a sequence repeats, None where there is none.

    Args:
        symbols: [n], at least 0; negative is a break.
        weight: how much each symbol counts [n], at least 0; of a sequence without weight every symbol counts as one.
    """
    if not weight.any():
        weight = (symbols >= 0).astype(np.int64)
    total = np.concatenate(([0], np.cumsum(weight)))
    found = [(period, _work(symbols, total, period)) for period in _periods(symbols)]
    best = max((work for _, work in found), default=0)
    if best == 0:
        return None
    period = min(period for period, work in found if work >= _ENOUGH * best)
    start, end = loops.stretches(symbols, period)
    work = total[end] - total[start]
    longest = int(np.argmax(work))
    # The middle of the longest stretch: its ends are where a block may differ.
    first = (int(start[longest]) + int(end[longest]) - period) // 2
    template = symbols[first : first + period].copy()
    phase = np.array([loops.phase_of(symbols, at, template) for at in start.tolist()], np.int32)
    same = phase >= 0
    reach = max(1, min(_REACH, period // 4))
    run, place, joined = loops.align(symbols, template, start[same], end[same], phase[same], reach)
    return Repetition(template, run, place, joined, float(weight[run >= 0].sum() / max(1, total[-1])))


def _periods(symbols: NDArray[np.int32]) -> list[int]:
    """Return the distances at which most symbols repeat."""
    votes = np.zeros(1, np.int64)
    for width in _WIDTHS:
        counted = np.bincount(loops.previous(symbols, width), minlength=len(votes))
        counted[: len(votes)] += votes
        votes = counted
    votes[0] = 0
    few = min(_CANDIDATES, len(votes))
    most = np.argpartition(votes, -few)[-few:]
    return sorted(int(period) for period in most if votes[period] > 0)


def _work(symbols: NDArray[np.int32], total: NDArray[np.int64], period: int) -> int:
    start, end = loops.stretches(symbols, period)
    # Neighbouring stretches may share symbols: each counts once.
    start = np.maximum(start, np.concatenate(([0], end[:-1])))
    return int((total[end] - total[np.minimum(start, end)]).sum())
