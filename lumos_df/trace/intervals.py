"""Interval algebra: which operator encloses which."""

import numpy as np

from lumos_df.jit import kernel


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
def order_ties(order, ts, dur):
    """Put rows of equal `ts` in order of falling `dur`, in place; `order` int64 [n] is already ordered by ts."""
    n = len(order)
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and ts[order[stop]] == ts[order[start]]:
            stop += 1
        if stop - start > 1:
            part = order[start:stop]
            if stop - start < 32:
                for i in range(1, stop - start):
                    row = part[i]
                    j = i
                    while j > 0 and dur[part[j - 1]] < dur[row]:
                        part[j] = part[j - 1]
                        j -= 1
                    part[j] = row
            else:
                order[start:stop] = part[np.argsort(-dur[part], kind="mergesort")]
        start = stop
