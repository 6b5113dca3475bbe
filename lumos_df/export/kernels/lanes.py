"""Slices of a lane of a timeline lie in one another or apart: what only overlaps goes to a lane below.

A tree over the lanes below one another says when the innermost slice that is open in each ends: both the soonest of
them, which is over before the next slice begins, and the latest, which may go on around it. So n slices take n log n,
however many overlap.
"""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NULL

_NEVER = -(NULL + 1)
"""Where nothing is open."""


@kernel
def _put(soonest, latest, node, end):
    """Say when what is open at a leaf ends, there and in every node above."""
    soonest[node] = latest[node] = end
    node //= 2
    while node > 0:
        soonest[node] = min(soonest[2 * node], soonest[2 * node + 1])
        latest[node] = max(latest[2 * node], latest[2 * node + 1])
        node //= 2


@kernel
def depths(lane, ts, end, lanes):
    """Return how many lanes below its own each slice is drawn: in the first where all that is open goes on around it.

    Args:
        lane: int64 [n] from 0; the slices of a lane come by ts, then the longest first.
        ts, end: int64 [n] ns.
        lanes: number of lanes.

    Returns:
        int64 [n], 0 for the lane itself.
    """
    first = np.zeros(lanes + 1, np.int64)
    for k in range(len(lane)):
        first[lane[k] + 1] += 1
    for one in range(lanes):
        first[one + 1] += first[one]
    slices = np.empty(len(lane), np.int64)  # of each lane, from first[lane] on
    filled = first.copy()
    for k in range(len(lane)):
        slices[filled[lane[k]]] = k
        filled[lane[k]] += 1

    depth = np.zeros(len(lane), np.int64)
    around = np.full(len(lane), -1, np.int64)  # the slice that is open around it in its place
    room = 1
    top = np.empty(room, np.int64)  # the innermost open slice at each depth
    soonest = np.empty(2 * room, np.int64)  # [node]: the root is 1, below it are 2 and 3, the leaves come last
    latest = np.empty(2 * room, np.int64)
    for one in range(lanes):
        size = 1
        top[0] = -1
        soonest[1] = latest[1] = _NEVER
        for place in range(first[one], first[one + 1]):
            k = slices[place]
            while soonest[1] <= ts[k]:
                node = 1
                while node < size:
                    node = 2 * node if soonest[2 * node] <= ts[k] else 2 * node + 1
                below = around[top[node - size]]
                top[node - size] = below
                _put(soonest, latest, node, end[below] if below >= 0 else _NEVER)
            if latest[1] < end[k]:
                size *= 2
                if size > room:
                    room, before = size, top
                    top = np.empty(room, np.int64)
                    soonest = np.empty(2 * room, np.int64)
                    latest = np.empty(2 * room, np.int64)
                    for leaf in range(len(before)):  # by a loop: to assign a block takes numba seconds to compile
                        top[leaf] = before[leaf]
                for leaf in range(size // 2, size):
                    top[leaf] = -1
                for leaf in range(size):
                    soonest[size + leaf] = latest[size + leaf] = end[top[leaf]] if top[leaf] >= 0 else _NEVER
                for node in range(size - 1, 0, -1):
                    soonest[node] = min(soonest[2 * node], soonest[2 * node + 1])
                    latest[node] = max(latest[2 * node], latest[2 * node + 1])
            node = 1
            while node < size:
                node = 2 * node if latest[2 * node] >= end[k] else 2 * node + 1
            around[k] = top[node - size]
            top[node - size] = k
            depth[k] = node - size
            _put(soonest, latest, node, end[k])
    return depth
