"""What the operators of a block cost: seconds by kind of work, for each pass over the block.

The backward of a matrix product is two products (input and weight gradient), of an attention its own kernel, of a
pass over memory another pass. Collectives are mirrored: what was gathered is scattered, and what was reduced once in
the forward pass is reduced once in the backward pass.
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.kernels import network, placement, ring_attention
from lumos_df.model.kernels.attention import attention_seconds, unfused_attention_seconds
from lumos_df.model.kernels.elementwise import elementwise_seconds
from lumos_df.model.kernels.gemm import WEIGHT_GRADIENT, gemm_seconds, misaligned
from lumos_df.model.kernels.sparse_attention import chooses
from lumos_df.schema.collective_kinds import ALL_GATHER, REDUCE_SCATTER, SEND
from lumos_df.schema.dtypes import ATTENTION_PRECISION, BF16, FP4, FP8, FP8_BLOCK, FP32, OPERAND_BYTES, STORED_BYTES
from lumos_df.schema.plan_words import BEST_ATTENTION, CP, EP, ETP, PP, TP, TRITON

FORWARD: Final = 0
BACKWARD_INPUT: Final = 1
BACKWARD_WEIGHT: Final = 2
PASSES: Final = 3
"""Rows of a cost: the passes over a block."""

GEMM_S: Final = 0
ATTENTION_S: Final = 1
ELEMENTWISE_S: Final = 2
TP_S: Final = 3
CP_S: Final = 4
EP_S: Final = 5
LAUNCHES: Final = 6
COLLECTIVES: Final = 7
DOUBLINGS: Final = 8
KINDS: Final = 9
"""Columns of a cost: seconds, but for the last three, which count; doublings of ranks, of all its collectives."""

TRITON_FACTOR: Final = 1.8
"""Threshold, times. Time of FlashAttention in Triton over that of FlashAttention-2. Evidence: 1.3 to 2.5 in section 4.1
of arXiv 2307.08691, whose geometric mean this is; llm-foundry's runs have 1.78."""

_SCALED_BYTES: Final = 1 + 4 / 128
"""Bytes of an 8-bit element that is sent, with its part of a float32 scale for each 128 of them (DeepSeek, DeepEP)."""

NETWORK: Final = 50e9
"""Bytes/s of a GPU's part of the network that a software's `network_share` is a share of: 400 Gb/s."""


