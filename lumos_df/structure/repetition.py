"""The block that a sequence of kernels or operators repeats, found without knowing what it is.

The distance to the last place where the same few kernels began votes for a period; the period whose stretches hold most
of the work is the block's. Each step is linear in the sequence.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.structure.kernels import repeats

_WIDTH: Final = 3
"""Threshold, kernels. So many are compared at once. Evidence: one does not tell a
block of many kernels of few kinds, and more than three miss two blocks of three."""
_CANDIDATES: Final = 12
"""Periods that are tried, those with most votes: a bound on the work, wide enough for layers, micro-batches, steps."""
_ENOUGH_SHARE: Final = 0.5
"""Threshold, share of the best period's work. A shorter period with so much is the block.
Evidence: the longer one is a micro-batch or a step."""
_REACH: Final = 16
"""Kernels: a bound on the work where one block differs from the next, which grows with its square."""
_REACH_PART: Final = 4
"""Threshold, one part in. One block may differ from the next by at most this part of it in one place."""
_CONFIRM: Final = 4
"""Threshold, kernels. So many must agree for a sequence to be in step with its block again."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


def find(
    symbols: NDArray[np.int32],
    weight: NDArray[np.int64],
    times: int | None = None,
    attends: NDArray[np.bool_] | None = None,
    most: int | None = None,
    whole: NDArray[np.bool_] | None = None,
) -> Repetition | None:
    """Return the block that a sequence repeats, None where there is none.

    Args:
        symbols: [n], at least 0; negative is a break.
        weight: how much each symbol counts [n], at least 0; of a sequence without weight every symbol counts as one.
        times: how often the block is known to come in a row; where nothing comes so often, what is most likely.
        attends: which symbols are attention [n], none if not given. A block that repeats without what there is of it is
            a part of a layer, such as one of its experts, and so is one of nothing else: parts of a sequence may be
            attended one after another.
        most: how many blocks there can be; any number if not given. Each layer has parameters of its own, so there are
            no more layers than gradients that are added up: what comes more often is one token of a loop, and several
            such are no layer, either.
        whole: which symbols may each be a whole layer [n], none if not given.
    """
    if not weight.any():
        weight = (symbols >= 0).astype(np.int64)
    total = np.concatenate(([0], np.cumsum(weight)))
    periods = _periods(symbols)
    if whole is not None and _follows_itself(symbols, whole):
        periods = sorted({1, *periods})
    if most is not None:
        turns = [period for period in periods if _blocks(symbols, period) > most]
        periods = [period for period in periods if not _are_turns(symbols, total, period, turns)]
    candidates = [(period, _work(symbols, total, period)) for period in periods]
    if attends is not None:
        attended = np.concatenate(([0], np.cumsum(attends)))
        inside = [_work(symbols, attended, period) for period in periods]
        enough = _ENOUGH_SHARE * max(inside, default=0)
        alone = attends if whole is None else attends & ~whole
        others = np.concatenate(([0], np.cumsum(np.where(alone, 0, weight))))
        beside = [_work(symbols, others, period) for period in periods]
        candidates = [
            candidate
            for candidate, work, other in zip(candidates, inside, beside, strict=True)
            if work >= enough and (other or not any(beside))
        ]
    best = max((work for _, work in candidates), default=0)
    if best == 0:
        return None
    period = _given(symbols, total, periods, times) if times else 0
    if not period:
        period = min(period for period, work in candidates if work >= _ENOUGH_SHARE * best)
        if attends is None or not attends.any():
            period = _whole(symbols, total, periods, period)
    start, end = repeats.stretches(symbols, period)
    work = total[end] - total[start]
    longest = int(np.argmax(work))
    # The middle of the longest stretch: its ends are where a block may differ.
    first = (int(start[longest]) + int(end[longest]) - period) // 2
    template = symbols[first : first + period].copy()
    phase = np.array([repeats.phase_of(symbols, at, template) for at in start.tolist()], np.int32)
    same = phase >= 0
    run, place, joined = repeats.align(
        symbols, template, start[same], end[same], phase[same], max(1, reach(period)), _CONFIRM
    )
    covered = float(weight[run >= 0].sum() / max(1, total[-1]))
    return Repetition(template=template, run=run, place=place, joined=joined, covered=covered)


