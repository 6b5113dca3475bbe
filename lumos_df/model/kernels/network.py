"""Time of a collective: the cheapest of NCCL's algorithms and protocols, inside a node and across nodes.

The structure follows NCCL's own tuner (NVIDIA/nccl, src/graph/tuning.cc): a fixed time, a time a step, and the bytes on
the wire over a share of the bandwidth, for each of its protocols; a ring or a tree across nodes; NVLS where the switch
can reduce. The numbers are fitted (`ScaleUpParameters`, `ScaleOutParameters`).

Payload is what nccl-tests call size: the whole buffer, for an all-gather what every rank has afterwards, for a
reduce-scatter what it had before, for an all-to-all what it sends, its own part included.
"""

import numpy as np

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.schema.collective_kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    FITTED_ROW,
    REDUCE_SCATTER,
    SEND,
)


@inlined_kernel
def _inside_node_seconds(kind, payload, group, bandwidth, row):
    """Return seconds among `group` ranks of one node, with the parameters `row` (float64 [ScaleUpParameters])."""
    steps = group - 1.0
    wire = payload * (group - 1.0) / group
    shard = payload / group
    if kind == ALL_REDUCE:
        steps *= 2.0
        wire *= 2.0
    elif kind == BROADCAST or kind == SEND:
        wire = payload
        shard = 0.0
    wire += row[9] * shard
    per_byte = 1.0 / bandwidth
    seconds = min(
        row[0] + steps * row[1] + wire * per_byte / row[2],
        row[3] + steps * row[4] + wire * per_byte / row[5],
        row[6] + steps * row[7] + wire * per_byte / row[8],
    )
    if group >= row[12] and (kind == ALL_REDUCE or kind == ALL_GATHER or kind == REDUCE_SCATTER):
        seconds = min(seconds, row[10] + payload * per_byte / row[11])
    return seconds


@lean_kernel
def collective_seconds(kind, payload_bytes, group, per_node, up_bandwidth, out_bandwidth, up, out, crossing_share=1.0):
    """Return seconds of one collective, once all its ranks have arrived.

    Across nodes the ranks of a node work among themselves, and each sends its part of what crosses over its own share
    of the network, both at once on different parts of the payload: the slower counts, and a share of the faster.

    Args:
        kind: place in `schema.COLLECTIVES` of a kind with fitted parameters (`collective_kinds.FITTED_ROW`).
        payload_bytes: bytes, as nccl-tests count them; see the module.
        group: ranks of the group.
        per_node: ranks of the group on one node; for a point-to-point transfer 2 when both are on one node, else 1.
        up_bandwidth: of one GPU's link inside the node, bytes a second and direction.
        out_bandwidth: of the network across nodes, a GPU that sends at the time: bytes a second and direction.
        up: float64 [FITTED_COLLECTIVES, ScaleUpParameters].
        out: float64 [ScaleOutParameters].
        crossing_share: of an all-to-all: what crosses nodes over what would if far ranks got as much as near ones.
    """
    if group <= 1 or payload_bytes <= 0:
        return 0.0
    group = float(group)
    per_node = min(float(per_node), group)
    payload = float(payload_bytes)
    row = up[FITTED_ROW[kind]]
    if per_node >= group:
        return _inside_node_seconds(kind, payload, group, up_bandwidth, row)

    nodes = np.ceil(group / per_node)
    crossings = 1.0
    # A ring carries as much from node to node as inside one: nothing is summed up before.
    ring = payload * (group - 1.0) / (group * per_node)
    if kind == ALL_REDUCE:
        crossings = 2.0
        # Of two nodes, the ends of a tree, each sums up first; inner nodes of larger trees have two children.
        crossing = payload / per_node if nodes <= 2.0 else 2.0 * ring
        hops = min(2.0 * (nodes - 1.0) * out[1], 2.0 * np.ceil(np.log2(nodes)) * out[2])
    elif kind == ALL_TO_ALL:
        crossing = crossing_share * payload * (group - per_node) / group
        hops = out[1]
    elif kind == BROADCAST:
        crossing = payload / per_node
        hops = np.ceil(np.log2(nodes)) * out[2]
    elif kind == SEND:
        crossing = payload
        hops = out[1]
    else:
        crossing = ring
        hops = (nodes - 1.0) * out[1]
    inside = row[0]
    if per_node > 1.0:
        inside = _inside_node_seconds(kind, payload, per_node, up_bandwidth, row)
    across = min(crossing / (out_bandwidth * out[4]), out[3] + crossing / (out_bandwidth * out[5]))
    return crossings * out[0] + hops + max(inside, across) + out[6] * min(inside, across)
