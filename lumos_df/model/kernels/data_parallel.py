"""What data parallelism adds to a stage's step: gradient reduction, parameter gathering, the optimizer."""

from typing import Final

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import placement
from lumos_df.model.kernels.cost import ranks_seconds
from lumos_df.schema.collective_kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from lumos_df.schema.dtypes import OPERAND_BYTES, STORED_BYTES
from lumos_df.schema.plan_words import CP, DP, SHARD_GRADIENTS, SHARD_NOTHING, SHARD_PARAMETERS

EXPOSED_S: Final = 0
HIDDEN_S: Final = 1
OPTIMIZER_S: Final = 2
COLUMNS: Final = 3
"""What `data_parallel_seconds` writes: communication that nothing hides, what is hidden, the optimizer's step."""

_LEFT_OVER: Final = 0.05
"""Threshold, share of gradient communication. So much of it never hides. Evidence: a judgement; the last bucket has
nothing left to run behind, and how large it is differs."""


@lean_kernel
def data_parallel_seconds(
    shared,
    expert,
    trained,
    trained_expert,
    layers,
    compute_s,
    backward_s,
    micro_batches,
    plan,
    hardware,
    software,
    out,
):
    """Write what data parallelism adds to the step of one stage into `out` [COLUMNS].

    Args:
        shared, expert: parameters of a rank of the stage that all data-parallel ranks hold, and those of its experts.
        trained, trained_expert: those of each that have gradients.
        layers: layers of the stage.
        compute_s: seconds of one micro-batch, forward and backward.
        backward_s: seconds of its backward pass.
        micro_batches: micro-batches of a step.
        plan, hardware, software: records.
        out: float64 [COLUMNS].
    """
    # Context-parallel ranks hold the same weights, so they reduce with the data-parallel ones.
    ranks = plan.dp * plan.cp
    stride = placement.group_stride(plan, DP)
    if plan.cp > 1:
        stride = min(stride, placement.group_stride(plan, CP))
    copies = placement.expert_copies(plan)
    copies_stride = placement.expert_group_stride(plan, DP)
    shards, expert_shards = placement.shard_ranks(plan, ranks), placement.shard_ranks(plan, copies)
    # What groups of ranks have summed up among themselves they sum up with each other, once a step.
    share = software.network_share
    replicated = _reduce_seconds(
        ALL_REDUCE, trained / shards, ranks // shards, stride * shards, hardware, software, share
    )
    replicated += _reduce_seconds(
        ALL_REDUCE,
        trained_expert / expert_shards,
        copies // expert_shards,
        copies_stride * expert_shards,
        hardware,
        software,
        share,
    )
    behind = software.dp_hidden * _last_micro_batches(micro_batches, plan)
    if plan.zero >= SHARD_PARAMETERS:
        each = _unit_seconds(shared, trained, shards, stride, plan, hardware, software)
        each += _unit_seconds(expert, trained_expert, expert_shards, copies_stride, plan, hardware, software)
        total = micro_batches * each + replicated
        exposed = total
        if plan.overlap_dp:
            # A layer is gathered, and another's gradients scattered, while a third computes, in both passes; the first
            # gather of either has nothing before it.
            ends = 2.0 * each / (3.0 * max(layers, 1.0))
            exposed = micro_batches * (max(each - compute_s, 0.0) + ends)
            exposed += max(replicated - behind * backward_s, _LEFT_OVER * replicated)
            exposed = min(exposed, total)
    else:
        scattered = _reduce_seconds(REDUCE_SCATTER, trained, shards, stride, hardware, software, share)
        scattered += _reduce_seconds(
            REDUCE_SCATTER, trained_expert, expert_shards, copies_stride, hardware, software, share
        )
        gathered = _gather_seconds(trained, shards, stride, plan, hardware, share)
        gathered += _gather_seconds(trained_expert, expert_shards, copies_stride, plan, hardware, share)
        last = scattered + replicated
        total = last + gathered
        exposed = total
        if plan.overlap_dp and (plan.zero == SHARD_NOTHING or software.overlaps_sharded):
            # Gradients go while the last micro-batch's backward pass still makes others, parameters come while the
            # first micro-batch's forward pass needs only some.
            exposed = max(last - behind * backward_s, _LEFT_OVER * last)
            exposed += max(gathered - behind * (compute_s - backward_s), _LEFT_OVER * gathered)
        if plan.zero == SHARD_GRADIENTS:
            # Who keeps gradients of a shard alone scatters those of every micro-batch, behind its own backward pass.
            each = _scatter_seconds(trained, shards, stride, hardware, software)
            each += _scatter_seconds(trained_expert, expert_shards, copies_stride, hardware, software)
            total += (micro_batches - 1.0) * each
            if plan.overlap_dp and software.overlaps_sharded:
                each = max(each - software.dp_hidden * backward_s, _LEFT_OVER * each)
            exposed += (micro_batches - 1.0) * each
    hidden = total - exposed
    local = trained / shards + trained_expert / expert_shards
    bandwidth = hardware.hbm_bandwidth * hardware.memory[1]
    if plan.offload_optimizer:
        # Gradients down and parameters up; the host's own memory is slower than that by less than its update takes.
        bandwidth = hardware.pcie_bandwidth
        out[OPTIMIZER_S] = local * (software.gradient_bytes + STORED_BYTES[plan.precision]) / bandwidth
    else:
        out[OPTIMIZER_S] = local * software.optimizer_traffic / bandwidth
    out[EXPOSED_S] = exposed + software.slowdown * hidden
    out[HIDDEN_S] = hidden


