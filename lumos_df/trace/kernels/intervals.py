"""Interval algebra: which operator encloses which."""

import numpy as np

from lumos_df.base.jit import kernel


@kernel
def enclosing(ts, dur, track, tracks, tolerance):
    """Return for each row the innermost row of the same track that encloses it, or -1.

    Args:
        ts, dur: int64 [n], ns, ordered by ts, then -dur.
        track: int32 [n] in 0..tracks-1, or -1 for rows that take no part.
        tracks: number of tracks.
        tolerance: ns by which a row may outlast the one around it: clocks cut to microseconds make it so.

    Returns:
        int32 [n]; always less than the row's own number.
    """
    n = len(ts)
    parent = np.full(n, -1, np.int32)
    below = np.full(n, -1, np.int32)  # the row that was on top of the track's stack before this one
    top = np.full(tracks, -1, np.int32)
    for row in range(n):
        t = track[row]
        if t < 0:
            continue
        end = ts[row] + dur[row]
        k = top[t]
        while k >= 0 and ts[k] + dur[k] <= ts[row]:
            if ts[k] == ts[row] and dur[row] == 0:  # both empty, at one point: the earlier row is taken as the outer
                break
            k = below[k]
        below[row] = k
        top[t] = row
        while k >= 0 and ts[k] + dur[k] + tolerance < end:
            k = below[k]
        parent[row] = k
    return parent


@kernel
def time_beneath(ts, dur, parent, counts):
    """Return how long of each row some row directly beneath it ran.

    Args:
        ts, dur: int64 [n], ns, ordered by ts.
        parent: int32 [n], the row around each, -1 for none.
        counts: bool [n], whether a row counts for the one around it.

    Returns:
        int64 [n], ns: rows beneath that overlap count once, and not beyond the end of the row around them.
    """
    n = len(ts)
    inner = np.zeros(n, np.int64)
    until = np.full(n, np.iinfo(np.int64).min)
    for row in range(n):
        k = parent[row]
        if k < 0 or not counts[row]:
            continue
        start = max(ts[row], until[k])
        end = min(ts[row] + dur[row], ts[k] + dur[k])
        if end > start:
            inner[k] += end - start
            until[k] = end
    return inner


@kernel
def order_ties(order, ts, dur):
    """Put rows of equal `ts` in order of falling `dur`, in place; `order` int64 [n] is already ordered by ts.

    A merge sort of our own: numba takes seconds to compile the one of numpy.
    """
    n = len(order)
    merged = np.empty_like(order)
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and ts[order[stop]] == ts[order[start]]:
            stop += 1
        width = 1
        while width < stop - start:
            for low in range(start, stop, 2 * width):
                left, right = low, low + width
                middle, high = min(right, stop), min(right + width, stop)
                for k in range(low, high):
                    if left < middle and (right >= high or dur[order[left]] >= dur[order[right]]):
                        merged[k] = order[left]
                        left += 1
                    else:
                        merged[k] = order[right]
                        right += 1
            for k in range(start, stop):
                order[k] = merged[k]
            width *= 2
        start = stop


@kernel
def lanes(ts, dur):
    """Return for each row the first lane whose rows are over when it starts: on a lane rows do not overlap.

    Args:
        ts, dur: int64 [n], ns, ordered by ts.

    Returns:
        int64 [n] from 0.
    """
    lane = np.zeros(len(ts), np.int64)
    over = np.full(len(ts), np.iinfo(np.int64).min)
    for row in range(len(ts)):
        while over[lane[row]] > ts[row]:
            lane[row] += 1
        over[lane[row]] = ts[row] + dur[row]
    return lane
