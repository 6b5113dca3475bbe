"""Attention to keys that an indexer chooses (DeepSeek-V3.2, arXiv 2512.02556): what the indexer runs.

Each head of the indexer scores every pair of tokens by a product of a query and a key that all its heads share; a
query's scores, summed up with weights of its own, choose the keys that attention reads. Every tensor-parallel rank
chooses by all heads. The loss that trains the indexer compares scores of chosen keys alone, and is not counted.
"""

from typing import Final

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import layer_operators as op

_SCORE_BYTES: Final = 4
"""Bytes of a score: float32."""


@lean_kernel
def chooses(model):
    """Return whether an indexer chooses keys: it does where a sequence has more than it would choose."""
    return 0 < model.index_keys < model.seq


@lean_kernel
def indexer(model, plan, ops, i):
    """Write the forward operators of the indexer from row `i` on, if there is one; return the row after the last."""
    if not chooses(model):
        return i
    tokens = plan.micro_batch * model.seq / plan.cp
    i = op.product(ops, i, op.INDEX_QUERY, tokens, model.index_heads * model.index_dim, model.q_rank, 1.0)
    i = op.product(ops, i, op.INDEX_KEY, tokens, model.index_dim, model.hidden, 1.0)
    i = op.product(ops, i, op.INDEX_WEIGHTS, tokens, model.index_heads, model.hidden, 1.0)
    i = op.attention(ops, i, op.INDEX_SCORES, model, plan, model.index_dim, model.index_heads, 1.0)
    # A query's sums are written, and read to find the largest.
    scores = tokens * 0.5 * model.seq * _SCORE_BYTES
    return op.memory_pass(ops, i, op.INDEX_CHOICE, 2.0 * scores, 0.0, 1.0)