@lean_kernel
def block_cost(ops, start, stop, model, plan, hardware, software, cost):
    """Time the operators `start` to `stop` of `ops` and add them to `cost`, float64 [PASSES, KINDS].

    The seconds of each pass are also written into the rows (columns FORWARD_S, INPUT_S, WEIGHT_S).
    """
    for i in range(start, stop):
        family = int(ops[i, op.FAMILY])
        launches = ops[i, op.LAUNCHES]
        kind = ELEMENTWISE_S
        forward, backward, weight = 0.0, 0.0, 0.0
        if family == op.GEMM or family == op.GROUPED_GEMM:
            kind = GEMM_S
            m, n, k, batch = ops[i, op.M], ops[i, op.N], ops[i, op.K], ops[i, op.BATCH]
            factor = software.compute_factor * hardware.power_factor
            if family == op.GROUPED_GEMM:
                factor *= software.expert_factor
            trained = plan.lora == 0 or ops[i, op.NAME] >= op.ADAPTER_DOWN
            precision = _precision(int(ops[i, op.NAME]), model, plan)
            kernels = FP8_BLOCK if software.fp8_blocks and precision == FP8 else precision
            if ops[i, op.NAME] == op.HEAD:
                # A vocabulary is the one width that may be odd.
                factor *= misaligned(n, STORED_BYTES[precision])
            wide = _WIDE_LAYERS if precision == FP4 and model.mamba_layers > 0 else 0.0
            forward = _product(m, n, k, batch, precision, kernels, wide, hardware) * factor
            backward = _product(m, k, n, batch, precision, kernels, wide, hardware) * factor
            if OPERAND_BYTES[precision] < STORED_BYTES[precision]:
                # What a product reads is converted first, and turned round, too, for the weight gradient.
                converted = STORED_BYTES[precision] + (2.0 if trained else 1.0) * OPERAND_BYTES[precision]
                forward += _pass(batch * m * k * converted, hardware) * software.memory_factor
                backward += _pass(batch * m * n * converted, hardware) * software.memory_factor
            # Frozen weights have no gradient.
            if trained:
                weight = _product(k, n, m, batch, precision, kernels, wide, hardware) * factor
                weight *= hardware.gemm[kernels][WEIGHT_GRADIENT]
                cost[BACKWARD_WEIGHT, LAUNCHES] += launches
        elif family == op.ATTENTION:
            kind = ATTENTION_S
            if ops[i, op.NAME] == op.INDEX_SCORES:
                # One product of attention's two, and two of its five.
                forward = 0.5 * _fused_attention(ops, i, model, plan, hardware, software, False, 0)
                backward = 0.4 * _fused_attention(ops, i, model, plan, hardware, software, True, 0)
            else:
                forward = _attention(ops, i, model, plan, hardware, software, False)
                backward = _attention(ops, i, model, plan, hardware, software, True)
        elif family == op.ELEMENTWISE:
            forward = _pass(ops[i, op.BYTES], hardware) * software.memory_factor
            backward = _pass(ops[i, op.BACKWARD_BYTES], hardware) * software.memory_factor
        else:
            group = int(ops[i, op.GROUP])
            kind = CP_S if group == CP else EP_S if group == EP else TP_S
            collective = family - op.COLLECTIVE
            payload, crossing = ops[i, op.BYTES], 1.0
            if group == EP and software.token_once:
                once, crossing = _once(model.top_k, plan, hardware)
                payload *= once
            there, back = payload, payload
            if software.fp8_dispatch and plan.precision == FP8:
                if ops[i, op.NAME] == op.DISPATCH:
                    there *= _SCALED_BYTES / STORED_BYTES[FP8]
                elif ops[i, op.NAME] == op.COMBINE:
                    back *= _SCALED_BYTES / STORED_BYTES[FP8]
            if group == CP and software.zigzag:
                # Backwards, gradients of the keys go round behind them.
                forward, backward = ring_seconds(payload, plan, hardware), ring_seconds(2.0 * payload, plan, hardware)
            else:
                forward = group_seconds(collective, there, group, plan, hardware, software, crossing)
                backward = group_seconds(_mirrored(collective), back, group, plan, hardware, software, crossing)
            cost[FORWARD, COLLECTIVES] += 1.0
            cost[BACKWARD_INPUT, COLLECTIVES] += 1.0
            doublings = np.log2(_ranks(group, plan))
            cost[FORWARD, DOUBLINGS] += doublings
            cost[BACKWARD_INPUT, DOUBLINGS] += doublings
            launches = 0.0
        cost[FORWARD, kind] += forward
        cost[BACKWARD_INPUT, kind] += backward
        cost[BACKWARD_WEIGHT, kind] += weight
        cost[FORWARD, LAUNCHES] += launches
        cost[BACKWARD_INPUT, LAUNCHES] += launches
        ops[i, op.FORWARD_S] = forward
        ops[i, op.INPUT_S] = backward
        ops[i, op.WEIGHT_S] = weight


@lean_kernel
def _ranks(group, plan):
    """Return the ranks of `group`, a place in `plan_words.GROUPS` of those inside a layer."""
    if group == TP:
        return plan.tp
    if group == CP:
        return plan.cp
    return plan.ep if group == EP else plan.etp


@lean_kernel
def group_seconds(collective, payload, group, plan, hardware, software, crossing=1.0):
    """Return seconds of a collective among the ranks of `group`.

    Args:
        collective: place in `schema.COLLECTIVES`.
        payload: bytes as nccl-tests count them.
        group: place in `plan_words.GROUPS`.
        plan, hardware, software: records.
        crossing: as `network.collective_seconds` has it.
    """
    if group == TP:
        size, stride = plan.tp, placement.group_stride(plan, TP)
    elif group == CP:
        size, stride = plan.cp, placement.group_stride(plan, CP)
    elif group == EP:
        size, stride = plan.ep, placement.expert_group_stride(plan, EP)
    elif group == ETP:
        size, stride = plan.etp, placement.expert_group_stride(plan, TP)
    else:
        size, stride = 2, placement.group_stride(plan, PP)
    # Experts' exchanges and sends go straight to one card each, without rings through all of them.
    share = 1.0 if group == EP or group == PP else software.network_share
    return ranks_seconds(collective, payload, size, stride, hardware, share, crossing)


