"""The loops over what waits for events may mean: which pairs of streams fit, and which explain most.

A pair (a, b) of s streams is the number `a * s + b`: rows of stream b wait for rows of stream a.
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import kernel, lean_kernel
from lumos_df.schema.codes import NONE

_ROOM: Final = 4
"""Candidates that a wait has room for at first."""


@lean_kernel
def _fits(a, b, waits, src, dst, ts, end, resolution):
    """Return whether no row of stream b started before the row of stream a had ended, that it would have waited for."""
    for k in range(len(waits)):
        waited, waiting = src[a, waits[k]], dst[b, waits[k]]
        if waited >= 0 and waiting >= 0 and ts[waiting] - end[waited] < -resolution:
            return False
    return True


@kernel
def fitting(pair, src, dst, order, bounds, ts, end, resolution):
    """Return the pair given for each group if it fits all of its waits, else NONE.

    Args:
        pair: int64 [groups], or NONE.
        src: int32 [s, w] the row that each wait would be for, by its stream, or NONE.
        dst: int32 [s, w] the row that would wait, likewise.
        order: int64 [w] waits, those of group g in order[bounds[g]:bounds[g + 1]], ascending.
        bounds: int64 [groups + 1].
        ts, end: int64 [n] of each row, ns.
        resolution: ns that the clock may be off.

    Returns:
        int64 [groups].
    """
    kept = np.full(len(pair), NONE, np.int64)
    for group in range(len(pair)):
        if pair[group] >= 0:
            a, b = pair[group] // len(src), pair[group] % len(src)
            if _fits(a, b, order[bounds[group] : bounds[group + 1]], src, dst, ts, end, resolution):
                kept[group] = pair[group]
    return kept


@kernel
def _longer(array):
    """Return an array with room for twice as much: `numpy.append` takes numba longer to compile."""
    longer = np.empty(2 * len(array), array.dtype)
    for k in range(len(array)):
        longer[k] = array[k]
    return longer


@kernel
def candidates(src, dst, order, bounds, previous, following, ts, end, resolution, reaction):
    """Return the pairs that fit all waits of a group, each with the waits that it may explain.

    It may explain a wait when the row started promptly after the end of the other one. Also given are pairs of streams
    that the thread issued to before and after a wait, whatever they explain. To look for pairs among ends in their
    order takes the time of those that are found; to try each pair of 200 streams took half a minute.

    Args:
        src, dst, order, bounds, ts, end, resolution: as of `fitting`.
        previous, following: int64 [w] stream that the thread issued to before and after each wait, or NONE.
        reaction: ns within which a row that waited starts.

    Returns:
        wait: int32 [c].
        pair: int64 [c].
        slack: int64 [c] ns from the end of the one row to the start of the other; more than `reaction` where that was
            before, or later than promptly.
        usual: bool [c] whether the streams are those issued to before and after.
    """
    streams = len(src)
    known = np.full(streams * streams, NONE, np.int64)  # 2 * group, or one more where the pair fits that group
    on, ends = np.empty(streams, np.int64), np.empty(streams, np.int64)
    size, room = 0, _ROOM * len(order) + 1
    wait, pair = np.empty(room, np.int32), np.empty(room, np.int64)
    slack, usual = np.empty(room, np.int64), np.empty(room, np.bool_)
    for group in range(len(bounds) - 1):
        waits = order[bounds[group] : bounds[group + 1]]
        for w in waits:
            count = 0
            for a in range(streams):
                if src[a, w] >= 0:
                    on[count], ends[count] = a, end[src[a, w]]
                    count += 1
            by_end = np.argsort(ends[:count])
            sorted_ends = ends[:count][by_end]
            for b in range(streams):
                if dst[b, w] < 0:
                    continue
                start = ts[dst[b, w]]
                low = np.searchsorted(sorted_ends, start - reaction)
                high = np.searchsorted(sorted_ends, start + resolution, side="right")
                beside = previous[w] if following[w] == b and previous[w] >= 0 and src[previous[w], w] >= 0 else NONE
                for k in range(low, high + 1):
                    a = on[by_end[k]] if k < high else beside
                    if a < 0 or a == b:
                        continue
                    number = a * streams + b
                    if known[number] // 2 != group:
                        known[number] = 2 * group + _fits(a, b, waits, src, dst, ts, end, resolution)
                    if known[number] % 2 == 0:
                        continue
                    if size == len(wait):
                        wait, pair, slack, usual = _longer(wait), _longer(pair), _longer(slack), _longer(usual)
                    wait[size], pair[size], usual[size] = w, number, a == beside
                    slack[size] = start - end[src[a, w]]
                    size += 1
                    if a == beside:
                        beside = NONE
    return wait[:size], pair[:size], slack[:size], usual[:size]


@kernel
def clearest(bounds, pair, start, dst, tells, usual, is_open, explained, late, fraction):
    """Return the pair of each group that explains most of its waits, of those with most the lowest one.

    Args:
        bounds: int64 [groups + 1] candidates of group g are bounds[g] to bounds[g + 1], by pair and then by wait.
        pair: int64 [c].
        start: int64 [c] when the row that would wait started, ns.
        dst: int32 [c] that row.
        tells: bool [c] whether it started promptly, and nothing nearer had ended.
        usual: bool [c] as `candidates` returns it.
        is_open: bool [groups] which groups are asked for.
        explained: int64 [n] when each row would have started without the wait, ns.
        late: ns that a start is off at least which something has to explain.
        fraction: what a wait counts by streams that are usual, beside 1 of one that is explained.

    Returns:
        pair: int64 [groups], or NONE.
        weight: float64 [groups] how many waits it explains.
    """
    groups = len(bounds) - 1
    choice, best = np.full(groups, NONE, np.int64), np.zeros(groups)
    for group in range(groups):
        k = bounds[group]
        while is_open[group] and k < bounds[group + 1]:
            number, weight = pair[k], 0.0
            while k < bounds[group + 1] and pair[k] == number:
                explains = tells[k] and start[k] > explained[dst[k]] + late
                weight += np.float64(explains) + usual[k] * fraction
                k += 1
            if weight > best[group]:
                choice[group], best[group] = number, weight
    return choice, best
