"""Memory of a rank: weights, gradients, optimizer states, activations.

Activations follow Korthikanti et al. 2022 (arXiv 2205.05198), table 2, part by part, so that gated MLPs, grouped
queries, MLA and experts are counted as they are; states follow ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054) and
Megatron's distributed optimizer. Sizes are bytes of one GPU.
"""

from typing import Final

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import placement, state_space
from lumos_df.model.kernels.expert_operators import rows_of_token
from lumos_df.model.kernels.layer_operators import activation_bytes
from lumos_df.schema.dtypes import FP32, OPERAND_BYTES, STORED_BYTES
from lumos_df.schema.plan_words import (
    FSDP,
    LORA_ALL,
    RECOMPUTE_ATTENTION,
    RECOMPUTE_LAYERS,
    RECOMPUTE_LIGHT,
    RECOMPUTE_PRODUCTS,
    SHARD_GRADIENTS,
    SHARD_OPTIMIZER,
    SHARD_PARAMETERS,
)


@lean_kernel
def attention_parameters(model):
    """Return the parameters of one layer's attention, norms of the layer included."""
    out = model.heads * model.v_dim * model.hidden
    vectors = 4.0 * model.hidden if model.biases else 2.0 * model.hidden
    if model.kv_rank == 0:
        columns = (2.0 if model.output_gate else 1.0) * model.heads + 2.0 * model.kv_heads
        return model.hidden * columns * model.head_dim + out + vectors
    query = model.heads * model.head_dim
    down = model.hidden * query if model.q_rank == 0 else model.q_rank * (model.hidden + query)
    up = model.kv_rank * model.heads * (model.head_dim - model.rope_dim + model.v_dim)
    index = model.q_rank * model.index_heads * model.index_dim + model.hidden * (model.index_dim + model.index_heads)
    return down + model.hidden * (model.kv_rank + model.rope_dim) + up + out + vectors + index


@lean_kernel
def mixer_parameters(model):
    """Return the parameters of a layer's mixers: attention, or in a hybrid model the mean of what its layers have."""
    if model.mamba_layers == 0:
        return attention_parameters(model)
    attention = model.attention_layers * attention_parameters(model)
    return (attention + model.mamba_layers * state_space.mixer_parameters(model)) / model.layers


@lean_kernel
def feed_forward_parameters(model, width):
    """Return the parameters of a feed-forward block of inner width `width`."""
    return (3.0 if model.gated else 2.0) * model.hidden * width


@lean_kernel
def layer_parameters(model, plan, expert):
    """Return the parameters of a layer on one rank: (replicated over data-parallel ranks, experts' own)."""
    dense = mixer_parameters(model) / plan.tp
    if not expert:
        return dense + feed_forward_parameters(model, model.ffn) / plan.tp, 0.0
    dense += model.hidden * model.experts + feed_forward_parameters(model, model.shared_ffn) / plan.tp
    dense += 2.0 * model.latent * model.hidden
    expert_width = (model.latent or model.hidden) / model.hidden
    experts = model.experts * expert_width * feed_forward_parameters(model, model.expert_ffn)
    return dense, experts / (plan.ep * plan.etp)


@lean_kernel
def adapter_parameters(model, plan, expert):
    """Return the parameters of one layer's adapters on one rank: (replicated over data-parallel ranks, experts' own).

    Beside query, key and value, and the output; with all targets also beside both products of each feed-forward block.
    Of both products of an adapter, the one with the width of the tensor-parallel shard is split.
    """
    inward = (
        (model.heads + 2.0 * model.kv_heads) * model.head_dim if model.kv_rank == 0 else model.heads * model.head_dim
    )
    shared = 2.0 * model.hidden + (inward + model.heads * model.v_dim) / plan.tp
    experts = 0.0
    if plan.lora_targets == LORA_ALL:
        each = 3.0 if model.gated else 2.0
        inner = float(model.shared_ffn) if expert else float(model.ffn)
        if inner > 0.0:
            shared += 2.0 * model.hidden + each * inner / plan.tp
        if expert:
            width = model.latent or model.hidden
            experts = model.experts / plan.ep * (2.0 * width + each * model.expert_ffn / plan.etp)
    return plan.lora * shared, plan.lora * experts


@lean_kernel
def _feed_forward_trained(plan):
    """Return whether what feed-forward products read is needed for a weight gradient: theirs, or an adapter's."""
    return plan.lora == 0 or plan.lora_targets == LORA_ALL


