"""The loops of the graph: an order in which edges go forward, simulation, unions of intervals."""

import numpy as np

from lumos_df.base.jit import inlined_kernel, kernel
from lumos_df.schema.codes import END_END, END_START, NONE, START_START

UNSET = -(1 << 62)
"""A moment that is not known, ns."""
CAME_LAST = -2
"""Causes from here down name a member of a collective: `CAME_LAST - v` that node v was the last to start."""


@kernel
def forward_star(src, nodes):
    """Return pointer int32 [nodes + 1] and edge int32 [m]: node v's edges are edge[pointer[v]:pointer[v + 1]]."""
    # One place on: while the edges are filled in, pointer[v + 1] moves from where v begins to where it ends.
    pointer = np.zeros(nodes + 2, np.int32)
    for e in range(len(src)):
        pointer[src[e] + 2] += 1
    for v in range(nodes):
        pointer[v + 2] += pointer[v + 1]
    edge = np.empty(len(src), np.int32)
    for e in range(len(src)):
        v = src[e]
        edge[pointer[v + 1]] = e
        pointer[v + 1] += 1
    return pointer[: nodes + 1], edge


@kernel
def topological(nodes, pointer, edge, dst, size, instance, members):
    """Return int32 [N]: the nodes in an order in which the edges go forward.

    What follows a member of a collective comes after all its members. Where that goes round in a circle, the earliest
    node of `nodes` that is left goes next, whatever it still waits for.

    Args:
        nodes: int32 [N], by recorded time.
        pointer, edge: the edges by source, as `forward_star` returns them; from and to nodes only.
        dst: int32 [m].
        size: number of rows that nodes are numbered by.
        instance: int32 [size] collective of which a row is a member, or NONE.
        members: int32 [collectives].
    """
    waits = np.zeros(size, np.int32)
    for e in range(len(dst)):
        waits[dst[e]] += 1
    order = np.empty(len(nodes), np.int32)
    placed = np.zeros(size, np.bool_)
    missing = members.copy()
    first_member = np.full(len(members), NONE, np.int32)
    next_member = np.full(size if len(members) else 0, NONE, np.int32)
    filled = 0
    for k in range(len(nodes)):
        v = nodes[k]
        if waits[v] == 0:
            placed[v] = True
            order[filled] = v
            filled += 1
    head = 0
    earliest = 0
    while head < len(nodes):
        if head == filled:
            while placed[nodes[earliest]]:
                earliest += 1
            v = nodes[earliest]
            placed[v] = True
            order[filled] = v
            filled += 1
        v = order[head]
        head += 1
        i = instance[v]
        w = v
        if i >= 0:
            next_member[v] = first_member[i]
            first_member[i] = v
            missing[i] -= 1
            if missing[i] > 0:
                continue
        while w >= 0:
            for at in range(pointer[w], pointer[w + 1]):
                t = dst[edge[at]]
                waits[t] -= 1
                if waits[t] == 0 and not placed[t]:
                    placed[t] = True
                    order[filled] = t
                    filled += 1
            w = next_member[w] if i >= 0 else NONE
    return order


@kernel
def goes_forward(src, dst, order, size):
    """Return bool [m]: which edges go forward in an order of the nodes; those to no node do not."""
    place = np.full(size, len(order), np.int32)
    for k in range(len(order)):
        place[order[k]] = k
    goes = np.empty(len(src), np.bool_)
    for e in range(len(src)):
        goes[e] = dst[e] >= 0 and place[src[e]] < place[dst[e]]
    return goes


@kernel
def release(src, dst, binds, lag, start, end, ready):
    """Raise to when edges let rows start, had their sources run as recorded.

    Args:
        src, dst, binds, lag: [m] edges to starts; their binds are END_START or START_START.
        start, end: int64 [n] ns, as recorded.
        ready: int64 [n] ns; written to.
    """
    for e in range(len(src)):
        moment = (start[src[e]] if binds[e] == START_START else end[src[e]]) + lag[e]
        ready[dst[e]] = max(ready[dst[e]], moment)


