"""Loops that give rows what is known of other rows: of those that they lead to, of those around them."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NONE

UNKNOWN, MIXED = -2, -3
"""Of a value that is spread over rows: nothing says it; what it stands for has more than one."""


@kernel
def spread(value, parent, thread, launches):
    """Give host rows the value of the GPU rows that they lead to, and GPU rows without one that of their call.

    A row has its kernels' common value, MIXED where they differ. One without kernels has its parent's, and where that
    is MIXED or unknown the value of the next launch on its thread: what leads to nothing leads to what comes next.

    Args:
        value: of GPU rows, at least -1; UNKNOWN elsewhere; filled in place [n].
        parent: row around or that launched, NONE where none [n].
        thread: host rows: number of the thread; NONE on GPU rows [n].
        launches: host rows that launch something [n].
    """
    count = len(value)
    for i in range(count):
        if thread[i] == NONE and value[i] != UNKNOWN and parent[i] >= 0:
            _combine(value, parent[i], value[i])
    threads = 0
    for i in range(count - 1, -1, -1):
        threads = max(threads, thread[i] + 1)
        if thread[i] >= 0 and value[i] != UNKNOWN and parent[i] >= 0:
            _combine(value, parent[i], value[i])
    ahead = np.full(threads, UNKNOWN, value.dtype)
    following = np.full(count, UNKNOWN, value.dtype)
    for i in range(count - 1, -1, -1):
        if thread[i] >= 0:
            if launches[i] and value[i] != UNKNOWN:
                ahead[thread[i]] = value[i]
            following[i] = ahead[thread[i]]
    for i in range(count):
        if value[i] == UNKNOWN:
            above = value[parent[i]] if parent[i] >= 0 else UNKNOWN
            value[i] = above if above > UNKNOWN else following[i]


@kernel
def _combine(value, row, other):
    if value[row] == UNKNOWN:
        value[row] = other
    elif value[row] != other:
        value[row] = MIXED


@kernel
def fill_launched(value, order, backwards):
    """Give GPU rows without a value, in the order of their launches, that of the one before (else after) them."""
    last = UNKNOWN
    for k in range(len(order)):
        i = order[k]
        if value[i] == UNKNOWN:
            if not backwards[i]:
                value[i] = last
        else:
            last = value[i]
    last = UNKNOWN
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        if value[i] == UNKNOWN:
            value[i] = last
        else:
            last = value[i]


@kernel
def inherit(value, parent, thread):
    """Return for every row its own value, else that of the nearest row above it; NONE where none has any.

    Args:
        value: at least 0, or NONE [n].
        parent: row around or that launched, NONE where none [n].
        thread: host rows: number of the thread; NONE on GPU rows, whose parent may come after them [n].
    """
    inherited = value.copy()
    for on_host in (True, False):
        for i in range(len(value)):
            if (thread[i] >= 0) == on_host and inherited[i] == NONE and parent[i] >= 0:
                inherited[i] = inherited[parent[i]]
    return inherited
