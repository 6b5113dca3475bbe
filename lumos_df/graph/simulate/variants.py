"""The loop that simulates a job with several changes at once, each by itself: the graph is walked once for all."""

import numpy as np

from lumos_df.base.jit import inlined_kernel, kernel
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import END_START, NONE, START_START

CHANGES = 4
"""Changes that are simulated at once."""
FACTORS = 2
"""Times that each of them gives: a variant each."""
VARIANTS = CHANGES * FACTORS
"""All at once. Their moments of one node fill a line of the cache."""


@kernel
def simulate_variants(
    pointer,
    dst,
    binds,
    lag,
    own,
    floor,
    instance,
    arrivals,
    transfer,
    raised,
    kept,
    extent,
    extents,
    item,
    change,
    times,
    first_time,
    start,
    end,
):
    """Run the graph once for every variant, as `forward.simulate` does for one.

    Args:
        pointer, dst, binds, lag: the edges by source: those of node v are `pointer[v]:pointer[v + 1]`.
        own, floor, instance: [n] the nodes, numbered in the order in which they run.
        arrivals, transfer: [I] the collectives.
        raised: bool [n] nodes to whose end an edge leads.
        kept: bool [n] nodes whose end is wanted.
        extent: int32 [n] the group of nodes whose first start and last end are wanted, or NONE; none is raised.
        extents: how many such groups there are.
        item: int32 [c] what lasts another time: node v, edge n + e or collective n + m + i.
        change: int8 [c] in which of the changes.
        times: int64 [c, FACTORS] what it lasts then, ns.
        first_time: int32 [n + m + I] all NONE; they are so again at the end.
        start, end: int64 [n, VARIANTS] written to: when all nodes start, and those kept end, ns.

    Returns:
        first, last: int64 [extents, VARIANTS] ns.
    """
    n, m = len(own), len(dst)
    next_time = np.empty(len(item), np.int32)
    for c in range(len(item)):
        next_time[c] = first_time[item[c]]
        first_time[item[c]] = c
    for v in range(n):
        for k in range(VARIANTS):
            start[v, k] = floor[v]
        if raised[v]:
            for k in range(VARIANTS):
                end[v, k] = UNSET
    first = np.full((extents, VARIANTS), -UNSET, np.int64)
    last = np.full((extents, VARIANTS), UNSET, np.int64)
    missing = arrivals.copy()
    came = np.full((len(arrivals), VARIANTS), UNSET, np.int64)
    first_member = np.full(len(arrivals), NONE, np.int32)
    next_member = np.full(n if len(arrivals) else 0, NONE, np.int32)
    left = np.zeros(n, np.bool_)
    took = np.empty(VARIANTS, np.int64)
    done = np.empty(VARIANTS, np.int64)
    for v in range(n):
        if start[v, 0] == UNSET:
            for k in range(VARIANTS):
                start[v, k] = 0
        i = instance[v]
        if i < 0:
            _times(own[v], v, first_time, next_time, change, times, took)
            for k in range(VARIANTS):
                done[k] = start[v, k] + took[k]
            if raised[v]:
                for k in range(VARIANTS):
                    done[k] = max(done[k], end[v, k])
        else:
            next_member[v] = first_member[i]
            first_member[i] = v
            for k in range(VARIANTS):
                came[i, k] = max(came[i, k], start[v, k])
            missing[i] -= 1
            if missing[i] > 0:
                continue
            _times(transfer[i], n + m + i, first_time, next_time, change, times, took)
            for k in range(VARIANTS):
                done[k] = came[i, k] + took[k]
        w = v
        while w >= 0:
            left[w] = True
            if kept[w] or raised[w]:
                for k in range(VARIANTS):
                    end[w, k] = done[k]
            if extent[w] >= 0:
                for k in range(VARIANTS):
                    first[extent[w], k] = min(first[extent[w], k], start[w, k])
                    last[extent[w], k] = max(last[extent[w], k], done[k])
            for e in range(pointer[w], pointer[w + 1]):
                _times(lag[e], n + e, first_time, next_time, change, times, took)
                t = dst[e]
                if binds[e] == END_START:
                    for k in range(VARIANTS):
                        start[t, k] = max(start[t, k], done[k] + took[k])
                elif binds[e] == START_START:
                    for k in range(VARIANTS):
                        start[t, k] = max(start[t, k], start[w, k] + took[k])
                else:
                    for k in range(VARIANTS):
                        end[t, k] = max(end[t, k], done[k] + took[k])
                    if left[t]:
                        # A copying call waits for the row that it issued: it tells its successors again.
                        for f in range(pointer[t], pointer[t + 1]):
                            if binds[f] == END_START:
                                _times(lag[f], n + f, first_time, next_time, change, times, took)
                                for k in range(VARIANTS):
                                    start[dst[f], k] = max(start[dst[f], k], end[t, k] + took[k])
            w = next_member[w] if i >= 0 else NONE
    for c in range(len(item)):
        first_time[item[c]] = NONE
    return first, last


@inlined_kernel
def _times(unchanged, item, first_time, next_time, change, times, took):
    """Write what an item lasts in every variant, ns."""
    for k in range(VARIANTS):
        took[k] = unchanged
    c = first_time[item]
    while c >= 0:
        for k in range(FACTORS):
            took[FACTORS * change[c] + k] = times[c, k]
        c = next_time[c]
