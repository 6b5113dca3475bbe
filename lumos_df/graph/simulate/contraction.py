"""The loop that leaves of a graph only some of its nodes, and how long it takes from one of them to another."""

import numpy as np

from lumos_df.base.jit import inlined_kernel, kernel, lean_kernel
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import END_END, END_START, NONE, START_START

SOURCES = 4
"""Moments that one moment is remembered to follow from. Where it is more, a node of its own stands for them."""


@kernel
def contract(order, pointer, edge, dst, binds, lag, own, floor, kept, moment, sink, nodes, sinks):
    """Return a graph of which a simulation gives the nodes that are kept the times that they have in this one.

    Every moment, the start or the end of a node, is the latest of a moment that is known and of some starts and ends of
    nodes that are kept, each plus a time. These are handed on from node to node, as `simulate` hands on moments. Which
    these are follows from the edges alone, so several graphs that differ only in times are contracted together.

    Args:
        order, pointer, edge, dst, binds, floor: as for `simulate`; no edge binds the end of a kept node.
        lag, own: int64 [edges, V], [N, V] in each of V graphs, as for `simulate`.
        kept: int32 [N] number that a node has in the new graph, or NONE.
        moment, sink: int64 [k] moments, the start of node v at 2v and its end at 2v + 1, and the sink that starts no
            earlier than each.
        nodes: nodes that are kept.
        sinks: how many sinks there are.

    Returns:
        src, dst, binds: int32, int32, int8 [m] the new edges.
        lag: int64 [m, V]
        order: int32 [M] its nodes as they run: the kept ones, those that stand for several moments, from
            number M - sinks on the sinks, each of which starts at the last of its moments.
        floor: int64 [M, V] earliest start, ns, or UNSET.
        of_node: int32 [M] the node of the old graph that each is, or was made for; NONE for sinks.
    """
    n, graphs = own.shape
    points = 2 * n + sinks
    # By moment: starts at 2v, ends at 2v + 1, then the sinks. A source is a moment of the new graph, in the same way.
    source = np.full((points, SOURCES), NONE, np.int32)
    after = np.zeros((points, SOURCES, graphs), np.int64)
    known = np.full((points, graphs), UNSET, np.int64)
    # Each time at most all sources of one moment come to another; a node that is made takes all but one away.
    times = n + len(dst) + len(moment)
    for e in range(len(dst)):
        if binds[e] == END_END:
            times += pointer[dst[e] + 1] - pointer[dst[e]]
    most = times * SOURCES // (SOURCES - 1)
    new_src, new_dst = np.empty((2, SOURCES * (most + nodes + sinks)), np.int32)
    new_lag = np.empty((len(new_src), graphs), np.int64)
    new_order, new_of = np.empty((2, most + nodes + sinks), np.int32)
    new_floor = np.full((nodes, graphs), UNSET, np.int64)
    none, both = np.zeros((1, graphs), np.int64), np.zeros((1, graphs), np.int64)
    # Edges, places in the order, and nodes so far.
    counts = np.array([0, 0, nodes])
    new = (source, after, known, new_src, new_dst, new_lag, new_order, new_of, counts)
    for v in range(n):
        for g in range(graphs):
            known[2 * v, g] = floor[v]
    left = np.zeros(n, np.bool_)
    for k in range(len(order)):
        v = order[k]
        if known[2 * v, 0] == UNSET and source[2 * v, 0] == NONE:
            for g in range(graphs):
                known[2 * v, g] = 0
        node = kept[v]
        if node >= 0:
            _end_edges(2 * v, node, new)
            _place(node, v, new)
            for g in range(graphs):
                new_floor[node, g] = known[2 * v, g]
            for point in range(2 * v, 2 * v + 2):
                for s in range(SOURCES):
                    source[point, s] = NONE
                source[point, 0] = 2 * node + point - 2 * v
                for g in range(graphs):
                    after[point, 0, g] = 0
                    known[point, g] = UNSET
        else:
            _hand_on(2 * v, 2 * v + 1, own, v, v, new)
        left[v] = True
        for at in range(pointer[v], pointer[v + 1]):
            e = edge[at]
            w = dst[e]
            if binds[e] == END_END:
                _hand_on(2 * v + 1, 2 * w + 1, lag, e, w, new)
                if left[w]:
                    for again in range(pointer[w], pointer[w + 1]):
                        f = edge[again]
                        if binds[f] == END_START and not left[dst[f]]:
                            for g in range(graphs):
                                both[0, g] = lag[e, g] + lag[f, g]
                            _hand_on(2 * v + 1, 2 * dst[f], both, 0, dst[f], new)
            elif not left[w]:
                point = 2 * v if binds[e] == START_START else 2 * v + 1
                _hand_on(point, 2 * w, lag, e, w, new)
    for k in range(len(moment)):
        _hand_on(moment[k], 2 * n + sink[k], none, 0, moment[k] // 2, new)
    count = counts[2]
    floors = np.full((count + sinks, graphs), UNSET, np.int64)
    # By loops: to assign a block takes numba seconds to compile.
    for node in range(nodes):
        for g in range(graphs):
            floors[node, g] = new_floor[node, g]
    for k in range(sinks):
        for g in range(graphs):
            floors[count + k, g] = known[2 * n + k, g]
        _end_edges(2 * n + k, count + k, new)
        _place(count + k, NONE, new)
    edges = counts[0]
    new_binds = np.empty(edges, np.int8)
    for e in range(edges):
        new_binds[e] = END_START if new_src[e] % 2 else START_START
        new_src[e] //= 2
    of_node = np.full(count + sinks, NONE, np.int32)
    for k in range(counts[1]):
        of_node[new_order[k]] = new_of[k]
    return (
        new_src[:edges].copy(),
        new_dst[:edges].copy(),
        new_binds,
        new_lag[:edges].copy(),
        new_order[: counts[1]].copy(),
        floors,
        of_node,
    )


@inlined_kernel
def _end_edges(point, node, new):
    """Let a node of the new graph start no earlier than a moment, which follows from its sources."""
    source, after, _, new_src, new_dst, new_lag, _, _, counts = new
    for s in range(SOURCES):
        if source[point, s] >= 0:
            new_src[counts[0]] = source[point, s]
            new_dst[counts[0]] = node
            for g in range(new_lag.shape[1]):
                new_lag[counts[0], g] = after[point, s, g]
            counts[0] += 1


@inlined_kernel
def _place(node, of, new):
    """Let a node of the new graph run next, and stand for a node of the old one."""
    _, _, _, _, _, _, new_order, new_of, counts = new
    new_order[counts[1]] = node
    new_of[counts[1]] = of
    counts[1] += 1


@lean_kernel
def _hand_on(point, to, by, at, node, new):
    """Let a moment follow what another one follows, later by what `by` has in row `at`."""
    source, after, known, _, _, _, _, _, counts = new
    graphs = by.shape[1]
    if known[point, 0] != UNSET:
        for g in range(graphs):
            known[to, g] = max(known[to, g], known[point, g] + by[at, g])
    for s in range(SOURCES):
        moment = source[point, s]
        if moment < 0:
            break
        place = 0
        while place < SOURCES and source[to, place] >= 0 and source[to, place] != moment:
            place += 1
        if place == SOURCES:
            _end_edges(to, counts[2], new)
            _place(counts[2], node, new)
            for full in range(SOURCES):
                source[to, full] = NONE
            source[to, 0] = 2 * counts[2] + 1
            for g in range(graphs):
                after[to, 0, g] = 0
            counts[2] += 1
            place = 1
        if source[to, place] < 0:
            source[to, place] = moment
            for g in range(graphs):
                after[to, place, g] = after[point, s, g] + by[at, g]
        else:
            for g in range(graphs):
                after[to, place, g] = max(after[to, place, g], after[point, s, g] + by[at, g])