@kernel
def simulate(order, pointer, edge, dst, binds, lag, own, floor, instance, arrivals, transfer):
    """Run the graph once, in an order in which every edge goes forward.

    Args:
        order: int32 [N]: the nodes in the order in which they run.
        pointer, edge: the edges by source, as `forward_star` returns them.
        dst, binds, lag: int32, int8, int64 [m]: target, which points it ties, ns.
        own: int64 [N] ns that a node lasts by itself.
        floor: int64 [N] earliest start, ns, or UNSET.
        instance: int32 [N] collective of which the node is a member, or NONE.
        arrivals: int32 [I] members of each collective.
        transfer: int64 [I] ns from the last member's start to every member's end.

    Returns:
        start, end: int64 [N] ns.
        start_cause, end_cause: int32 [N] the edge that bound, NONE for none (the floor; the node's own duration), or
        CAME_LAST - v where node v was the last member of its collective to start. Of several at one moment it is the
        one of the lowest number, whatever the order.
    """
    n = len(own)
    start = floor.copy()
    end = np.full(n, UNSET, np.int64)
    start_cause = np.full(n, NONE, np.int32)
    end_cause = np.full(n, NONE, np.int32)
    missing = arrivals.copy()
    last = np.full(len(arrivals), NONE, np.int32)
    first_member = np.full(len(arrivals), NONE, np.int32)
    next_member = np.full(n if len(arrivals) else 0, NONE, np.int32)
    left = np.zeros(n, np.bool_)
    for k in range(len(order)):
        v = order[k]
        if start[v] == UNSET:
            start[v] = 0
        i = instance[v]
        if i < 0:
            done = start[v] + own[v]
            if done >= end[v]:
                end[v] = done
                end_cause[v] = NONE
            _leave(v, pointer, edge, dst, binds, lag, start, end, start_cause, end_cause, left)
            continue
        next_member[v] = first_member[i]
        first_member[i] = v
        if last[i] < 0 or start[v] > start[last[i]] or (start[v] == start[last[i]] and v < last[i]):
            last[i] = v
        missing[i] -= 1
        if missing[i] == 0:
            done = start[last[i]] + transfer[i]
            w = first_member[i]
            while w >= 0:
                end[w] = done
                end_cause[w] = NONE if w == last[i] else CAME_LAST - last[i]
                _leave(w, pointer, edge, dst, binds, lag, start, end, start_cause, end_cause, left)
                w = next_member[w]
    return start, end, start_cause, end_cause


@inlined_kernel
def _leave(v, pointer, edge, dst, binds, lag, start, end, start_cause, end_cause, left):
    """Tell every successor of v how early v lets it be.

    A copying call issues the row that it then waits for: it has told its own successors already and tells them again.
    """
    left[v] = True
    for at in range(pointer[v], pointer[v + 1]):
        e = edge[at]
        w = dst[e]
        if binds[e] == END_END:
            moment = end[v] + lag[e]
            if moment > end[w] or (moment == end[w] and e < end_cause[w]):
                end[w] = moment
                end_cause[w] = e
                if left[w]:
                    for again in range(pointer[w], pointer[w + 1]):
                        f = edge[again]
                        if binds[f] == END_START:
                            _start_no_earlier(dst[f], moment + lag[f], f, start, start_cause)
        else:
            _start_no_earlier(w, (start[v] if binds[e] == START_START else end[v]) + lag[e], e, start, start_cause)


@inlined_kernel
def _start_no_earlier(v, moment, e, start, start_cause):
    if moment > start[v] or (moment == start[v] and e < start_cause[v]):
        start[v] = moment
        start_cause[v] = e


@kernel
def shifted(moments, by):
    """Return the moments, int64 [n] ns, so much later; UNSET stays."""
    moved = np.empty_like(moments)
    for k in range(len(moments)):
        moved[k] = UNSET if moments[k] == UNSET else moments[k] + by
    return moved


@kernel
def share(start, end, low, high):
    """Return int64 [windows]: ns of each window that at least one interval covers.

    Args:
        start, end: int64 [k] intervals, ordered by start.
        low, high: int64 [windows], ordered, one after another.
    """
    covered = np.zeros(len(low), np.int64)
    reach = np.int64(UNSET)
    first = 0
    for k in range(len(start)):
        a = max(start[k], reach)
        b = end[k]
        if b <= a:
            continue
        reach = b
        while first < len(low) and high[first] <= a:
            first += 1
        w = first
        while w < len(low) and low[w] < b:
            covered[w] += max(0, min(b, high[w]) - max(a, low[w]))
            w += 1
    return covered


@kernel
def inherited(marked, parent):
    """Return bool [n]: rows that are marked or lie below a marked row; a host row's parent has a lower number."""
    inside = marked.copy()
    for row in range(len(marked)):
        p = parent[row]
        if p >= 0 and p < row and inside[p]:
            inside[row] = True
    # Rows of the GPU may be numbered before the call that launched them, where clocks disagree.
    for row in range(len(marked)):
        p = parent[row]
        if p > row and inside[p]:
            inside[row] = True
    return inside


@kernel
def around(marked, parent):
    """Return bool [n]: rows that lie around a marked row; marked ones only where another one lies below them."""
    outside = np.zeros(len(marked), np.bool_)
    for row in range(len(marked)):
        p = parent[row] if marked[row] else NONE
        while p >= 0 and not outside[p]:
            outside[p] = True
            p = parent[p]
    return outside
