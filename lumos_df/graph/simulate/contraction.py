"""The loop that leaves of a graph only some of its nodes, and how long it takes from one of them to another."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import END_END, END_START, NONE, START_START

SOURCES = 4
"""Moments that one moment is remembered to follow from. Where it is more, a node of its own stands for them."""


@kernel
def contract(order, pointer, edge, dst, binds, lag, own, floor, kept, sink, nodes, sinks):
    """Return a graph of which a simulation gives the nodes that are kept the times that they have in this one.

    Every moment, the start or the end of a node, is the latest of a moment that is known and of some starts and ends of
    nodes that are kept, each plus a time. These are handed on from node to node, as `simulate` hands on moments.

    Args:
        order, pointer, edge, dst, binds, lag, own, floor: as for `simulate`; no edge binds the end of a kept node.
        kept: int32 [N] number that a node has in the new graph, or NONE.
        sink: int32 [N] sink that a node ends no later than, or NONE.
        nodes: nodes that are kept.
        sinks: how many sinks there are.

    Returns:
        src, dst, binds, lag: int32, int32, int8, int64 [m] the new edges.
        order: int32 [M] its nodes as they run: the kept ones, those that stand for several moments, from
            number M - sinks on the sinks, each of which starts when the last of its nodes ends.
        floor: int64 [M] earliest start, ns, or UNSET.
        of_node: int32 [M] the node of the old graph that each is, or was made for; NONE for sinks.
    """
    n = len(own)
    points = 2 * n + sinks
    # By moment: starts at 2v, ends at 2v + 1, then the sinks. A source is a moment of the new graph, in the same way.
    source = np.full((points, SOURCES), NONE, np.int32)
    after = np.zeros((points, SOURCES), np.int64)
    known = np.full(points, UNSET, np.int64)
    for v in range(n):
        known[2 * v] = floor[v]
    new_src, new_dst, new_lag = [np.int64(0)], [np.int64(0)], [np.int64(0)]
    new_order, new_of = [np.int64(0)], [np.int64(0)]
    new_floor = np.full(nodes, UNSET, np.int64)
    left = np.zeros(n, np.bool_)
    count = np.int64(nodes)
    new = (source, after, known, new_src, new_dst, new_lag, new_order, new_of)
    for k in range(len(order)):
        v = order[k]
        if known[2 * v] == UNSET and source[2 * v, 0] == NONE:
            known[2 * v] = 0
        node = kept[v]
        if node >= 0:
            for s in range(SOURCES):
                if source[2 * v, s] >= 0:
                    new_src.append(np.int64(source[2 * v, s]))
                    new_dst.append(np.int64(node))
                    new_lag.append(after[2 * v, s])
            new_floor[node] = known[2 * v]
            new_order.append(np.int64(node))
            new_of.append(np.int64(v))
            for point in range(2):
                source[2 * v + point] = NONE
                source[2 * v + point, 0] = 2 * node + point
                after[2 * v + point, 0] = 0
                known[2 * v + point] = UNSET
        else:
            count = _hand_on(2 * v, 2 * v + 1, own[v], v, new, count)
        left[v] = True
        for at in range(pointer[v], pointer[v + 1]):
            e = edge[at]
            w = dst[e]
            if binds[e] == END_END:
                count = _hand_on(2 * v + 1, 2 * w + 1, lag[e], w, new, count)
                if left[w]:
                    for again in range(pointer[w], pointer[w + 1]):
                        f = edge[again]
                        if binds[f] == END_START and not left[dst[f]]:
                            count = _hand_on(2 * v + 1, 2 * dst[f], lag[e] + lag[f], dst[f], new, count)
            elif not left[w]:
                point = 2 * v if binds[e] == START_START else 2 * v + 1
                count = _hand_on(point, 2 * w, lag[e], w, new, count)
    for k in range(len(order)):
        v = order[k]
        if sink[v] >= 0:
            count = _hand_on(2 * v + 1, 2 * n + sink[v], np.int64(0), v, new, count)
    floors = np.full(count + sinks, UNSET, np.int64)
    floors[:nodes] = new_floor
    for k in range(sinks):
        floors[count + k] = known[2 * n + k]
        new_order.append(count + k)
        new_of.append(np.int64(NONE))
        for s in range(SOURCES):
            if source[2 * n + k, s] >= 0:
                new_src.append(np.int64(source[2 * n + k, s]))
                new_dst.append(count + k)
                new_lag.append(after[2 * n + k, s])
    src_point = np.array(new_src[1:], np.int32)
    new_binds = np.empty(len(src_point), np.int8)
    for e in range(len(src_point)):
        new_binds[e] = END_START if src_point[e] % 2 else START_START
    nodes_order = np.array(new_order[1:], np.int32)
    of_node = np.full(count + sinks, NONE, np.int32)
    for k in range(len(nodes_order)):
        of_node[nodes_order[k]] = new_of[k + 1]
    return (
        (src_point // 2).astype(np.int32),
        np.array(new_dst[1:], np.int32),
        new_binds,
        np.array(new_lag[1:], np.int64),
        nodes_order,
        floors,
        of_node,
    )


@kernel
def _hand_on(point, to, by, node, new, count):
    """Let a moment follow what another one follows, so much later; return how many nodes the new graph has then."""
    source, after, known, new_src, new_dst, new_lag, new_order, new_of = new
    if known[point] != UNSET:
        known[to] = max(known[to], known[point] + by)
    for s in range(SOURCES):
        moment = source[point, s]
        if moment < 0:
            break
        place = 0
        while place < SOURCES and source[to, place] >= 0 and source[to, place] != moment:
            place += 1
        if place == SOURCES:
            for full in range(SOURCES):
                new_src.append(np.int64(source[to, full]))
                new_dst.append(count)
                new_lag.append(after[to, full])
                source[to, full] = NONE
            new_order.append(count)
            new_of.append(np.int64(node))
            source[to, 0] = 2 * count + 1
            after[to, 0] = 0
            count += 1
            place = 1
        if source[to, place] < 0:
            source[to, place] = moment
            after[to, place] = after[point, s] + by
        else:
            after[to, place] = max(after[to, place], after[point, s] + by)
    return count
