"""What attention in parts costs beside its products: zigzag ring attention over context-parallel ranks.

A rank attends to its own keys, and then to those of every other rank as they come round the ring (Liu et al. 2023,
arXiv 2310.01889). Of a further part either all queries see one half of the keys, or one half of the queries sees all
(Transformer Engine's `AttnFuncWithCPAndKVP2P`, in context_parallel.py).
"""

from typing import Final

from lumos_df.base.jit import lean_kernel

_SEEN: Final = 0.75
"""Share of a rank's queries that see something of a further part, the mean of both kinds."""

_MERGED: Final = ((5.5, 1.0), (7.5, 5.5))
"""Bytes that a further part moves, forward and backward: an element of queries, and one of keys and values. What it
gives is added to what others gave (6 bytes), and halves are copied before the kernel reads them (4)."""


@lean_kernel
def starts(plan):
    """Return how often a tile of queries starts: anew for each part that it sees of."""
    return 1.0 + _SEEN * (plan.cp - 1.0)


@lean_kernel
def merged_bytes(model, plan, queries, backward):
    """Return the bytes that all further parts move beside their kernels; `queries` are elements of those of a rank."""
    keys = 2.0 * queries * max(model.kv_heads, plan.tp) / model.heads
    by_query, by_key = _MERGED[1 if backward else 0]
    return (plan.cp - 1.0) * (by_query * queries + by_key * keys)
