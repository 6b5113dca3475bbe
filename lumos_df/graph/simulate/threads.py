"""The loops over the host's threads: grouping, beginnings and ends, moments in a simulation."""

from heapq import heappop, heappush

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME

_LONG = 1 << 60
"""Longer than any gap."""


@kernel
def boundaries(row, bounds, ts, end, kind):
    """Return the beginnings and ends of the rows of threads, by (thread, time).

    At one time: ends first, inner rows before the rows around them; then beginnings, outer rows first.

    Args:
        row: int32 [k] the rows, ordered by (thread, time).
        bounds: int64 [threads + 1] where each thread begins in `row`, and the end.
        ts, end: int64 [n] ns.
        kind: int8 [n].

    Returns:
        at: int64 [2k] ns.
        gap: int64 [2k] ns since the boundary before on the thread; 0 inside a runtime call.
        next_start: int32 [2k] row that begins on the thread at or next after each boundary, NONE after the last.
        in_operator: bool [2k] whether the time since the boundary before was all one CPU operator's.
    """
    count = len(row)
    at = np.empty(2 * count, np.int64)
    gap = np.empty(2 * count, np.int64)
    next_start = np.empty(2 * count, np.int32)
    in_operator = np.zeros(2 * count, np.bool_)
    for t in range(len(bounds) - 1):
        low, high = bounds[t], bounds[t + 1]
        own = slice(2 * low, 2 * high)
        _boundaries_of_thread(row[low:high], ts, end, kind, at[own], gap[own], next_start[own], in_operator[own])
    return at, gap, next_start, in_operator


@kernel
def _boundaries_of_thread(row, ts, end, kind, at, gap, next_start, in_operator):
    """Write the boundaries of the rows of one thread."""
    count = len(row)
    # Rows that run: (end, -row), the first to end in front.
    running = [(np.int64(0), np.int64(0))]
    running.pop()
    filled = 0
    last = np.int64(0)
    begun = NONE  # the row whose beginning was the boundary before
    k = 0
    while filled < 2 * count:
        following = row[k] if k < count else NONE
        upto = k
        while upto < count and ts[row[upto]] == ts[following]:
            if end[row[upto]] <= ts[following]:
                heappush(running, (end[row[upto]], -np.int64(row[upto])))
            upto += 1
        while len(running) > 0 and (k == count or running[0][0] <= ts[following]):
            moment, minus_row = heappop(running)
            at[filled] = moment
            gap[filled] = moment - last if filled > 0 else _LONG
            if begun == -minus_row:
                in_operator[filled] = kind[begun] == CPU_OP
                if kind[begun] == RUNTIME:
                    gap[filled] = 0
            next_start[filled] = following
            last = moment
            begun = NONE
            filled += 1
        while k < upto:
            begun = row[k]
            at[filled] = ts[begun]
            gap[filled] = ts[begun] - last if filled > 0 else _LONG
            next_start[filled] = begun
            last = ts[begun]
            if end[begun] > ts[begun]:
                heappush(running, (end[begun], -np.int64(begun)))
            filled += 1
            k += 1


@kernel
def passed(at, earliest, thread, stop, until, stopped):
    """Return which other thread had stopped last at each moment, and may have passed the baton then.

    Takes time in proportion to moments and stops: a stop that is over is looked at no more, and of the thread that asks
    itself there is never more than one that is not.

    Args:
        at: int64 [w] moments at which a thread goes on, ns, ordered.
        earliest: int64 [w] the other thread stopped no earlier, ns.
        thread: int32 [w] the thread that goes on.
        stop: int64 [s] when threads stop, ns, ordered; of one time the last comes first.
        until: int64 [s] moment up to which the stop may explain that a thread goes on, ns; before the next stop of its
            thread.
        stopped: int32 [s] the thread that stops.

    Returns:
        signal: int64 [w] when it stopped, ns; UNSET where there is none.
        source: int32 [w] that thread, or NONE.
    """
    signal = np.full(len(at), UNSET, np.int64)
    source = np.full(len(at), NONE, np.int32)
    below = np.empty(len(stop), np.int32)
    top = np.int32(NONE)
    k = 0
    for i in range(len(at)):
        while k < len(stop) and stop[k] <= at[i]:
            below[k] = top
            top = np.int32(k)
            k += 1
        above, place = np.int32(NONE), top
        while place >= 0 and (until[place] < at[i] or stopped[place] == thread[i]):
            if until[place] >= at[i]:
                above = place
            elif above >= 0:
                below[above] = below[place]
            else:
                top = below[place]
            place = below[place]
        if place >= 0 and stop[place] >= earliest[i]:
            signal[i] = stop[place]
            source[i] = stopped[place]
    return signal, source


