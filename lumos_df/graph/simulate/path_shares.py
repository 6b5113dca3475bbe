"""The loops that find the path to the end of a step and of what it is: pieces, guesses, what nothing explains.

A path is followed in ways: from the end of a step, or from where the last member of a collective starts, back to where
the last member of another one starts, or to where it meets another way. The ways of a rank are found on it alone.
"""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.graph.simulate.forward import CAME_LAST, UNSET
from lumos_df.schema.codes import (
    END_START,
    GAP_PIECE,
    HANDOFF,
    HOST_PIECE,
    LAUNCH,
    LAUNCH_PIECE,
    NONE,
    STREAM,
    SYNC_EDGE,
    SYNC_PIECE,
    THREAD,
    TRANSFER_PIECE,
    UNKNOWN_PIECE,
)


@kernel
def ways(
    node,
    from_end,
    low,
    high,
    src,
    binds,
    edge_kind,
    unknown,
    recorded,
    on_host,
    piece,
    numbered,
    instance,
    start,
    end,
    start_cause,
    end_cause,
):
    """Walk back from some moments along what was binding, to the start of a member of a collective, or as far as known.

    An inferred edge hands on its lag and, where it waits for the end of a node, what that node took. A way that meets
    one of those before it, at the start of a node, goes on with that one, if that goes back as far as known: along a
    host that nothing holds up each would go back to the beginning of the trace.

    Args:
        node: int [k] where each way begins, NONE for one of which nothing is known.
        from_end: bool [k] whether at the end of that node, else at its start.
        low, high: int64 [k] ns: how far back to go, UNSET for as far as known, and the moment at which it begins; what
            follows the node is host time.
        src, binds, edge_kind: [m] the edges.
        unknown: int64 [N] ns before each node in which nothing tells what it waited for after the one on its stream.
        recorded: bool [m] whether the trace says that the edge is there.
        on_host: bool [N] whether a node is the host's.
        piece: int8 [N] which piece a node is while it lasts.
        numbered: bool [N] whether a member's collective is known by its recorded number.
        instance: int32 [N] collective of which the node is a member, or NONE.
        start, end, start_cause, end_cause: [N] as `simulate` returns them.

    Returns:
        bounds: int64 [k + 1]: way k has the stretches `bounds[k]:bounds[k + 1]`.
        moment: int64 [p] when each stretch begins, ns; it lasts until the one before it begins, the first until `high`.
        host, inferred, kept: bool [p] whether it is host time, whether inferred edges hand it on (it may be both),
            whether it stays as recorded because nothing explains it.
        owner: int32 [p] the node that runs, or waits to begin, or NONE.
        kind: int8 [p] which piece it is.
        stop: int32 [k] the collective whose last member starts where the way stops, or NONE.
        onto: int32 [k] the way that it goes on with, or NONE.
    """
    bounds = np.zeros(len(node) + 1, np.int64)
    stop, onto = np.full(len(node), NONE, np.int32), np.full(len(node), NONE, np.int32)
    # The way that came by the start of each node.
    passed = np.full(len(start), NONE, np.int32)
    # One of each, so that their types are known.
    moments, hosts, guessed, unexplained = [np.int64(0)], [False], [False], [False]
    owners, kinds = [np.int32(0)], [np.int8(0)]
    for k in range(len(node)):
        v = node[k]
        reached = high[k]
        at_end = from_end[k]
        # Whether the trace says that what comes next in the path waited for v.
        known = True
        if v >= 0 and at_end:
            reached = max(min(end[v], reached), low[k])
            moments.append(reached)
            hosts.append(True)
            guessed.append(False)
            unexplained.append(False)
            owners.append(np.int32(v))
            kinds.append(np.int8(HOST_PIECE))
        for _ in range(2 * len(start) + 2):
            if v < 0 or reached <= low[k] or stop[k] >= 0:
                break
            if not at_end and reached == start[v]:
                if passed[v] >= 0:
                    onto[k] = passed[v]
                    break
                if low[k] == UNSET:
                    passed[v] = k
            cause = end_cause[v] if at_end else start_cause[v]
            told = reached
            owner = v
            if cause >= 0:
                # Edges that bind an end wait for one.
                known = recorded[cause]
                kind = edge_kind[cause]
                # What waits for the GPU before it starts is a thread that no call shows to wait: then it works on.
                of_host = kind == THREAD or kind == HANDOFF or (kind == SYNC_EDGE and not at_end)
                if at_end:
                    what = SYNC_PIECE
                elif of_host:
                    what = HOST_PIECE
                else:
                    what = LAUNCH_PIECE if kind == LAUNCH else GAP_PIECE
                if kind == STREAM:
                    told = start[v] - unknown[v]
                v = src[cause]
                at_end = at_end or binds[cause] == END_START
                moment = end[v] if at_end else start[v]
            elif at_end:
                stop[k] = instance[v]
                what = piece[v]
                if cause != NONE:
                    known = known and numbered[v]
                    v = CAME_LAST - cause
                    owner = v
                    what = TRANSFER_PIECE
                of_host = on_host[v]
                moment = start[v]
                at_end = False
            else:
                # It starts as recorded.
                of_host = False
                what = UNKNOWN_PIECE
                moment = low[k]
                told = low[k]
                v = NONE
            moment = max(moment, low[k])
            told = max(told, moment)
            if told < reached:
                moments.append(told)
                hosts.append(False)
                guessed.append(False)
                unexplained.append(True)
                owners.append(np.int32(owner))
                kinds.append(np.int8(UNKNOWN_PIECE))
                reached = told
            if moment < reached:
                moments.append(moment)
                hosts.append(of_host)
                guessed.append(not known)
                unexplained.append(False)
                owners.append(np.int32(owner))
                kinds.append(np.int8(what))
                reached = moment
        if stop[k] < 0 and onto[k] < 0 and reached > low[k]:
            moments.append(low[k])
            hosts.append(False)
            guessed.append(False)
            unexplained.append(True)
            owners.append(np.int32(NONE))
            kinds.append(np.int8(UNKNOWN_PIECE))
        bounds[k + 1] = len(moments) - 1
    host, inferred, kept = np.array(hosts[1:]), np.array(guessed[1:]), np.array(unexplained[1:])
    owner_of, kind_of = np.array(owners[1:]), np.array(kinds[1:])
    return bounds, np.array(moments[1:]), host, inferred, kept, owner_of, kind_of, stop, onto