@lean_kernel
def _last_micro_batches(micro_batches, plan):
    """Return during how many micro-batches' backward passes of a stage its gradients become ready.

    One, the last, without chunks. Interleaved (Narayanan et al. 2021), a stage runs pp micro-batches on a chunk before
    it turns to the next, so all chunks but the last are ready while the last pp run on the others; parameters are
    needed likewise, chunk by chunk.
    """
    return max(1.0, min(plan.pp, micro_batches) * (1.0 - 1.0 / plan.vp))


@lean_kernel
def _reduce_seconds(collective, parameters, ranks, stride, hardware, software, share):
    """Return seconds to reduce the gradients of `parameters`: to all ranks, or to the one that updates them.

    `share`: of the network's rate, as `cost.ranks_seconds` has it.
    """
    if ranks <= 1 or parameters <= 0.0:
        return 0.0
    return ranks_seconds(collective, parameters * software.reduce_bytes, ranks, stride, hardware, share)


@lean_kernel
def _gather_seconds(parameters, ranks, stride, plan, hardware, share):
    """Return seconds to gather `parameters`, as matrix products read them: in 8 bits where these do.

    Megatron-Core's `fp8_param_gather` and torchtitan's `enable_fsdp_float8_all_gather`.
    """
    if ranks <= 1 or parameters <= 0.0:
        return 0.0
    payload = parameters * OPERAND_BYTES[plan.precision]
    return ranks_seconds(ALL_GATHER, payload, ranks, stride, hardware, share)


@lean_kernel
def _unit_seconds(parameters, trained, ranks, stride, plan, hardware, software):
    """Return seconds of a micro-batch with sharded parameters: gathered for both passes, gradients scattered.

    They have the network's whole rate: both profiles of FSDP do, and of torchtitan on 32 B300 a profiler saw 2.6 s a
    step where 2.0 are told so, and 9 with the share of what is reduced once a step.
    """
    if ranks <= 1 or parameters <= 0.0:
        return 0.0
    gathered = _gather_seconds(parameters, ranks, stride, plan, hardware, 1.0)
    return 2.0 * gathered + _scatter_seconds(trained, ranks, stride, hardware, software)


@lean_kernel
def _scatter_seconds(trained, ranks, stride, hardware, software):
    """Return seconds to scatter a micro-batch's gradients, layer after layer, at the network's whole rate."""
    return _reduce_seconds(REDUCE_SCATTER, trained, ranks, stride, hardware, software, 1.0)
