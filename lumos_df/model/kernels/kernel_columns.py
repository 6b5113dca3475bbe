"""The cost model over columns of measured shapes: numba infers the types."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.model.kernels.elementwise import elementwise_seconds
from lumos_df.model.kernels.gemm import gemm_seconds
from lumos_df.model.kernels.network import collective_seconds


@kernel
def products(m, n, k, batch, dtype_bytes, peak_flops, hbm_bandwidth, sms, params):
    """Return seconds [rows] of matrix products of m, n, k, batch [rows]."""
    seconds = np.empty(len(m))
    for i in range(len(m)):
        seconds[i] = gemm_seconds(m[i], n[i], k[i], batch[i], dtype_bytes, peak_flops, hbm_bandwidth, sms, params)
    return seconds


@kernel
def attention(queries, keys, head, heads, backward, dtype_bytes, peak_flops, hbm_bandwidth, sms, params):
    """Return seconds [rows] of fused attention, causal where queries are as many as keys."""
    seconds = np.empty(len(queries))
    for i in range(len(queries)):
        causal = queries[i] == keys[i]
        seconds[i] = attention_seconds(
            1.0, queries[i], keys[i], heads[i], heads[i], head[i], causal, backward[i], dtype_bytes,
            peak_flops, hbm_bandwidth, sms, params,
        )  # fmt: skip
    return seconds


@kernel
def passes(moved_bytes, hbm_bandwidth, params):
    """Return seconds [rows] of memory-bound kernels that move `moved_bytes` [rows]."""
    seconds = np.empty(len(moved_bytes))
    for i in range(len(moved_bytes)):
        seconds[i] = elementwise_seconds(moved_bytes[i], hbm_bandwidth, params)
    return seconds


@kernel
def collectives(kind, payload, ranks, node, up_bandwidth, out_bandwidth, up, out):
    """Return seconds [rows] of collectives: `payload` bytes among `ranks` [rows], up to `node` on one."""
    seconds = np.empty(len(payload))
    for i in range(len(payload)):
        seconds[i] = collective_seconds(kind, payload[i], ranks[i], node, up_bandwidth, out_bandwidth, up, out)
    return seconds