@kernel
def shares(low, high, of_collective, bounds, moment, host, inferred, kept, stop, onto):
    """Return how much of each step's path is host time, what inferred edges hand on, and what nothing explains.

    Args:
        low, high: int64 [steps] ns: the simulated step.
        of_collective: int64 [c] the way of each collective; the first ways are those of the steps.
        bounds, moment, host, inferred, kept, stop, onto: as `ways` returns them.

    Returns:
        host_time, handed_on, unknown: int64 [steps] ns; what is both of the first counts for both.
    """
    host_time, handed_on, unknown = (
        np.zeros(len(low), np.int64),
        np.zeros(len(low), np.int64),
        np.zeros(len(low), np.int64),
    )
    for k in range(len(low)):
        way = k
        reached = high[k]
        # It comes to the end of each way once at most, and stops there or goes on with another one.
        for _ in range(len(stop)):
            first = _before(bounds[way], bounds[way + 1], moment, reached)
            while first < bounds[way + 1] and reached > low[k]:
                begin = max(moment[first], low[k])
                if host[first]:
                    host_time[k] += reached - begin
                if inferred[first]:
                    handed_on[k] += reached - begin
                if kept[first]:
                    unknown[k] += reached - begin
                reached = begin
                first += 1
            if reached <= low[k]:
                break
            way = _next(way, of_collective, stop, onto)
            if way < 0:
                break
    return host_time, handed_on, unknown


@kernel
def segments(low, high, of_collective, bounds, moment, kind, stop, onto):
    """Say which stretches of ways each step's path consists of.

    Args:
        low, high, of_collective, bounds, moment, kind, stop, onto: as for `shares`, and as `ways` returns them.

    Returns:
        step: int64 [steps + 1]: that of step k has the segments `step[k]:step[k + 1]`, from the last to the first.
        first, after: int64 [s] the stretches of each segment: `first:after`.
        until, since: int64 [s] ns: when its first stretch ends, and when its last one begins.
        collective: int32 [s] the collective of which the segment is the transfer alone, or NONE.
    """
    step = np.zeros(len(low) + 1, np.int64)
    # One of each, so that their types are known.
    firsts, afters, untils, sinces = [np.int64(0)], [np.int64(0)], [np.int64(0)], [np.int64(0)]
    collectives = [np.int32(0)]
    for k in range(len(low)):
        way = k
        reached = high[k]
        for _ in range(len(stop)):
            end = bounds[way + 1]
            first = _before(bounds[way], end, moment, reached)
            # The stretch in which the step begins is the last one.
            after = min(_before(first, end, moment, low[k] + 1) + 1, end)
            # The transfer of a collective is work of its last member, which may be on another rank.
            transfer = first < after and after == end and stop[way] >= 0 and kind[end - 1] == TRANSFER_PIECE
            for part in range(2):
                begin, close = (first, after - transfer) if part == 0 else (after - transfer, after)
                if begin < close and reached > low[k]:
                    firsts.append(begin)
                    afters.append(close)
                    untils.append(reached)
                    reached = max(moment[close - 1], low[k])
                    sinces.append(reached)
                    collectives.append(np.int32(stop[way] if part == 1 else NONE))
            if reached <= low[k]:
                break
            way = _next(way, of_collective, stop, onto)
            if way < 0:
                break
        step[k + 1] = len(firsts) - 1
    return (
        step,
        np.array(firsts[1:]),
        np.array(afters[1:]),
        np.array(untils[1:]),
        np.array(sinces[1:]),
        np.array(collectives[1:]),
    )


@kernel
def _next(way, of_collective, stop, onto):
    """Return the way that a path goes on with behind a way, or NONE."""
    if onto[way] >= 0:
        return np.int64(onto[way])
    return np.int64(of_collective[stop[way]]) if stop[way] >= 0 else np.int64(NONE)


@kernel
def _before(first, after, moment, reached):
    """Return the first of the stretches `first:after` of a way that begins before a moment, or `after`.

    Of a way that is met on its way, what comes before begins later.
    """
    while first < after:
        middle = (first + after) // 2
        if moment[middle] < reached:
            after = middle
        else:
            first = middle + 1
    return first
