"""Which plans are legal for a model on a GPU: `model.rules`, compiled, for one plan or a hundred thousand."""

from typing import Final

import numpy as np

from lumos_df.base.jit import kernel, lean_kernel
from lumos_df.schema.plan_words import (
    DUALPIPE,
    FSDP,
    GPIPE,
    INTERLEAVED,
    LORA_ATTENTION,
    ONE_F_ONE_B,
    SHARD_GRADIENTS,
    SHARD_NOTHING,
)

MOST_GPUS: Final = 1 << 24
"""GPUs of a job at the most, 16,777,216: a hundred times the largest that is known, so more is a slip of the pen."""

(
    TP_HEADS,
    TP_KV_HEADS,
    TP_FFN,
    CP_SEQUENCE,
    TP_SEQUENCE,
    PP_LAYERS,
    BATCH_REPLICAS,
    SCHEDULE_PIPELINE,
    VP_TOO_FEW,
    VP_TOO_MANY,
    PP_MICRO_BATCHES,
    PP_ODD,
    BATCH_DUALPIPE,
    PP_FSDP,
    ZERO_FSDP,
    EP_EXPERTS,
    EP_RANKS,
    ETP_WIDTH,
    ETP_RANKS,
    TP_SHARED_FFN,
    PRECISION,
    GPUS,
    DP_REPLICATE_RANKS,
    DP_REPLICATE_ZERO,
    LORA_TARGETS_ALONE,
) = range(25)
"""Numbers of the rules: places in `model.rules.RULES`, and bits of what `violated` returns."""


@lean_kernel
def violated(plan, model, hardware):
    """Return the rules that a plan breaks as an int64: bit i stands for `model.rules.RULES[i]`.

    Args:
        plan, model, hardware: records of PLAN_ROW, MODEL_ROW and HARDWARE_ROW whose fields are legal by themselves.
    """
    tp, pp, vp, cp = plan.tp, plan.pp, plan.vp, plan.cp
    etp, ep = plan.etp, plan.ep
    schedule = plan.schedule
    replicas = plan.dp * plan.micro_batch
    micro_batches = plan.batch // replicas
    broken = 0
    broken |= (model.heads % tp != 0) << TP_HEADS
    broken |= (model.kv_heads % tp != 0 and tp % model.kv_heads != 0) << TP_KV_HEADS
    broken |= (model.dense_layers > 0 and model.ffn % tp != 0) << TP_FFN
    broken |= (cp > 1 and model.seq % (2 * cp) != 0) << CP_SEQUENCE
    broken |= (plan.sequence_parallel != 0 and model.seq % cp == 0 and model.seq % (cp * tp) != 0) << TP_SEQUENCE
    # Embedding and logits count as a layer each where chunks are as many (Megatron's account for them in the split).
    broken |= (pp * vp > model.layers and pp * vp != model.layers + 2) << PP_LAYERS
    broken |= (plan.batch % replicas != 0) << BATCH_REPLICAS
    needs_pipeline = schedule != ONE_F_ONE_B and schedule != GPIPE and schedule != FSDP
    broken |= (needs_pipeline and pp == 1) << SCHEDULE_PIPELINE
    broken |= (schedule == INTERLEAVED and vp < 2) << VP_TOO_FEW
    broken |= (schedule != INTERLEAVED and vp > 1) << VP_TOO_MANY
    broken |= (schedule == INTERLEAVED and micro_batches % pp != 0) << PP_MICRO_BATCHES
    broken |= (schedule == DUALPIPE and pp % 2 != 0) << PP_ODD
    broken |= (schedule == DUALPIPE and (micro_batches % 2 != 0 or micro_batches < 2 * pp)) << BATCH_DUALPIPE
    broken |= (schedule == FSDP and pp > 1) << PP_FSDP
    broken |= (schedule == FSDP and plan.zero < SHARD_GRADIENTS) << ZERO_FSDP
    ranks = tp * cp * plan.dp
    broken |= (max(model.experts, 1) % ep != 0) << EP_EXPERTS
    broken |= (ranks % etp == 0 and ranks % (etp * ep) != 0) << EP_RANKS
    broken |= (max(model.expert_ffn, 1) % etp != 0) << ETP_WIDTH
    broken |= (ranks % etp != 0) << ETP_RANKS
    broken |= (model.shared_ffn % tp != 0) << TP_SHARED_FFN
    broken |= (hardware.peak_flops[plan.precision] == 0.0) << PRECISION
    broken |= (float(tp) * pp * cp * plan.dp > MOST_GPUS) << GPUS
    broken |= (cp * plan.dp % plan.dp_replicate != 0) << DP_REPLICATE_RANKS
    broken |= (plan.dp_replicate > 1 and plan.zero == SHARD_NOTHING) << DP_REPLICATE_ZERO
    broken |= (plan.lora == 0 and plan.lora_targets != LORA_ATTENTION) << LORA_TARGETS_ALONE
    return broken


@lean_kernel
def first_broken(broken):
    """Return the number of the first rule in what `violated` returns, counted from 1; 0 where none is broken."""
    code = 0
    while broken:
        code += 1
        broken = 0 if broken & 1 else broken >> 1
    return code


@kernel
def violations(plans, model, hardware):
    """Return int64 [n]: `violated` of each of PLAN_ROW [n]."""
    broken = np.empty(len(plans), np.int64)
    for row in range(len(plans)):
        broken[row] = violated(plans[row], model, hardware)
    return broken


@kernel
def legal(plans, model, hardware):
    """Return int8 [n]: for each plan the first of the rules that it breaks, counted from 1, or 0 when it is legal.

    Args:
        plans: PLAN_ROW [n] whose fields are legal by themselves.
        model, hardware: one record of MODEL_ROW and one of HARDWARE_ROW.
    """
    codes = np.zeros(len(plans), np.int8)
    for row in range(len(plans)):
        codes[row] = first_broken(violated(plans[row], model, hardware))
    return codes
