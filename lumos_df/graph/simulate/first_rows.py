"""The loop that finds where something may begin first."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import END_END, START_START


@kernel
def first_rows(order, pointer, edge, dst, binds, lag, marked):
    """Return bool [N]: the marked nodes that need not start later than another one, however long anything takes.

    Args:
        order, pointer, edge, dst, binds, lag: as for `forward.simulate`; a lag may become less, but not negative.
        marked: bool [N].
    """
    starts_later, ends_later = np.zeros((2, len(marked)), np.bool_)
    for k in range(len(order)):
        v = order[k]
        ends_later[v] |= starts_later[v] | marked[v]
        for at in range(pointer[v], pointer[v + 1]):
            e = edge[at]
            if lag[e] < 0:
                continue
            if binds[e] == END_END:
                ends_later[dst[e]] |= ends_later[v]
            elif binds[e] == START_START:
                starts_later[dst[e]] |= starts_later[v] | marked[v]
            else:
                starts_later[dst[e]] |= ends_later[v]
    return marked & ~starts_later
