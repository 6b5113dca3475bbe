"""The rules of a legal plan in words, each with the field to change; `model.kernels.legality` says which are broken."""

from typing import Final, NamedTuple

from lumos_df.model.kernels.legality import (
    BATCH_DUALPIPE,
    BATCH_REPLICAS,
    CP_SEQUENCE,
    DP_REPLICATE_RANKS,
    DP_REPLICATE_ZERO,
    EP_EXPERTS,
    EP_RANKS,
    ETP_RANKS,
    ETP_WIDTH,
    GPUS,
    LORA_TARGETS_ALONE,
    MOST_GPUS,
    PP_FSDP,
    PP_LAYERS,
    PP_MICRO_BATCHES,
    PP_ODD,
    PRECISION,
    SCHEDULE_PIPELINE,
    TP_FFN,
    TP_HEADS,
    TP_KV_HEADS,
    TP_SEQUENCE,
    TP_SHARED_FFN,
    VP_TOO_FEW,
    VP_TOO_MANY,
    ZERO_FSDP,
)


class Rule(NamedTuple):
    """One way in which a plan does not go with a model or a GPU."""

    field: str
    """The plan's field to change."""
    text: str
    """What is wrong, for `str.format` with `plan`, `model` and `hardware`; reads on after `field = value: `."""


_RULE_OF: Final = {
    TP_HEADS: Rule("tp", "does not divide the model's {model.heads} heads"),
    TP_KV_HEADS: Rule(
        "tp", "neither divides the model's {model.kv_heads} key and value heads nor is a multiple of them"
    ),
    TP_FFN: Rule("tp", "does not divide the width {model.ffn} of the model's MLP"),
    CP_SEQUENCE: Rule("cp", "must divide half the sequence of {model.seq}, as each rank takes two pieces of it"),
    TP_SEQUENCE: Rule("tp", "with sequence_parallel it must divide each rank's sequence of {model.seq} / {plan.cp}"),
    PP_LAYERS: Rule("pp", "the model's {model.layers} layers are fewer than pp * vp = {plan.pp} * {plan.vp} chunks"),
    BATCH_REPLICAS: Rule("batch", "is no multiple of dp * micro_batch = {plan.dp} * {plan.micro_batch}"),
    SCHEDULE_PIPELINE: Rule("schedule", "'{plan.schedule}' needs a pipeline, and pp is 1"),
    VP_TOO_FEW: Rule("vp", "schedule 'interleaved' needs two chunks a stage or more"),
    VP_TOO_MANY: Rule("vp", "schedule '{plan.schedule}' has one chunk a stage; 'interleaved' has more"),
    PP_MICRO_BATCHES: Rule(
        "pp", "schedule 'interleaved' needs micro-batches (batch / dp / micro_batch) in multiples of it"
    ),
    PP_ODD: Rule("pp", "schedule 'dualpipe' needs an even number of stages"),
    BATCH_DUALPIPE: Rule(
        "batch", "schedule 'dualpipe' needs an even number of micro-batches, at least 2 * pp = 2 * {plan.pp}"
    ),
    PP_FSDP: Rule("pp", "schedule 'fsdp' has no pipeline"),
    ZERO_FSDP: Rule("zero", "schedule 'fsdp' shards gradients (2) or parameters, too (3)"),
    EP_EXPERTS: Rule("ep", "does not divide the model's {model.experts} experts"),
    EP_RANKS: Rule(
        "ep", "etp * ep = {plan.etp} * {plan.ep} does not divide tp * cp * dp = {plan.tp} * {plan.cp} * {plan.dp}"
    ),
    ETP_WIDTH: Rule("etp", "does not divide the width {model.expert_ffn} of an expert"),
    ETP_RANKS: Rule("etp", "does not divide tp * cp * dp = {plan.tp} * {plan.cp} * {plan.dp}"),
    TP_SHARED_FFN: Rule("tp", "does not divide the width {model.shared_ffn} of the model's shared experts"),
    PRECISION: Rule("precision", "{hardware.name} has no {plan.precision}"),
    DP_REPLICATE_RANKS: Rule("dp_replicate", "does not divide dp * cp = {plan.dp} * {plan.cp}"),
    DP_REPLICATE_ZERO: Rule("dp_replicate", "zero is 0, so nothing is sharded that groups could hold"),
    LORA_TARGETS_ALONE: Rule("lora_targets", "lora is 0, so there are no adapters"),
    GPUS: Rule("dp", f"tp * pp * cp * dp makes more than {MOST_GPUS:,} GPUs"),
}

RULES: Final = tuple(_RULE_OF[number] for number in range(len(_RULE_OF)))
"""The rules by their numbers in `legality`."""
