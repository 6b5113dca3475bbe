"""Whose calls those of a line are that holds nothing else: recorders write them apart from what called them.

ROCm's recorder names a thread by the number that the system gave it, XLA's own by one of the language's library, and
nothing says which belong together. A thread makes its calls between what it does: each lies in a row of its line, and
none crosses one.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MOST_PAIRS: Final = 100_000
"""Pairs of lines that are tried at most: two seconds."""


def callers(
    line: NDArray[np.int64], ts: NDArray[np.int64], end: NDArray[np.int64], is_call: NDArray[np.bool_], lines: int
) -> NDArray[np.int64]:
    """Return for each line the one whose thread made its calls, itself where that is not known.

    A line is the caller of one other at most, and those with more calls choose first. Of several that could be it is
    the one that has less time between what it began and ended around the calls. Of very many lines none is tried.

    Args:
        line: place of each row's line.
        ts: start of each row, ns.
        end: its end, ns.
        is_call: which rows are calls of a runtime.
        lines: how many lines there are.
    """
    caller = np.arange(lines)
    calls = np.bincount(line[is_call], minlength=lines)
    rows = np.bincount(line, minlength=lines)
    order, first = np.argsort(line, kind="stable"), np.cumsum(rows) - rows
    of_line = {one: order[first[one] : first[one] + rows[one]] for one in np.flatnonzero(rows).tolist()}
    free = {other: _Moments(ts[of_line[other]], end[of_line[other]]) for other in of_line if calls[other] < rows[other]}
    alone = np.flatnonzero((calls > 0) & (calls == rows))
    if len(alone) * len(free) > _MOST_PAIRS:
        return caller
    for one in alone[np.argsort(-calls[alone], kind="stable")].tolist():
        begins, ends = ts[of_line[one]], end[of_line[one]]
        low, high = int(begins.min()), int(ends.max())
        around = {other: moments.around(begins, ends) for other, moments in free.items() if moments.span(low, high)}
        known = {other: ns for other, ns in around.items() if ns is not None}
        if known:
            caller[one] = min(known, key=lambda other: known[other])
            del free[int(caller[one])]
    return caller


class _Moments:
    """When rows of a thread began and ended."""

    def __init__(self, ts: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        self._begun, self._ended = np.sort(ts), np.sort(end)
        self._all = np.sort(np.concatenate((ts, end)))
        self._low, self._high = int(self._all[0]), int(self._all[-1])

    def span(self, low: int, high: int) -> bool:
        """Return whether the thread had begun something by `low`, and ended something from `high` on."""
        return self._low <= low and high <= self._high

    def around(self, ts: NDArray[np.int64], end: NDArray[np.int64]) -> int | None:
        """Return ns between the moments before and after each call, summed; None unless every one lies in a row."""
        inside = np.searchsorted(self._begun, ts, side="right") - np.searchsorted(self._ended, end, side="left")
        before = np.searchsorted(self._all, ts, side="right")
        after = np.searchsorted(self._all, end, side="left")
        if (inside <= 0).any() or (before != after).any():
            return None
        return int((self._all[after] - self._all[before - 1]).sum())
