"""Slices of a lane of a timeline lie in one another or apart: what only overlaps goes to a lane below."""

import numpy as np

from lumos_df.base.jit import kernel


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
    depth = np.zeros(len(lane), np.int64)
    around = np.full(len(lane), -1, np.int64)  # the slice that is open around it in its place
    room = 4
    top = np.full((lanes, room), -1, np.int64)  # the innermost open slice
    for k in range(len(lane)):
        below = 0
        while True:
            if below == room:
                wider = np.full((lanes, 2 * room), -1, np.int64)
                # By loops: to assign a whole block takes numba four seconds to compile.
                for other in range(lanes):
                    for place in range(room):
                        wider[other, place] = top[other, place]
                top = wider
                room *= 2
            open_ = top[lane[k], below]
            while open_ >= 0 and end[open_] <= ts[k]:
                open_ = around[open_]
            top[lane[k], below] = open_
            if open_ < 0 or end[k] <= end[open_]:
                break
            below += 1
        around[k] = top[lane[k], below]
        top[lane[k], below] = k
        depth[k] = below
    return depth