@kernel
def reached(thread, moment, bounds, at):
    """Return int64 [k]: the place behind the last of each thread's times that is at or before a moment.

    Args:
        thread: int32 [k].
        moment: int64 [k] ns.
        bounds: int32 [threads + 1]; the times of thread t are `at[bounds[t]:bounds[t + 1]]`.
        at: int64 ns, ordered on each thread.
    """
    place = np.empty(len(thread), np.int64)
    for i in range(len(thread)):
        low, high = bounds[thread[i]], bounds[thread[i] + 1]
        place[i] = low + np.searchsorted(at[low:high], moment[i], side="right")
    return place


@kernel
def moments(at, thread, atoms, bounds, row, ts, dur, start, end, idle):
    """Return int64 [k]: when moments of the host come in a simulation, ns; UNSET on threads without atoms.

    Between two atoms time runs evenly.

    Args:
        at: int64 [k] moments as recorded; fastest where they are nearly in order.
        thread: int32 [k] thread of each moment, or NONE.
        atoms, bounds: atoms by thread: those of thread t are `atoms[bounds[t]:bounds[t + 1]]`.
        row, ts, dur: [atoms] their rows and times, ns.
        start, end: int64 [n] the rows as simulated.
        idle: int64 [n] ns of the gap before an atom in which its thread waited for another one.
    """
    placed = np.full(len(at), UNSET, np.int64)
    reached = bounds[:-1].copy()
    for i in range(len(at)):
        t = thread[i]
        if t < 0 or bounds[t] == bounds[t + 1]:
            continue
        moment = at[i]
        k = _last_before(moment, atoms, ts, bounds[t], bounds[t + 1], reached[t])
        if k < bounds[t]:
            first = atoms[bounds[t]]
            placed[i] = start[row[first]] - (ts[first] - moment)
            continue
        reached[t] = k
        a = atoms[k]
        begin, over = start[row[a]], end[row[a]]
        since = moment - ts[a] - dur[a]
        if since < 0:
            placed[i] = min(begin + moment - ts[a], over)
            continue
        if k + 1 == bounds[t + 1]:
            placed[i] = over + since
            continue
        b = atoms[k + 1]
        waited = idle[row[b]]
        if waited == 0:
            # As integers but for the small product: a double does not hold ns since 1970.
            share = since / max(ts[b] - ts[a] - dur[a], 1)
            placed[i] = over + np.int64(np.rint(share * (start[row[b]] - over)))
        else:
            # Only the wait stretches: work before it follows this atom, the rest goes before the next one.
            work = ts[b] - ts[a] - dur[a] - waited
            placed[i] = over + min(since, work)
            if since > work:
                placed[i] = max(start[row[b]] - (ts[b] - moment), placed[i])
    return placed


@kernel
def _last_before(moment, atoms, ts, first, stop, near):
    """Return the last place in [first, stop) whose atom begins at or before `moment`, or first - 1; sought from `near`.

    In steps that double: moments are nearly in order, and a search among all would miss the cache.
    """
    step = 1
    if ts[atoms[near]] <= moment:
        low = near
        while low + step < stop and ts[atoms[low + step]] <= moment:
            low += step
            step *= 2
        high = min(low + step, stop)
    else:
        high = near
        while high - step >= first and ts[atoms[high - step]] > moment:
            high -= step
            step *= 2
        low = max(high - step, first - 1)
    while high - low > 1:
        middle = (low + high) // 2
        if ts[atoms[middle]] <= moment:
            low = middle
        else:
            high = middle
    return low


@kernel
def settle(nodes, thread, dur, own, node_start, node_end, start, end):
    """Put the nodes of a graph where the simulation has them; no row ends before it starts.

    Args:
        nodes: int32 [k].
        thread: int32 [n], NONE on the GPU's rows.
        dur, own: int64 [n] ns as recorded, and as a node by itself: nothing where only the row's beginning is one.
        node_start, node_end: int64 [n] the nodes as simulated.
        start, end: int64 [n] every row as placed between its thread's atoms; written to.
    """
    for k in range(len(nodes)):
        v = nodes[k]
        start[v] = node_start[v]
        if thread[v] < 0 or dur[v] == own[v] or own[v] > 0:
            end[v] = node_end[v]
    for v in range(len(start)):
        end[v] = max(end[v], start[v])
