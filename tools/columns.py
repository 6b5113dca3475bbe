"""Compiled functions of `lumos_df.model` over columns of measurements, where `estimate.measured` asks otherwise."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.model.kernels.network import collective_seconds
from lumos_df.schema.collective_kinds import ALL_REDUCE


@kernel
def attention(shape, peak_flops, hbm_bandwidth, sms, params):
    """Return seconds [rows] of causal forward passes in bf16; shape: batch, length, heads, kv_heads, size [rows]."""
    seconds = np.empty(shape.shape[1])
    for i in range(len(seconds)):
        batch, length, heads, kv_heads, head_dim = shape[:, i]
        seconds[i] = attention_seconds(
            batch,
            length,
            length,
            heads,
            kv_heads,
            head_dim,
            True,
            False,
            2.0,
            peak_flops,
            hbm_bandwidth,
            sms,
            params,
        )
    return seconds


@kernel
def inside_node(kind, payload, group, bandwidth, params):
    """Return seconds [rows] of collectives of one kind whose ranks are all on one node."""
    seconds = np.empty(len(payload))
    up = np.empty((4, len(params)))
    up[:] = params
    out = np.ones(7)
    for i in range(len(payload)):
        seconds[i] = collective_seconds(kind, payload[i], group[i], group[i], bandwidth, 1.0, up, out)
    return seconds


@kernel
def across_nodes(payload, group, per_node, up_bandwidth, out_bandwidth, up, out):
    """Return seconds [rows] of all-reduces of `group` ranks, `per_node` of them on a node."""
    seconds = np.empty(len(payload))
    for i in range(len(payload)):
        seconds[i] = collective_seconds(ALL_REDUCE, payload[i], group, per_node, up_bandwidth, out_bandwidth, up, out)
    return seconds
