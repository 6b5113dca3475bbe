"""Which plans are legal for a model on a GPU: the rules, once, compiled, for one plan or a hundred thousand."""

from typing import Final, NamedTuple

import numpy as np

from lumos_df.jit import kernel, lean_kernel
from lumos_df.model.figures import MOST_GPUS


class Rule(NamedTuple):
    """One way in which a plan does not go with a model or a GPU."""

    field: str
    """The plan's field to change."""
    text: str
    """What is wrong, for `str.format` with `plan`, `model` and `hardware`; reads on after `field = value: `."""


RULES: Final = (
    Rule("tp", "does not divide the model's {model.heads} heads"),
    Rule("tp", "neither divides the model's {model.kv_heads} key and value heads nor is a multiple of them"),
    Rule("tp", "does not divide the width {model.ffn} of the model's MLP"),
    Rule("cp", "must divide half the sequence of {model.seq}, as each rank takes two pieces of it"),
    Rule("tp", "with sequence_parallel it must divide each rank's sequence of {model.seq} / {plan.cp}"),
    Rule("pp", "the model's {model.layers} layers are fewer than pp * vp = {plan.pp} * {plan.vp} chunks"),
    Rule("batch", "is no multiple of dp * micro_batch = {plan.dp} * {plan.micro_batch}"),
    Rule("schedule", "'{plan.schedule}' needs a pipeline, and pp is 1"),
    Rule("vp", "schedule 'interleaved' needs two chunks a stage or more"),
    Rule("vp", "schedule '{plan.schedule}' has one chunk a stage; 'interleaved' has more"),
    Rule("pp", "schedule 'interleaved' needs micro-batches (batch / dp / micro_batch) in multiples of it"),
    Rule("pp", "schedule 'dualpipe' needs an even number of stages"),
    Rule("batch", "schedule 'dualpipe' needs an even number of micro-batches, at least 2 * pp = 2 * {plan.pp}"),
    Rule("pp", "schedule 'fsdp' has no pipeline"),
    Rule("zero", "schedule 'fsdp' shards gradients (2) or parameters, too (3)"),
    Rule("ep", "does not divide the model's {model.experts} experts"),
    Rule("ep", "etp * ep = {plan.etp} * {plan.ep} does not divide tp * cp * dp = {plan.tp} * {plan.cp} * {plan.dp}"),
    Rule("etp", "does not divide the width {model.expert_ffn} of an expert"),
    Rule("etp", "does not divide tp * cp * dp = {plan.tp} * {plan.cp} * {plan.dp}"),
    Rule("tp", "does not divide the width {model.shared_ffn} of the model's shared experts"),
    Rule("precision", "{hardware.name} has no {plan.precision}"),
    Rule("dp", f"tp * pp * cp * dp makes more than {MOST_GPUS:,} GPUs"),
)
"""The rules, in the order in which `violated` numbers them."""

_GRADIENTS: Final = 2
_INTERLEAVED: Final = 1
_DUALPIPE: Final = 3
_GPIPE: Final = 4
_FSDP: Final = 5


@lean_kernel
def violated(plan, model, hardware):
    """Return the rules that a plan breaks as an int64: bit i stands for `RULES[i]`.

    Args:
        plan, model, hardware: records of PLAN_ROW, MODEL_ROW and HARDWARE_ROW whose fields are legal by themselves.
    """
    tp, pp, vp, cp = plan.tp, plan.pp, plan.vp, plan.cp
    etp, ep = plan.etp, plan.ep
    schedule = plan.schedule
    replicas = plan.dp * plan.micro_batch
    micro_batches = plan.batch // replicas
    found = 0
    found |= (model.heads % tp != 0) << 0
    found |= (model.kv_heads % tp != 0 and tp % model.kv_heads != 0) << 1
    found |= (model.dense_layers > 0 and model.ffn % tp != 0) << 2
    found |= (cp > 1 and model.seq % (2 * cp) != 0) << 3
    found |= (plan.sequence_parallel != 0 and model.seq % cp == 0 and model.seq % (cp * tp) != 0) << 4
    found |= (pp * vp > model.layers) << 5
    found |= (plan.batch % replicas != 0) << 6
    needs_pipeline = schedule != 0 and schedule != _GPIPE and schedule != _FSDP
    found |= (needs_pipeline and pp == 1) << 7
    found |= (schedule == _INTERLEAVED and vp < 2) << 8
    found |= (schedule != _INTERLEAVED and vp > 1) << 9
    found |= (schedule == _INTERLEAVED and micro_batches % pp != 0) << 10
    found |= (schedule == _DUALPIPE and pp % 2 != 0) << 11
    found |= (schedule == _DUALPIPE and (micro_batches % 2 != 0 or micro_batches < 2 * pp)) << 12
    found |= (schedule == _FSDP and pp > 1) << 13
    found |= (schedule == _FSDP and plan.zero < _GRADIENTS) << 14
    ranks = tp * cp * plan.dp
    found |= (max(model.experts, 1) % ep != 0) << 15
    found |= (ranks % etp == 0 and ranks % (etp * ep) != 0) << 16
    found |= (max(model.expert_ffn, 1) % etp != 0) << 17
    found |= (ranks % etp != 0) << 18
    found |= (model.shared_ffn % tp != 0) << 19
    found |= (hardware.peak_flops[plan.precision] == 0.0) << 20
    found |= (float(tp) * pp * cp * plan.dp > MOST_GPUS) << 21
    return found


@kernel
def violations(plans, model, hardware):
    """Return int64 [n]: `violated` of each of PLAN_ROW [n]."""
    found = np.empty(len(plans), np.int64)
    for row in range(len(plans)):
        found[row] = violated(plans[row], model, hardware)
    return found


@kernel
def legal(plans, model, hardware):
    """Return int8 [n]: for each plan the first of the rules that it breaks, counted from 1, or 0 when it is legal.

    Args:
        plans: PLAN_ROW [n] whose fields are legal by themselves.
        model, hardware: one record of MODEL_ROW and one of HARDWARE_ROW.
    """
    codes = np.zeros(len(plans), np.int8)
    for row in range(len(plans)):
        found = violated(plans[row], model, hardware)
        if found:
            code = 1
            while not found & 1:
                found >>= 1
                code += 1
            codes[row] = code
    return codes
