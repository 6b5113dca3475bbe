"""The loop over waits that take the rows of a stream one after another."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NONE


@kernel
def oldest_pending(wait, is_open, behind, issued, end, start, resolution):
    """Return int64 [w]: the place on a stream of the oldest row that nothing has waited for, for each open wait; NONE.

    A row that started before that row had ended did not wait for it: the wait leaves it to the next one.

    Args:
        wait: int32 [w] place of each wait in the order of issue; never falls.
        is_open: bool [w] which waits take a row.
        behind: int64 [w] place on the stream behind the row that another wait is known to be for, or 0.
        issued: int32 [r] when each row of the stream was issued, in the same order; never falls.
        end: int64 [r] ns.
        start: int64 [w] when the row that would wait started, ns; less than any end where there is none.
        resolution: ns that the clock may be off.
    """
    place = np.full(len(wait), NONE, np.int64)
    oldest = 0
    for k in range(len(wait)):
        oldest = max(oldest, behind[k])
        pending = is_open[k] and oldest < len(issued) and issued[oldest] < wait[k]
        if pending and start[k] >= end[oldest] - resolution:
            place[k] = oldest
            oldest += 1
    return place
