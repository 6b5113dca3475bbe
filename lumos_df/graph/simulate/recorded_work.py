"""The loop that says what ran in some time of the host."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NONE


@kernel
def parts(order, at, place, length, ts, end, parent, works, frame, last):
    """Cut some host time by what ran in it.

    A time goes by the shortest row that ran for half of it and lasts as long as all of it. Where that is only a frame
    around another row that ran for half, the time is cut at that one; where there is none, at all outermost rows.

    Args:
        order: int64 [h] rows of the host, thread by thread, by time.
        at: int64 [4, k] begin and end of the time's first stretch and of its second, ns.
        place: int64 [4, k] place in `order` of the last row that had begun by then on that thread.
        length: int64 [k] ns: both stretches, and what lies between them.
        ts, end: int64 [n] ns.
        parent: int32 [n] row around it, or NONE.
        works: bool [n] rows of which a time may consist.
        frame: bool [n] those of them that are frames.
        last: int32 [k] what comes after the time, or NONE.

    Returns:
        column: int64 [p] which of the k each part is of, ascending.
        dur: int64 [p] ns.
        row: int32 [p] the row that runs; in a silence the one that ends it, the outermost first, or `last`.
        silent: bool [p] whether none runs.
    """
    part_lists = ([np.int64(0)], [np.int64(0)], [np.int32(0)], [False])
    for k in range(at.shape[1]):
        around, inside, first = _shortest(k, order, at, place, length, ts, end, parent, works)
        if around < 0:
            _outermost(k, order, at, place, length, ts, end, parent, works, last[k], part_lists)
        elif frame[around] and inside != around:
            begin, stop = max(ts[inside], at[first, k]), min(end[inside], at[first + 1, k])
            before = begin - at[0, k] if first == 0 else length[k] - (at[3, k] - begin)
            _note(k, before, around, False, part_lists)
            _note(k, stop - begin, inside, False, part_lists)
            _note(k, length[k] - before - (stop - begin), around, False, part_lists)
        else:
            _note(k, length[k], around, False, part_lists)
    column, dur, row, silent = part_lists
    return np.array(column[1:]), np.array(dur[1:]), np.array(row[1:], np.int32), np.array(silent[1:], np.bool_)


@kernel
def most_of(order, at, place, length, ts, end, parent, works):
    """Return the shortest row that ran for half of each time, or NONE; int32 [k], arguments as those of `parts`."""
    row = np.empty(at.shape[1], np.int32)
    for k in range(at.shape[1]):
        row[k] = _shortest(k, order, at, place, length, ts, end, parent, works)[1]
    return row


@kernel
def _shortest(k, order, at, place, length, ts, end, parent, works):
    """Return the shortest row that ran for half of a time and lasts as long, the shortest that only ran, and where."""
    around, inside, first = NONE, NONE, 0
    for half in (0, 2):
        for i in range(place[half, k], place[half + 1, k] + 1):
            row = order[i]
            while row >= 0:
                lasts = end[row] - ts[row]
                ran = min(end[row], at[half + 1, k]) - max(ts[row], at[half, k])
                if works[row] and 2 * ran >= length[k]:
                    if inside < 0 or lasts < end[inside] - ts[inside]:
                        inside = row
                        first = half
                    if lasts >= length[k] and (around < 0 or lasts < end[around] - ts[around]):
                        around = row
                # Of what began before, the rows around it may run on.
                row = parent[row] if i == place[half, k] else NONE
    return around, inside, first


@kernel
def _outermost(k, order, at, place, length, ts, end, parent, works, last, part_lists):
    """Cut a time where rows begin and end that lie in no other one."""
    quiet = np.int64(0)
    for half in (0, 2):
        low, high = at[half, k], at[half + 1, k]
        if half == 2:
            quiet += length[k] - (at[1, k] - at[0, k]) - (high - low)
        if low >= high:
            continue
        first = NONE
        row = order[place[half, k]]
        while row >= 0:
            if works[row] and end[row] > low:
                first = row
            row = parent[row]
        until = low
        for i in range(place[half, k], place[half + 1, k] + 1):
            row = first if i == place[half, k] else order[i]
            if row < 0 or not works[row]:
                continue
            begin, stop = max(ts[row], until), min(end[row], high)
            if stop > begin or begin == high:
                _note(k, quiet + begin - until, row, True, part_lists)
                _note(k, stop - begin, row, False, part_lists)
                quiet = np.int64(0)
                until = max(begin, stop)
        quiet += high - until
    _note(k, quiet, last, True, part_lists)


@kernel
def _note(k, lasts, row, silent, part_lists):
    """Add a part, unless it lasts no time."""
    if lasts > 0:
        part_lists[0].append(np.int64(k))
        part_lists[1].append(np.int64(lasts))
        part_lists[2].append(np.int32(row))
        part_lists[3].append(silent)