@lean_kernel
def ring_seconds(payload, plan, hardware):
    """Return seconds in which each context-parallel rank has passed on the parts of all others, one after the other.

    All wait for the longest way to a neighbour: to another node, if the ring leaves one.

    Args:
        payload: bytes of all parts together.
        plan, hardware: records.
    """
    stride = placement.group_stride(plan, CP)
    if placement.members_per_domain(plan.cp, stride, hardware.scale_up_gpus) < plan.cp:
        stride = hardware.scale_up_gpus
    return (plan.cp - 1.0) * ranks_seconds(SEND, payload / plan.cp, 2, stride, hardware)


@lean_kernel
def ranks_seconds(collective, payload, size, stride, hardware, share=1.0, crossing=1.0):
    """Return seconds of a collective, by `schema.COLLECTIVES`, among `size` ranks that are `stride` apart.

    Args:
        collective, payload, crossing: as `network.collective_seconds` has them.
        size, stride: ranks, and the distance between neighbours.
        hardware: a record.
        share: of the network's rate that it reaches, were that `NETWORK`. What is lost is time a byte beside the
            cards (copies and sums on the GPU, which computes meanwhile; waits): as much on a slower network, so that
            the share of that is larger.
    """
    beside = (1.0 / share - 1.0) / NETWORK
    return network.collective_seconds(
        collective,
        payload,
        size,
        placement.members_per_domain(size, stride, hardware.scale_up_gpus),
        hardware.scale_up_bandwidth,
        1.0 / (1.0 / hardware.scale_out_bandwidth + beside),
        hardware.scale_up,
        hardware.scale_out,
        crossing,
    )


@lean_kernel
def _once(top_k, plan, hardware):
    """Return what sending a token once to a place saves of an expert-parallel exchange: (all traffic, what crosses).

    Of `n` places, `k` experts drawn evenly meet n * (1 - (1 - 1 / n) ** k) different ones: ranks for the traffic inside
    a node, nodes for what crosses (DeepEP, HybridEP: a node passes on what came for several of its ranks). The first is
    over one copy an expert, the second over the first.
    """
    size = float(plan.ep)
    near = placement.members_per_domain(plan.ep, placement.expert_group_stride(plan, EP), hardware.scale_up_gpus)
    nodes = np.ceil(size / near)
    ranks_met = size * (1.0 - (1.0 - 1.0 / size) ** top_k)
    nodes_met = nodes * (1.0 - (1.0 - 1.0 / nodes) ** top_k)
    return ranks_met / top_k, nodes_met / ranks_met


@lean_kernel
def _mirrored(collective):
    if collective == ALL_GATHER:
        return REDUCE_SCATTER
    if collective == REDUCE_SCATTER:
        return ALL_GATHER
    return collective


@lean_kernel
def _precision(name, model, plan):
    """Return the precision of a product.

    Logits, the router and adapters have 16 bits in every recipe of fewer. In 4 bits a hybrid model keeps projections of
    attention and into experts in 16, and those of state-space mixers in 8 (NVIDIA's recipe of Nemotron 3).
    """
    precision = plan.precision
    if name == op.HEAD or name == op.ROUTER or name == op.INDEX_WEIGHTS or name >= op.ADAPTER_DOWN:
        return ATTENTION_PRECISION[precision]
    if precision == FP4 and model.mamba_layers > 0:
        if name == op.STATE_INPUT or name == op.STATE_OUTPUT:
            return FP8
        if name == op.QKV or name == op.OUTPUT or name == op.LATENT_DOWN or name == op.LATENT_UP:
            return BF16
    return precision


@lean_kernel
def _product(m, n, k, batch, precision, kernels, wide, hardware):
    """Return seconds of a product, the mean over layers of which a share `wide` has 16 bits."""
    seconds = _product_of(m, n, k, batch, precision, kernels, hardware)
    if wide > 0.0:
        return (1.0 - wide) * seconds + wide * _product_of(m, n, k, batch, BF16, BF16, hardware)
    return seconds


_WIDE_LAYERS: Final = 0.15
"""Threshold, share of layers. So many of a hybrid model keep 16 bits where the others have 4. Evidence: NVIDIA's recipe
for NVFP4 (arXiv 2509.25149), 10 of 62 layers, and its script of Nemotron 3 Ultra, 16 of 108."""


