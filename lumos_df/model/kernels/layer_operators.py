"""The operators of one transformer layer, of the embedding and of the head, as rows of a small table.

A row says what a rank runs once a layer and micro-batch: a matrix product, an attention, a pass over memory or a
collective. The backward row of each follows from the forward one, so only the forward pass is listed.

Shapes: b micro-batch, s sequence, h hidden, f ffn, t tensor parallel, c context parallel; T = b s / c tokens a rank.
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels.attention import SOFTMAX_GROUP, SOFTMAX_STEPS
from lumos_df.schema.codes import NONE
from lumos_df.schema.collective_kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVES, REDUCE_SCATTER
from lumos_df.schema.dtypes import STORED_BYTES
from lumos_df.schema.plan_words import CP, LORA_ALL, TP

ACTIVATION_BACKWARD: Final = 1.6
"""Bytes of an activation's backward pass over those of its forward pass: five parts over three where it is gated, three
over two where it is not."""

_LOSS_FORWARD: Final = 38 / 52
"""Share of the loss's memory traffic that is of its forward pass. Megatron's `vocab_parallel_cross_entropy` moves 38
bytes a logit (to single precision 6, maximum 4, less it 8, exponential 8, sum 4, divided 8), and backwards 14 (by the
loss's gradient 8, to half precision 6); PyTorch's `log_softmax` as many in all."""

# Columns of the table of operators.
NAME: Final = 0
FAMILY: Final = 1
GROUP: Final = 2
M: Final = 3
N: Final = 4
K: Final = 5
BATCH: Final = 6
BYTES: Final = 7
BACKWARD_BYTES: Final = 8
LAUNCHES: Final = 9
FORWARD_S: Final = 10
INPUT_S: Final = 11
WEIGHT_S: Final = 12
COLUMNS: Final = 13

_COMPUTE: Final = ("gemm", "grouped_gemm", "attention", "elementwise")
GEMM, GROUPED_GEMM, ATTENTION, ELEMENTWISE = range(len(_COMPUTE))
COLLECTIVE: Final = len(_COMPUTE)
"""What an operator does: products and attention read M, N, K and BATCH, the others BYTES. From COLLECTIVE on it is a
collective, by `schema.COLLECTIVES`."""
FAMILIES: Final = (*_COMPUTE, *COLLECTIVES)
"""Words for what operators do."""

NAMES: Final = (
    "norm",
    "gather_tokens",
    "query_key_value",
    "rotary",
    "exchange_context",
    "attention",
    "attention_output",
    "scatter_tokens",
    "residual",
    "mlp_up",
    "activation",
    "mlp_down",
    "router",
    "permute",
    "dispatch",
    "expert_up",
    "expert_down",
    "combine",
    "unpermute",
    "shared_up",
    "shared_down",
    "embedding",
    "head",
    "loss",
    "query_down",
    "key_value_down",
    "key_value_up",
    "state_input",
    "convolution",
    "state_scan",
    "state_gate",
    "state_output",
    "latent_down",
    "latent_up",
    "attention_gate",
    "index_query",
    "index_key",
    "index_weights",
    "index_scores",
    "index_choice",
    "adapter_down",
    "adapter_up",
)
(
    NORM,
    GATHER,
    QKV,
    _ROTARY,
    _CONTEXT,
    _ATTENTION,
    OUTPUT,
    SCATTER,
    _RESIDUAL,
    _UP,
    ACTIVATION,
    _DOWN,
    ROUTER,
    PERMUTE,
    DISPATCH,
    EXPERT_UP,
    EXPERT_DOWN,
    COMBINE,
    UNPERMUTE,
    SHARED_UP,
    SHARED_DOWN,
    _EMBEDDING,
    HEAD,
    _LOSS,
    _QUERY_DOWN,
    _KEY_VALUE_DOWN,
    _KEY_VALUE_UP,
    STATE_INPUT,
    CONVOLUTION,
    STATE_SCAN,
    STATE_GATE,
    STATE_OUTPUT,
    LATENT_DOWN,
    LATENT_UP,
    _GATE,
    INDEX_QUERY,
    INDEX_KEY,
    INDEX_WEIGHTS,
    INDEX_SCORES,
    INDEX_CHOICE,
    ADAPTER_DOWN,
    ADAPTER_UP,
) = range(len(NAMES))


@lean_kernel
def product(ops, i, name, m, n, k, batch):
    """Write a matrix product into row `i`, `batch` of m x k and k x n; return the next row."""
    _row(ops, i, name, GEMM, NONE, 1.0)
    ops[i, M] = m
    ops[i, N] = n
    ops[i, K] = k
    ops[i, BATCH] = batch
    return i + 1


@lean_kernel
def memory_pass(ops, i, name, forward_bytes, backward_bytes, launches):
    """Write a pass over memory into row `i`, with the bytes that it reads and writes; return the next row."""
    _row(ops, i, name, ELEMENTWISE, NONE, launches)
    ops[i, BYTES] = forward_bytes
    ops[i, BACKWARD_BYTES] = backward_bytes
    return i + 1


@lean_kernel
def collective(ops, i, name, kind, group, payload_bytes):
    """Write a collective of `schema.COLLECTIVES` into row `i`, payload as nccl-tests count it; return the next row."""
    _row(ops, i, name, COLLECTIVE + kind, group, 1.0)
    ops[i, BYTES] = payload_bytes
    return i + 1


@lean_kernel
def _row(ops, i, name, family, group, launches):
    ops[i, NAME] = name
    ops[i, FAMILY] = family
    ops[i, GROUP] = group
    ops[i, M] = 0.0
    ops[i, N] = 0.0
    ops[i, K] = 0.0
    ops[i, BATCH] = 1.0
    ops[i, BYTES] = 0.0
    ops[i, BACKWARD_BYTES] = 0.0
    ops[i, LAUNCHES] = launches


@lean_kernel
def attention_block(model, plan, software, ops, i):
    """Write the forward operators of one attention block from row `i` on; return the row after the last."""
    tokens = plan.micro_batch * model.seq / plan.cp
    t = plan.tp
    size = activation_bytes(plan)
    hidden_bytes = tokens * model.hidden * size
    narrow = t if plan.sequence_parallel else 1
    passes = software.passes
    i = enter(model, plan, software, ops, i, hidden_bytes)
    heads = model.heads / t
    kv_heads = max(model.kv_heads / t, 1.0)
    width = heads * model.head_dim
    if model.kv_rank > 0:
        q_in = float(model.hidden)
        if model.q_rank > 0:
            i = product(ops, i, _QUERY_DOWN, tokens, model.q_rank, model.hidden, 1.0)
            q_in = float(model.q_rank)
        i = product(ops, i, QKV, tokens, heads * model.head_dim, q_in, 1.0)
        i = product(ops, i, _KEY_VALUE_DOWN, tokens, model.kv_rank + model.rope_dim, model.hidden, 1.0)
        i = product(
            ops, i, _KEY_VALUE_UP, tokens, heads * (model.head_dim - model.rope_dim + model.v_dim), model.kv_rank, 1.0
        )
        width = heads * model.v_dim
        kv_width = heads * model.head_dim
        values = width
    else:
        kv_width = kv_heads * model.head_dim
        values = kv_width
        i = product(ops, i, QKV, tokens, (1 + model.output_gate) * width + 2 * kv_width, model.hidden, 1.0)
    i = _adapter(plan, ops, i, tokens, model.hidden, (1 + model.output_gate) * width + 2 * kv_width, passes)
    if model.qk_norm and software.norm_passes > 1.0:
        # Where norms are fused these are in `passes`, as it was fitted.
        i = norm(model, software, ops, i, tokens * (width + kv_width) * size)
    if model.learned_positions == 0:
        rotated = 2 * tokens * (width + kv_width) * size * passes
        i = memory_pass(ops, i, _ROTARY, rotated, rotated, 2.0 * passes)
    if plan.cp > 1:
        # Keys and values of every other rank pass through each rank of the context group once.
        i = collective(ops, i, _CONTEXT, ALL_GATHER, CP, tokens * plan.cp * (kv_width + values) * size)
    launches = 1.0
    if not plan.flash:
        launches = 6.0 if plan.micro_batch * heads % SOFTMAX_GROUP == 0 else 6.0 + SOFTMAX_STEPS + 2.0
    # One of its two products has heads as wide as keys, the other as values (MLA).
    i = attention(ops, i, _ATTENTION, model, plan, 0.5 * (model.head_dim + model.v_dim), heads, launches)
    if model.output_gate:
        gated = 3 * tokens * width * size * passes
        i = memory_pass(ops, i, _GATE, gated, ACTIVATION_BACKWARD * gated, passes)
    i = product(ops, i, OUTPUT, tokens, model.hidden, width, 1.0)
    i = _adapter(plan, ops, i, tokens, width, model.hidden, passes)
    i = leave(plan, ops, i, hidden_bytes)
    return memory_pass(
        ops, i, _RESIDUAL, 3 * passes * hidden_bytes / narrow, 2 * passes * hidden_bytes / narrow, passes
    )


@lean_kernel
def attention(ops, i, name, model, plan, width, heads, launches):
    """Write attention of `heads` heads of a mean width into row `i`; return the next row."""
    _row(ops, i, name, ATTENTION, NONE, launches)
    ops[i, M] = model.seq / plan.cp
    ops[i, N] = model.seq
    ops[i, K] = width
    ops[i, BATCH] = plan.micro_batch * heads
    return i + 1


@lean_kernel
def _adapter(plan, ops, i, tokens, inputs, outputs, passes, batch=1.0):
    # Two thin products beside a frozen one, and what they put out is added to its output.
    if plan.lora == 0:
        return i
    i = product(ops, i, ADAPTER_DOWN, tokens, plan.lora, inputs, batch)
    i = product(ops, i, ADAPTER_UP, tokens, outputs, plan.lora, batch)
    added = batch * tokens * outputs * activation_bytes(plan)
    return memory_pass(ops, i, ADAPTER_UP, 3 * added, 2 * added, passes)


@lean_kernel
def feed_forward_adapter(plan, ops, i, tokens, inputs, outputs, passes, batch=1.0):
    """Write adapters beside `batch` feed-forward products from row `i` on, where there are any; return the next row."""
    if plan.lora_targets != LORA_ALL:
        return i
    return _adapter(plan, ops, i, tokens, inputs, outputs, passes, batch)


@lean_kernel
def dense_block(model, plan, software, ops, i):
    """Write the forward operators of one dense feed-forward block from row `i` on; return the row after the last."""
    tokens = plan.micro_batch * model.seq / plan.cp
    hidden_bytes = tokens * model.hidden * activation_bytes(plan)
    i = enter(model, plan, software, ops, i, hidden_bytes)
    i = feed_forward(model, plan, software, ops, i, tokens, model.ffn / plan.tp, _UP, _DOWN)
    i = leave(plan, ops, i, hidden_bytes)
    return residual(plan, software, ops, i, hidden_bytes)


@lean_kernel
def enter(model, plan, software, ops, i, hidden_bytes):
    """Write a block's norm, and the gathering of its input where the sequence is split; return the next row."""
    i = norm(model, software, ops, i, hidden_bytes / (plan.tp if plan.sequence_parallel else 1))
    if plan.tp > 1 and plan.sequence_parallel:
        i = collective(ops, i, GATHER, ALL_GATHER, TP, hidden_bytes)
    return i


@lean_kernel
def norm(model, software, ops, i, normed_bytes):
    """Write a norm of so many bytes into row `i`; return the next row. One with biases is one kernel of any library."""
    passes = software.passes * (1.0 if model.biases else software.norm_passes)
    return memory_pass(ops, i, NORM, 2 * passes * normed_bytes, 3 * passes * normed_bytes, passes)


@lean_kernel
def leave(plan, ops, i, hidden_bytes):
    """Write the reduction of a block's output over tensor-parallel ranks; return the next row."""
    if plan.tp > 1:
        return collective(ops, i, SCATTER, REDUCE_SCATTER if plan.sequence_parallel else ALL_REDUCE, TP, hidden_bytes)
    return i


@lean_kernel
def residual(plan, software, ops, i, hidden_bytes):
    """Write the addition of a block's output to the stream; return the next row."""
    narrow = plan.tp if plan.sequence_parallel else 1
    passes = software.passes
    return memory_pass(
        ops, i, _RESIDUAL, 3 * passes * hidden_bytes / narrow, 2 * passes * hidden_bytes / narrow, passes
    )


@lean_kernel
def feed_forward(model, plan, software, ops, i, tokens, width, up_name, down_name):
    """Write both products of inner width `width`, and the activation between them; return the row after the last."""
    up = 2 * width if model.gated else width
    i = product(ops, i, up_name, tokens, up, model.hidden, 1.0)
    i = feed_forward_adapter(plan, ops, i, tokens, model.hidden, up, software.passes)
    activated = tokens * width * activation_bytes(plan) * (3 if model.gated else 2) * software.passes
    i = memory_pass(ops, i, ACTIVATION, activated, ACTIVATION_BACKWARD * activated, software.passes)
    i = product(ops, i, down_name, tokens, model.hidden, width, 1.0)
    return feed_forward_adapter(plan, ops, i, tokens, width, model.hidden, software.passes)


@lean_kernel
def embedding_block(model, plan, ops, i):
    """Write the embedding's forward operators from row `i` on; return the row after the last."""
    tokens = plan.micro_batch * model.seq / plan.cp
    hidden_bytes = tokens * model.hidden * activation_bytes(plan)
    i = memory_pass(ops, i, _EMBEDDING, 2 * hidden_bytes, 3 * hidden_bytes, 2.0)
    return leave(plan, ops, i, hidden_bytes)


@lean_kernel
def head_block(model, plan, software, ops, i):
    """Write the forward operators of the final norm, the output product and the loss from row `i` on."""
    tokens = plan.micro_batch * model.seq / plan.cp
    size = activation_bytes(plan)
    hidden_bytes = tokens * model.hidden * size
    i = enter(model, plan, software, ops, i, hidden_bytes)
    width = vocabulary(model, plan) / plan.tp
    logits = tokens * width
    i = product(ops, i, HEAD, tokens, width, model.hidden, 1.0)
    forward = _LOSS_FORWARD * software.loss_bytes
    return memory_pass(ops, i, _LOSS, logits * forward, logits * (software.loss_bytes - forward), 4.0)


@lean_kernel
def activation_bytes(plan):
    """Return the bytes of one activation element between products."""
    return STORED_BYTES[plan.precision]


@lean_kernel
def vocabulary(model, plan):
    """Return the padded vocabulary: tensor-parallel ranks have the same number of entries each."""
    unit = float(model.vocab_multiple * plan.tp)
    return np.ceil(model.vocab / unit) * unit
