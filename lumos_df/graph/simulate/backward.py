"""The loops that go back from the end of a step: what no edge explains, what decides, slack."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.graph.simulate.forward import CAME_LAST, UNSET
from lumos_df.schema.codes import END_END, END_START, NONE, START_START

FAR = 1 << 61
"""A moment that nothing limits, ns."""


@kernel
def recorded_causes(src, dst, binds, lag, own, ts, end, floor):
    """Return what should have bound each node as recorded, and when it would have let it go.

    Args:
        src, dst, binds, lag: [m] the edges, as for `simulate`.
        own, ts, end: int64 [N] ns: what a node lasts by itself, its recorded start and end.
        floor: int64 [N] before when nodes do not start whatever they wait for, ns, or UNSET.

    Returns:
        start_ready, end_ready: int64 [N] ns.
        start_cause, end_cause: int32 [N] as `simulate` returns them.
    """
    n = len(own)
    start_ready = floor.copy()
    end_ready = np.empty(n, np.int64)
    for v in range(n):
        end_ready[v] = ts[v] + own[v]
    start_cause = np.full(n, NONE, np.int32)
    end_cause = np.full(n, NONE, np.int32)
    for e in range(len(src)):
        v, w = src[e], dst[e]
        if binds[e] == END_END:
            moment = end[v] + lag[e]
            if moment > end_ready[w]:
                end_ready[w] = moment
                end_cause[w] = e
        else:
            moment = (ts[v] if binds[e] == START_START else end[v]) + lag[e]
            if moment > start_ready[w]:
                start_ready[w] = moment
                start_cause[w] = e
    return start_ready, end_ready, start_cause, end_cause


@kernel
def unexplained(last, low, src, binds, start_cause, end_cause, ts, end, start_ready, end_ready):
    """Return int64 [steps] ns: what no edge explains on the way back from the end of each step's last node.

    Args:
        last: int32 [steps] the node, or NONE for a step of which nothing is known.
        low: int64 [steps] where the step begins, ns.
        src, binds: [m] the edges.
        start_cause, end_cause, start_ready, end_ready: as `recorded_causes` returns them.
        ts, end: int64 [N] ns, as recorded.
    """
    total = np.zeros(len(last), np.int64)
    for k in range(len(last)):
        total[k] = _unexplained(last[k], low[k], src, binds, start_cause, end_cause, ts, end, start_ready, end_ready)
    return total


@kernel
def _unexplained(at, begin, src, binds, start_cause, end_cause, ts, end, start_ready, end_ready):
    total = 0
    v = at
    at_end = True
    for _ in range(2 * len(ts) + 2):
        if v < 0:
            break
        if at_end:
            low = max(end_ready[v], begin)
            if end[v] > low:
                total += end[v] - low
            if end[v] <= begin:
                break
            e = end_cause[v]
            if e >= 0:
                v = src[e]
            else:
                at_end = False
            continue
        low = max(start_ready[v], begin)
        if ts[v] > low:
            total += ts[v] - low
        e = start_cause[v]
        if ts[v] <= begin or e < 0:
            break
        v = src[e]
        at_end = binds[e] == END_START
    return total


@kernel
def decisive(last, src, binds, instance, collectives, start_cause, end_cause):
    """Return what the moments of some nodes follow from: what else lasts less makes none of them earlier.

    Args:
        last: int [k] the nodes.
        src, binds: [m] the edges.
        instance: int32 [N] collective of which the node is a member, or NONE.
        collectives: how many there are.
        start_cause, end_cause: as `simulate` returns them.

    Returns:
        nodes: bool [N] whether it counts how long the node lasts by itself.
        edges: bool [m] whether its lag counts.
        transfers: bool [collectives] whether the transfer counts.
    """
    nodes = np.zeros(len(instance), np.bool_)
    edges = np.zeros(len(src), np.bool_)
    transfers = np.zeros(collectives, np.bool_)
    # By node, for its start and its end.
    seen = np.zeros((2, len(instance)), np.bool_)
    for k in range(2 * len(last)):
        v, at_end = last[k // 2], k % 2
        while v >= 0 and not seen[at_end, v]:
            seen[at_end, v] = True
            cause = end_cause[v] if at_end else start_cause[v]
            if cause >= 0:
                edges[cause] = True
                v = src[cause]
                at_end = 0 if binds[cause] == START_START else 1
            elif at_end:
                if instance[v] >= 0:
                    transfers[instance[v]] = True
                else:
                    nodes[v] = True
                v = v if cause == NONE else CAME_LAST - cause
                at_end = 0
            else:
                v = NONE
    return nodes, edges, transfers


@kernel
def slack(order, pointer, edge, dst, binds, lag, own, instance, transfer, limit, start):
    """Return by how much nodes may start later, so that none ends after its limit.

    Args:
        order, pointer, edge, dst, binds, lag, own, instance, transfer: as for `simulate`.
        limit: int64 [N] ns by when a node has to end, `FAR` or more where nothing says so.
        start: int64 [N] ns as `simulate` returns it.

    Returns:
        room: int64 [N] ns, UNSET if unbounded.
        decided: int64 [I] ns by when each collective has to end, `FAR` or so if unbounded.
    """
    n = len(own)
    far = np.int64(FAR)
    late_start = np.full(n, far, np.int64)
    late_end = np.full(n, far, np.int64)
    first_member = np.full(len(transfer), NONE, np.int32)
    next_member = np.full(n if len(transfer) else 0, NONE, np.int32)
    decided = np.full(len(transfer), far, np.int64)
    for k in range(len(order)):
        i = instance[order[k]]
        if i >= 0:
            next_member[order[k]] = first_member[i]
            first_member[i] = order[k]
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        i = instance[v]
        if i >= 0 and first_member[i] == v:
            # The last member in the order: what follows any of them has been seen.
            w = v
            while w >= 0:
                decided[i] = min(
                    decided[i], _latest_end(w, pointer, edge, dst, binds, lag, late_start, late_end, limit)
                )
                w = next_member[w]
        allowed = decided[i] if i >= 0 else _latest_end(v, pointer, edge, dst, binds, lag, late_start, late_end, limit)
        late_end[v] = allowed
        late_start[v] = allowed - (transfer[i] if i >= 0 else own[v])
        for at in range(pointer[v], pointer[v + 1]):
            e = edge[at]
            if binds[e] == START_START:
                late_start[v] = min(late_start[v], late_start[dst[e]] - lag[e])
    room = np.full(n, UNSET, np.int64)
    for k in range(len(order)):
        v = order[k]
        if late_start[v] < far // 2:
            room[v] = late_start[v] - start[v]
    return room, decided


@kernel
def _latest_end(v, pointer, edge, dst, binds, lag, late_start, late_end, limit):
    """Return by when v must have ended, from what its successors allow."""
    latest = limit[v]
    for at in range(pointer[v], pointer[v + 1]):
        e = edge[at]
        w = dst[e]
        if binds[e] == END_START:
            latest = min(latest, late_start[w] - lag[e])
        elif binds[e] == END_END:
            allowed = min(late_end[w], limit[w])
            for again in range(pointer[w], pointer[w + 1]):
                f = edge[again]
                if binds[f] == END_START:
                    allowed = min(allowed, late_start[dst[f]] - lag[f])
            latest = min(latest, allowed - lag[e])
    return latest