@lean_kernel
def keeps_products(plan, software):
    """Return whether of a layer attention and every second matrix product are kept, and all else is computed again."""
    return plan.recompute == RECOMPUTE_PRODUCTS or (plan.recompute == RECOMPUTE_ATTENTION and software.keep_products)


@lean_kernel
def layer_activation_bytes(model, plan, software, expert):
    """Return the bytes that a layer's forward pass keeps for its backward pass, one micro-batch."""
    size = activation_bytes(plan)
    t = plan.tp
    tokens = plan.micro_batch * model.seq / plan.cp
    hidden = tokens * model.hidden * size
    narrow = t if plan.sequence_parallel else 1
    if plan.recompute == RECOMPUTE_LAYERS:
        return hidden / (t if plan.sequence_parallel else 1)
    if keeps_products(plan, software):
        # The layer's input, what every second product puts out, and attention's output with its sum a row.
        keys = tokens * max(model.kv_heads / t, 1.0) * model.head_dim * size
        inner = tokens * model.ffn / t * size
        if expert:
            inner = tokens / t * model.top_k * model.expert_ffn * size + tokens * model.shared_ffn / t * size
        products = tokens * model.heads / t * model.head_dim * size + keys + inner
        attended = tokens * model.heads / t * (model.v_dim * size + 4.0)
        return (2.0 if model.gated else 1.0) * hidden / narrow + products + attended
    # Inputs of both norms, and what the norms put out: where the sequence is split it is gathered again.
    norms = hidden / narrow
    narrower = operand_bytes(plan) / size
    # The MLP's input is kept for its weight gradient alone; attention's goes into an adapter, too.
    light = plan.recompute == RECOMPUTE_LIGHT
    gathered = 0.0 if light else hidden * narrower / narrow
    masks = hidden / size / narrow if software.dropout else 0.0
    outside = norms + masks
    width = tokens * model.heads / t * size
    if model.kv_rank > 0:
        qkv = tokens * (model.q_rank + 2.0 * model.kv_rank) * size
        if not light:
            qkv += width * (2.0 * model.head_dim + model.v_dim)
    else:
        key = tokens * max(model.kv_heads / t, 1.0) * model.head_dim * size
        qkv = width * model.head_dim + 2.0 * key
        if model.output_gate:
            # The gate, and attention's output before it.
            qkv += 2.0 * width * model.head_dim
    core = width * model.v_dim * narrower
    if plan.flash:
        core += 4.0 * tokens * model.heads / t
    elif plan.recompute != RECOMPUTE_ATTENTION:
        pairs = plan.micro_batch * model.heads / t * (model.seq / plan.cp) * model.seq
        core += pairs * (2.0 * size + (1.0 if software.dropout else 0.0))
    mixers = outside + gathered + qkv + core
    if model.mamba_layers > 0:
        state = model.mamba_layers * state_space.mixer_activation_bytes(model, plan, operand_bytes(plan))
        mixers = (model.attention_layers * mixers + state) / model.layers
    block = outside + (gathered if _feed_forward_trained(plan) else 0.0)
    return mixers + block + _feed_forward_bytes(model, plan, software, expert, tokens, size)


FORWARD_ALONE: Final = 1 / 3
"""Share of a micro-batch's operators that are its forward pass's: the backward pass has two for each of them."""


@lean_kernel
def communication_bytes(model, plan, software, steady, waiting):
    """Return the bytes that collectives of a split sequence hold beyond what runs, whatever a stage's layers.

    They are held while the host is ahead of the GPU, for as many operators as it may be ahead: those of a forward pass
    where all of these come first, of both passes where a forward pass follows a backward one.

    Args:
        model, plan, software: records.
        steady: bool; whether the stage runs forward and backward passes in turn.
        waiting: share of the time in which the GPU waits for the host.
    """
    if plan.tp == 1 or not plan.sequence_parallel:
        return 0.0
    held = software.held_gathered * (1.0 - waiting) * (1.0 if steady else FORWARD_ALONE)
    return held * plan.micro_batch * model.seq / plan.cp * model.hidden * activation_bytes(plan)


