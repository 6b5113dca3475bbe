"""Which GPU rows were issued before the recording began: a host runs ahead, so streams begin with what was left to do.

A stream takes its rows in order. So those in front of its first row whose launch call, or operator, was recorded were
issued before that, outside the recording.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import Rows


def issued_before(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are of the GPU and were issued before the recording [n]."""
    early = np.zeros(len(rows), np.bool_)
    row = np.flatnonzero(rows.on_gpu & (rows.stream >= 0))
    early[row] = before_first_issued(rows.stream[row], rows.parent[row] >= 0)
    return early


def before_first_issued(stream: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows come on their stream before the first one that is known to have been issued [k].

    Where most of what comes later is not known either, nothing tells which these are: none is.

    Args:
        stream: number of each row's stream; those of one stream in the order of their starts [k].
        known: whether the call or operator that issued it was recorded [k].
    """
    early = np.zeros(len(stream), np.bool_)
    if not len(stream):
        return early
    order = np.argsort(stream, kind="stable")
    low = np.flatnonzero(np.append(True, np.diff(stream[order]) != 0))
    high = np.append(low[1:], len(order))
    place = np.arange(len(order))
    first = np.minimum(np.minimum.reduceat(np.where(known[order], place, len(order)), low), high)
    tells = 2 * np.add.reduceat(known[order], low, dtype=np.int64) > high - first
    early[order] = place < np.repeat(np.where(tells, first, low), high - low)
    return early
