"""The operators of a block of experts, as rows of the table of `layer_operators`.

Shapes: T tokens a rank, t tensor parallel; each of T/t tokens goes to `top_k` experts.
"""

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import layer_operators as op
from lumos_df.schema.collective_kinds import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER
from lumos_df.schema.plan_words import EP, ETP, TP


@lean_kernel
def rows_of_token(model):
    """Return the rows that experts compute for a token: one for each of its experts, or what a capacity has room for.

    What has a capacity has buffers of that size, filled up where fewer tokens come (GShard, MaxText, DeepSpeed).
    """
    return model.top_k * (model.capacity if model.capacity > 0.0 else 1.0)


@lean_kernel
def expert_block(model, plan, software, ops, i):
    """Write the forward operators of one mixture-of-experts block from row `i` on; return the row after the last.

    Each rank routes its T/t tokens (sequence parallel) to `top_k` experts; with balanced experts a rank computes as
    many as it sends, and as many again as `capacity` leaves free.
    """
    tokens = plan.micro_batch * model.seq / plan.cp
    size = op.activation_bytes(plan)
    hidden_bytes = tokens * model.hidden * size
    passes = software.passes
    share = tokens / plan.tp
    routed = share * rows_of_token(model)
    i = op.norm(model, software, ops, i, hidden_bytes / plan.tp)
    i = op.product(ops, i, op.ROUTER, share, model.experts, model.hidden, 1.0)
    width = model.latent or model.hidden
    if model.latent > 0:
        i = op.product(ops, i, op.LATENT_DOWN, share, model.latent, model.hidden, 1.0)
    routed_bytes = routed * width * size
    i = op.memory_pass(ops, i, op.PERMUTE, share * width * size + routed_bytes, 2 * routed_bytes, 4.0 * passes)
    if plan.ep > 1:
        i = op.collective(ops, i, op.DISPATCH, ALL_TO_ALL, EP, routed_bytes)
    if plan.etp > 1:
        i = op.collective(ops, i, op.GATHER, ALL_GATHER, ETP, routed_bytes * plan.etp)
    local = max(model.experts / plan.ep, 1.0)
    rows = routed * plan.etp / local
    i = _experts(model, plan, software, ops, i, rows, local, width)
    if plan.etp > 1:
        i = op.collective(ops, i, op.SCATTER, REDUCE_SCATTER, ETP, routed_bytes * plan.etp)
    if plan.ep > 1:
        i = op.collective(ops, i, op.COMBINE, ALL_TO_ALL, EP, routed_bytes)
    i = op.memory_pass(ops, i, op.UNPERMUTE, share * width * size + routed_bytes, 2 * routed_bytes, 3.0 * passes)
    if model.latent > 0:
        i = op.product(ops, i, op.LATENT_UP, share, model.hidden, model.latent, 1.0)
    if model.shared_ffn > 0:
        if plan.tp > 1:
            i = op.collective(ops, i, op.GATHER, ALL_GATHER, TP, hidden_bytes)
        i = op.feed_forward(
            model, plan, software, ops, i, tokens, model.shared_ffn / plan.tp, op.SHARED_UP, op.SHARED_DOWN
        )
        if plan.tp > 1:
            i = op.collective(ops, i, op.SCATTER, REDUCE_SCATTER, TP, hidden_bytes)
    return op.residual(plan, software, ops, i, hidden_bytes)


@lean_kernel
def _experts(model, plan, software, ops, i, rows, local, width):
    first = i
    inner = model.expert_ffn / plan.etp
    up = 2 * inner if model.gated else inner
    i = op.product(ops, i, op.EXPERT_UP, rows, up, width, local)
    i = op.feed_forward_adapter(plan, ops, i, rows, width, up, software.passes, local)
    i = op.product(ops, i, op.EXPERT_DOWN, rows, width, inner, local)
    i = op.feed_forward_adapter(plan, ops, i, rows, inner, width, software.passes, local)
    for row in range(first, i):
        if ops[row, op.FAMILY] == op.GEMM:
            ops[row, op.FAMILY] = op.GROUPED_GEMM
    activated = rows * local * inner * op.activation_bytes(plan) * (3 if model.gated else 2) * software.passes
    return op.memory_pass(ops, i, op.ACTIVATION, activated, op.ACTIVATION_BACKWARD * activated, software.passes)