def reach(period: int) -> int:
    """Return by how many kernels one block may differ from the next in one place."""
    return min(_REACH, period // _REACH_PART)


def _periods(symbols: NDArray[np.int32]) -> list[int]:
    """Return the distances at which most symbols repeat."""
    votes = np.bincount(repeats.previous(symbols, _WIDTH), minlength=1)
    votes[0] = 0
    few = min(_CANDIDATES, len(votes))
    most = np.argpartition(votes, -few)[-few:]
    return sorted(int(period) for period in most if votes[period] > 0)


def _follows_itself(symbols: NDArray[np.int32], whole: NDArray[np.bool_]) -> bool:
    """Return whether what may be a whole layer comes again at once."""
    return bool((whole[1:] & (symbols[1:] >= 0) & (symbols[1:] == symbols[:-1])).any())


def _are_turns(symbols: NDArray[np.int32], total: NDArray[np.int64], period: int, turns: list[int]) -> bool:
    """Return whether blocks of a period are turns of a loop, or several each, so that they do no more work."""
    work = _work(symbols, total, period)
    return any(period % turn == 0 and work <= _work(symbols, total, turn) for turn in turns)


def _blocks(symbols: NDArray[np.int32], period: int) -> int:
    start, end = repeats.stretches(symbols, period)
    return int(((end - start) // period).sum())


def _given(symbols: NDArray[np.int32], total: NDArray[np.int64], periods: list[int], times: int) -> int:
    """Return the period whose block comes `times` in a row in most of the work, 0 where none does.

    A block may be several that are alike, so multiples of the periods are tried, too; of two blocks with as much work
    the longer one is taken, in which the other one comes as often.
    """
    most, best = 0, 0
    for period in sorted({period * several for period in periods for several in range(1, _CANDIDATES + 1)}):
        start, end = repeats.stretches(symbols, period)
        fits = (end - start) // period == times
        work = int((total[end[fits]] - total[start[fits]]).sum())
        if work and work >= most:
            most, best = work, period
    return best


def _whole(symbols: NDArray[np.int32], total: NDArray[np.int64], periods: list[int], period: int) -> int:
    """Return the period of the blocks of which those of a period are parts, else that period.

    Parts come in groups of as many, such as both convolutions of a residual block, and each group with what follows it
    repeats, so that all work which parts do is in groups, and what works in groups are parts. Groups are at least as
    many as the parts of one: few groups of many are micro-batches. Parts may only look alike from the end of one group
    to the middle of the next, which is once less than there are groups: no more than one group works outside of them.
    What more of each group works outside is around a micro-batch.
    """
    works = np.diff(total) > 0
    start, end = repeats.stretches(symbols, period)
    in_group = (end - start)[total[end] > total[start]] // period
    parts, known = np.unique(in_group), np.unique(symbols[works & _inside(start, end, len(symbols))])
    if len(parts) != 1:
        return period
    counted = np.concatenate(([0], np.cumsum(works)))
    for longer in periods:
        outside = _work(symbols, counted, longer) - _work(symbols, counted, period)
        if longer <= parts[0] * period or outside < 0:
            continue
        begin, finish = repeats.stretches(symbols, longer)
        groups = (finish - begin)[total[finish] > total[begin]] // longer
        fewer = groups.sum() - len(in_group)
        alike = np.isin(symbols[works & _inside(begin, finish, len(symbols))], known).all()
        if alike and (groups >= parts[0]).all() and 0 <= fewer <= len(groups):
            of_one = counted[begin[0] + longer] - counted[begin[0]]
            if outside <= fewer * of_one:
                return longer
    return period


def _inside(start: NDArray[np.int32], end: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
    """Return which places of a sequence are in some stretches [count]."""
    opened = np.bincount(start, minlength=count + 1) - np.bincount(end, minlength=count + 1)
    inside: NDArray[np.bool_] = np.cumsum(opened)[:count] > 0
    return inside


def _work(symbols: NDArray[np.int32], total: NDArray[np.int64], period: int) -> int:
    start, end = repeats.stretches(symbols, period)
    # Neighbouring stretches may share symbols: each counts once.
    start = np.maximum(start, np.concatenate(([0], end[:-1])))
    return int((total[end] - total[np.minimum(start, end)]).sum())