@lean_kernel
def _product_of(m, n, k, batch, precision, kernels, hardware):
    return gemm_seconds(
        m,
        n,
        k,
        batch,
        OPERAND_BYTES[precision],
        hardware.peak_flops[precision],
        hardware.hbm_bandwidth,
        hardware.sms,
        hardware.gemm[kernels],
    )


@lean_kernel
def _pass(moved_bytes, hardware):
    return elementwise_seconds(moved_bytes, hardware.hbm_bandwidth, hardware.memory)


@lean_kernel
def _attention(ops, i, model, plan, hardware, software, backward):
    if plan.flash:
        fused = _fused_attention(ops, i, model, plan, hardware, software, backward, 0)
        if 0 < model.window < model.seq:
            share = model.window_layers / model.attention_layers
            windowed = _fused_attention(ops, i, model, plan, hardware, software, backward, model.window)
            fused += share * (windowed - fused)
        if chooses(model):
            fused = min(fused, _chosen_attention(ops, i, model, plan, hardware, software, backward))
        return fused
    precision = ATTENTION_PRECISION[plan.precision]
    return unfused_attention_seconds(
        plan.micro_batch,
        ops[i, op.M],
        ops[i, op.N],
        ops[i, op.BATCH] / plan.micro_batch,
        ops[i, op.K],
        software.dropout > 0,
        backward,
        OPERAND_BYTES[precision],
        hardware.peak_flops[precision],
        hardware.hbm_bandwidth,
        hardware.sms,
        hardware.gemm[precision],
        hardware.memory,
    )


@lean_kernel
def kernel_factor(precision, hardware, software):
    """Return the time of a software's fused attention over that of the GPU's best alone and with all power.

    Its products are slower in training as the software's others are, and with less power, for both are of the pace that
    the GPU keeps up.
    """
    pace = software.compute_factor * hardware.power_factor
    if software.attention == BEST_ATTENTION or precision == FP32:
        # FlashAttention has no code for single precision.
        return software.attention_factor * pace
    if hardware.flash2_factor <= 0.0:
        # Where a GPU has no FlashAttention-2, how well a software's does says nothing.
        return pace
    # Older kernels leave a GPU idle for so long that its pace does not limit them.
    older = max(hardware.flash2_factor, pace)
    return software.attention_factor * older * (TRITON_FACTOR if software.attention == TRITON else 1.0)


@lean_kernel
def _chosen_attention(ops, i, model, plan, hardware, software, backward):
    """Return seconds of attention to the keys that an indexer chose.

    All heads read the compressed vectors of a query's keys (MQA mode of MLA), which are wider than a head's key and
    value, so short sequences are faster with all keys and a mask; who runs them so has the faster of both.
    """
    precision = ATTENTION_PRECISION[plan.precision]
    return kernel_factor(precision, hardware, software) * attention_seconds(
        plan.micro_batch,
        ops[i, op.M],
        model.chosen_keys,
        ops[i, op.BATCH] / plan.micro_batch,
        1.0,
        model.kv_rank + 0.5 * model.rope_dim,
        False,
        backward,
        OPERAND_BYTES[precision],
        hardware.peak_flops[precision],
        hardware.hbm_bandwidth,
        hardware.sms,
        hardware.attention[precision],
    )


@lean_kernel
def _fused_attention(ops, i, model, plan, hardware, software, backward, window):
    precision = ATTENTION_PRECISION[plan.precision]
    starts, beside = 1.0, 0.0
    if software.zigzag and plan.cp > 1:
        starts = ring_attention.starts(plan)
        queries = ops[i, op.BATCH] * ops[i, op.M] * ops[i, op.K]
        beside = _pass(ring_attention.merged_bytes(model, plan, queries, backward), hardware) * software.memory_factor
    return beside + kernel_factor(precision, hardware, software) * attention_seconds(
        plan.micro_batch,
        ops[i, op.M],
        ops[i, op.N],
        ops[i, op.BATCH] / plan.micro_batch,
        max(model.kv_heads / plan.tp, 1.0),
        ops[i, op.K],
        True,
        backward,
        OPERAND_BYTES[precision],
        hardware.peak_flops[precision],
        hardware.hbm_bandwidth,
        hardware.sms,
        hardware.attention[precision],
        software.zigzag,
        window,
        model.window_keys,
        starts,
    )