@lean_kernel
def _feed_forward_bytes(model, plan, software, expert, tokens, size):
    # What goes into the second product is kept as that product read it; what the activation needs is not.
    trained = 1.0 if _feed_forward_trained(plan) else 0.0
    parts = (2.0 if model.gated else 1.0) + software.keep_ffn + trained * operand_bytes(plan) / size
    returned = size
    if plan.recompute == RECOMPUTE_LIGHT:
        # What the activation needs alone, as narrow as products read it; experts' outputs are weighted before the last.
        parts = (2.0 if model.gated else 1.0) * operand_bytes(plan) / size
        returned = 0.0
    if not expert:
        return parts * tokens * model.ffn / plan.tp * size
    share = tokens / plan.tp
    routed = share * rows_of_token(model)
    # Routed copies of the tokens before and after the experts, and the experts' inner values.
    return (
        routed * (model.latent or model.hidden) * (operand_bytes(plan) + returned)
        + 2.0 * share * model.latent * size
        + parts * routed * model.expert_ffn * size
        + parts * tokens * model.shared_ffn / plan.tp * size
        + 4.0 * share * model.experts
    )


@lean_kernel
def operand_bytes(plan):
    """Return the bytes of an element that a matrix product reads, and keeps for its weight gradient."""
    return OPERAND_BYTES[plan.precision]


@lean_kernel
def state_bytes(plan, software, replicated, expert, trained, trained_expert, out):
    """Write weights, gradients and optimizer states of a rank to `out` [3].

    Args:
        replicated: parameters of the rank that `dp * cp` ranks hold alike, or share a group of them.
        expert: parameters of the rank's experts, which fewer ranks hold alike.
        trained, trained_expert: those of each that have gradients and states.
    """
    copies = float(placement.shard_ranks(plan, plan.dp * plan.cp))
    expert_copies = max(placement.shard_ranks(plan, plan.dp * plan.cp * plan.tp) / (plan.ep * plan.etp), 1.0)
    optimizer_bytes = software.optimizer_bytes if plan.precision != FP32 else 8.0
    whole = trained + trained_expert
    shard = trained / copies + trained_expert / expert_copies
    weights = replicated + expert
    if plan.schedule == FSDP:
        # Shards are the optimizer's own single precision.
        weights = 0.0
    elif plan.zero >= SHARD_PARAMETERS:
        weights = replicated / copies + expert / expert_copies
    out[0] = STORED_BYTES[plan.precision] * weights
    out[1] = software.gradient_bytes * (shard if plan.zero >= SHARD_GRADIENTS else whole)
    out[2] = optimizer_bytes * (shard if plan.zero >= SHARD_OPTIMIZER else whole)
    if plan.zero >= SHARD_OPTIMIZER:
        out[2] += software.step_bytes * shard
    if SHARD_OPTIMIZER <= plan.zero < SHARD_PARAMETERS and max(copies, expert_copies) > 1.0:
        out[0] += software.gather_bytes * whole
    if plan.offload_optimizer:
        out[2] = 0.0


@lean_kernel
def gathered_bytes(shared, expert, head, plan, software):
    """Return the bytes of whole parameters and gradients that are alive where ranks hold shards of them (ZeRO 3).

    The layer at work and the next one, the head, which is not given up between its passes, and one layer's gradients.
    What a rank holds whole is not gathered, unless its shards are single precision (FSDP).

    Args:
        shared, expert, head: parameters of a layer but for its experts, of those, and of the head on one rank.
        plan, software: records.
    """
    if plan.zero < SHARD_PARAMETERS:
        return 0.0
    if plan.schedule != FSDP:
        if placement.shard_ranks(plan, plan.dp * plan.cp) == 1:
            shared, head = 0.0, 0.0
        if placement.shard_ranks(plan, placement.expert_copies(plan)) == 1:
            expert = 0.0
    layer = shared + expert
    return STORED_BYTES[plan.precision] * (2.0 * layer + head) + software.reduce_bytes * layer


@lean_kernel
def recomputed_bytes(model, plan, software):
    """Return the bytes of the one layer that is alive while full recomputation runs it again."""
    size = activation_bytes(plan)
    tokens = plan.micro_batch * model.seq / plan.cp
    hidden = tokens * model.hidden * size
    narrow = plan.tp if plan.sequence_parallel else 1
    inner = 2.0 * tokens * max(model.ffn, model.top_k * model.expert_ffn + model.shared_ffn) * size / plan.tp
    alive = 8.0 * hidden / plan.tp + 4.0 * hidden / narrow + inner
    if not plan.flash:
        pairs = plan.micro_batch * model.heads / plan.tp * (model.seq / plan.cp) * model.seq
        alive += pairs * (2.0 * size + (1.0 if software.dropout else 0.0))
    return alive
