"""Time of attention: one fused kernel (FlashAttention), or the matrix products, softmax and dropout of the unfused way.

FlashAttention-2 (arXiv 2307.08691): a multiprocessor takes 128 queries of one head and walks over their keys. Forward
does two matrix products of 2 * seq_q * seq_k * head_dim operations each, backward five: 2.5 times as many. A causal
mask leaves out half of either. Backward runs at 0.86 of the forward rate: 73 % and 63 % of an A100's peak in that
paper; 646 and 559 TFLOP/s (370 and 318 with FlashAttention-2, 600 and 518 with cuDNN) on an H100 at 8192 keys and
heads of 128 in FlashAttention-3's (arXiv 2407.08608, figures 5 and 6).
"""

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels.elementwise import elementwise_seconds
from lumos_df.model.kernels.gemm import gemm_seconds

QUERIES = 128
"""Queries of one tile of the fused kernel."""

OVERHEAD_KEYS = 3
"""Place of `overhead_keys` in the vector of `AttentionParameters`."""

BACKWARD_OPERATIONS = 2.5
"""Matrix products of the backward pass, five, over those of the forward pass, two."""

SOFTMAX_GROUP = 4
"""Heads, of all sequences of a micro-batch, that a block of the masked softmax's kernel takes, all blocks as many."""

SOFTMAX_STEPS = 3
"""Further passes in single precision of a softmax without that kernel; with the two that change precision, further
launches."""


@lean_kernel
def attention_seconds(
    batch,
    seq_q,
    seq_k,
    heads,
    kv_heads,
    head_dim,
    causal,
    backward,
    dtype_bytes,
    peak_flops,
    hbm_bandwidth,
    sms,
    params,
    even=0,
    window=0,
    seen=0.0,
    starts=1.0,
):
    """Return seconds of one fused attention kernel, of its forward or its backward pass.

    Args:
        batch, seq_q, seq_k, heads, kv_heads, head_dim: whole numbers, at least 1, of this GPU's part.
        causal, backward: bool; a causal mask lets the last query see every key.
        dtype_bytes: bytes of an element.
        peak_flops: dense peak of that type, operations a second.
        hbm_bandwidth: bytes a second.
        sms: number of multiprocessors.
        params: float64 [AttentionParameters], in the order of that class.
        even: 0 or 1; of a causal mask, whether the queries are an early and a late piece of the sequence, that together
            see half of the keys, as every other rank's do (zigzag context parallelism); else they are the last.
        window: keys that a query sees at most, of a causal mask; 0: all before it.
        seen: keys that it sees on average, with a window.
        starts: how often a tile starts: where keys come in parts, anew for each part that it sees of.
    """
    rate = peak_flops / sms * params[1] * head_dim / (head_dim + params[2])
    operations = 4.0
    touched = 1.0
    if backward:
        operations *= BACKWARD_OPERATIONS
        rate *= params[6]
        touched = 2.0  # reads what the forward pass read and wrote, and writes the gradients of it
    keys = float(seq_k)
    if causal:
        keys = max((0.5 * seq_k if even else seq_k - 0.5 * seq_q) + 0.5 * QUERIES, 0.5 * seq_k)
    last = float(seq_k)
    if window > 0:
        # Tiles of keys are taken whole where a window begins, and where it ends: half a tile more at either.
        keys = min(keys, seen + QUERIES)
        last = min(last, float(window + QUERIES))
    rows = min(float(QUERIES), float(seq_q))
    tiles = np.ceil(seq_q * (1.0 / QUERIES)) * heads * batch
    tile_key = operations * rows * head_dim / rate
    longest = last + params[OVERHEAD_KEYS]
    compute = max(tiles / sms * (keys + starts * params[OVERHEAD_KEYS]) + params[5] * longest, longest) * tile_key
    moved = 2.0 * dtype_bytes * batch * head_dim * (float(heads) * seq_q + float(kv_heads) * seq_k) * touched
    memory = moved / hbm_bandwidth
    longer = max(compute, memory)
    share = min(compute, memory) / longer
    busy = longer * (1.0 + params[4] * share * share * share)
    return (params[0] + busy) * params[7]


@lean_kernel
def unfused_attention_seconds(
    batch,
    seq_q,
    seq_k,
    heads,
    head_dim,
    dropout,
    backward,
    dtype_bytes,
    peak_flops,
    hbm_bandwidth,
    sms,
    gemm_params,
    memory_params,
):
    """Return seconds of attention without a fused kernel, of its forward or its backward pass.

    Forward: the product of queries and keys, masked softmax in one kernel (the scores read, the probabilities written),
    dropout (read, written, a mask of a byte), the product with the values. Backward: four products, dropout (gradient
    and mask read, gradient written), softmax (gradient and probabilities read, gradient written). A mask saves nothing:
    the products compute every score (Megatron-LM's `CoreAttention`). Heads that make no whole `SOFTMAX_GROUP` have it
    in steps of single precision: widened, scaled, masked, softmax, narrowed (`FusedScaleMaskSoftmax`).

    Args:
        batch, seq_q, seq_k, heads, head_dim: whole numbers, at least 1, of this GPU's part.
        dropout, backward: bool.
        dtype_bytes: bytes of an element.
        peak_flops: dense peak of that type, operations a second.
        hbm_bandwidth: bytes a second.
        sms: number of multiprocessors.
        gemm_params: float64 [GemmParameters].
        memory_params: float64 [MemoryParameters].
    """
    products = batch * heads
    scores = float(products) * seq_q * seq_k
    onto_keys = gemm_seconds(seq_q, seq_k, head_dim, products, dtype_bytes, peak_flops, hbm_bandwidth, sms, gemm_params)
    onto_values = gemm_seconds(
        seq_q, head_dim, seq_k, products, dtype_bytes, peak_flops, hbm_bandwidth, sms, gemm_params
    )
    if backward:
        of_keys = gemm_seconds(
            seq_k, head_dim, seq_q, products, dtype_bytes, peak_flops, hbm_bandwidth, sms, gemm_params
        )
        seconds = onto_keys + onto_values + 2.0 * of_keys
        seconds += elementwise_seconds(scores * 3.0 * dtype_bytes, hbm_bandwidth, memory_params)
    else:
        seconds = onto_keys + onto_values
        seconds += elementwise_seconds(scores * 2.0 * dtype_bytes, hbm_bandwidth, memory_params)
    if products % SOFTMAX_GROUP:
        # All but the softmax itself, which is counted above: each reads and writes every score.
        alone = scores * (2.0 * dtype_bytes + SOFTMAX_STEPS * 2.0 * 4.0)
        seconds += elementwise_seconds(alone, hbm_bandwidth, memory_params)
    if dropout:
        seconds += elementwise_seconds(scores * (2.0 * dtype_bytes + 1.0), hbm_bandwidth, memory_params)
    return seconds
