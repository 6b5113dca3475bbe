"""The loops over rows that are selected by one of several selectors: which selectors hold where, and for how long."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NONE


@kernel
def outermost(selector, parent):
    """Return by which selectors every row is selected, itself or a row around it, as lists that share their ends.

    Those of row r are the selectors of the rows inner[r], outer[inner[r]] and so on until NONE, each selector once: of
    rows of one selector that lie in one another the outermost stands for all.

    Args:
        selector: int32 [n] what selects the row, or NONE.
        parent: int32 [n] row around it; a host row's has a lower number.

    Returns:
        inner, outer: int32 [n].
    """
    inner = np.full(len(selector), NONE, np.int32)
    outer = np.full(len(selector), NONE, np.int32)
    # Rows of the GPU may be numbered before the call that launched them, where clocks disagree.
    for later in (False, True):
        for row in range(len(selector)):
            if (parent[row] > row) != later:
                continue
            around = inner[parent[row]] if parent[row] >= 0 else NONE
            inner[row] = around
            if selector[row] >= 0:
                same = around
                while same >= 0 and selector[same] != selector[row]:
                    same = outer[same]
                if same < 0:
                    inner[row] = row
                    outer[row] = around
    return inner, outer


@kernel
def selectors_of(rows, selector, inner, outer):
    """Return the selectors of some rows, as `outermost` found them.

    Args:
        rows: int32 [r].
        selector, inner, outer: int32 [n].

    Returns:
        place: int32 [k] which of `rows`, ascending.
        chosen: int32 [k] the selector.
    """
    place, chosen = [np.int32(0)], [np.int32(0)]
    for k in range(len(rows)):
        at = inner[rows[k]]
        while at >= 0:
            place.append(k)
            chosen.append(selector[at])
            at = outer[at]
    return np.array(place[1:], np.int32), np.array(chosen[1:], np.int32)


@kernel
def work(order, at, place, ts, end, selector, inner, outer):
    """Return for how long rows of each selector ran in some stretches of host time.

    Args:
        order: int64 [h] rows of the host, thread by thread, by time.
        at: int64 [2s, k] begin and end of s stretches, ns.
        place: int64 [2s, k] place in `order` of the last row that had begun by then on that thread.
        ts, end: int64 [n] ns.
        selector, inner, outer: int32 [n] as `outermost` found them.

    Returns:
        column: int64 [w] which of the k, ascending.
        chosen: int32 [w] the selector.
        worked: int64 [w] ns in which at least one of its rows ran, the s stretches together.
    """
    columns, chosen, worked = [np.int64(0)], [np.int32(0)], [np.int64(0)]
    selectors = 0
    for row in range(len(selector)):
        selectors = max(selectors, selector[row] + 1)
    total = np.zeros(selectors, np.int64)
    until = np.empty(selectors, np.int64)
    stretch = np.full(selectors, NONE, np.int64)
    seen = np.empty(selectors, np.int32)
    for k in range(at.shape[1]):
        seen_count = 0
        for half in range(0, at.shape[0], 2):
            low, high = at[half, k], at[half + 1, k]
            if low >= high:
                continue
            for i in range(place[half, k], place[half + 1, k] + 1):
                holder = inner[order[i]]
                while holder >= 0:
                    s = selector[holder]
                    if stretch[s] < k * at.shape[0]:
                        seen[seen_count] = s
                        seen_count += 1
                    if stretch[s] != k * at.shape[0] + half:
                        stretch[s] = k * at.shape[0] + half
                        until[s] = low
                    # Of what began before, the row around it may run on.
                    row = holder if i == place[half, k] else order[i]
                    begin, stop = max(ts[row], until[s]), min(end[row], high)
                    if stop > begin:
                        total[s] += stop - begin
                        until[s] = stop
                    holder = outer[holder]
        for j in range(seen_count):
            if total[seen[j]] > 0:
                columns.append(k)
                chosen.append(seen[j])
                worked.append(total[seen[j]])
                total[seen[j]] = 0
    return np.array(columns[1:], np.int64), np.array(chosen[1:], np.int32), np.array(worked[1:], np.int64)
