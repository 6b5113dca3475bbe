"""Tables of jobs that never ran, written by `lumos-df estimate` and `sweep`."""

from typing import Final

from lumos_df.schema.parts import STEP_PARTS
from lumos_df.schema.table import table

ESTIMATES: Final = table(
    "estimates",
    "One row an estimated job: what a step would take by `lumos-df estimate`; nothing of it was measured.",
    ("job", "string", "Job of the corpus that it estimates (`traces.job`); null where it stands for none."),
    ("model", "string", "Model."),
    ("hardware", "string", "GPU and its links."),
    ("software", "string", "Software profile."),
    ("provenance", "string", "Where the times came from: `modelled`."),
    ("gpus", "int64", "GPUs of the job."),
    *(
        (name, "int64", doc)
        for name, doc in (
            ("tp", "Tensor-parallel ranks."),
            ("pp", "Pipeline stages."),
            ("vp", "Virtual stages of a stage."),
            ("dp", "Data-parallel ranks."),
            ("cp", "Context-parallel ranks."),
            ("ep", "Expert-parallel ranks."),
            ("etp", "Tensor-parallel ranks of an expert."),
            ("micro_batch", "Sequences of a micro-batch of one data-parallel rank."),
            ("batch", "Sequences of a step, all ranks together."),
            ("zero", "ZeRO stage."),
            ("dp_replicate", "Groups of ranks, each of which holds all that is sharded."),
        )
    ),
    ("sequence_parallel", "bool", "Norms and dropout are split along the sequence."),
    ("recompute", "string", "What the backward pass computes again: none, selective, full, light, products."),
    ("schedule", "string", "Pipeline schedule."),
    ("precision", "string", "Number format of matrix products."),
    ("flash", "bool", "Attention never stores its scores."),
    ("overlap_tp", "bool", "Tensor-parallel communication runs while GEMMs do."),
    ("overlap_dp", "bool", "Gradient and parameter communication runs while compute does."),
    ("overlap_pp", "bool", "Pipeline communication runs while compute does."),
    ("offload_optimizer", "bool", "Optimizer states and step are on the host."),
    ("lora", "int64", "Rank of the adapters that alone are trained; 0: every parameter is."),
    (
        "lora_targets",
        "string",
        "What adapters are beside: attention (its projections), all (feed-forward products, too).",
    ),
    ("placement", "string", "Order of dimensions on ranks, innermost first."),
    *(
        (f"{name}_ns", "int64", f"{doc}, ns.")
        for name, doc in (
            ("step", "Duration of a step"),
            ("low", "Lower end of the interval that holds the truth 8 times of 10"),
            ("high", "Upper end of that interval"),
            *((part.name, part.modelled) for part in STEP_PARTS),
            ("gemm", "Matrix products, recomputation aside"),
            ("attention", "Attention, recomputation aside"),
            ("elementwise", "Memory-bound kernels, recomputation aside"),
            ("recompute", "What the backward pass computes again"),
            ("optimizer", "The optimizer's step"),
            ("tp_exposed", "Tensor-parallel communication that nothing hides"),
            ("cp_exposed", "Context-parallel communication that nothing hides"),
            ("ep_exposed", "Expert-parallel communication that nothing hides"),
            ("pp_exposed", "Sends between stages that stop a stage"),
            ("dp_exposed", "Gradient and parameter communication that nothing hides"),
            ("bubble", "The stage waits for other stages"),
            ("host", "The GPU waits for the host"),
        )
    ),
    ("tokens_per_s_per_gpu", "float64", "Tokens a second and GPU."),
    ("mfu_pct", "float64", "FLOP that the model asks for over the peak of its precision, percent."),
    ("hfu_pct", "float64", "The same with what is computed again, percent."),
    *(
        (f"{name}_bytes", "int64", doc)
        for name, doc in (
            ("memory", "Memory of the fullest GPU."),
            ("weights", "Of it: parameters."),
            ("gradients", "Of it: gradients."),
            ("optimizer", "Of it: optimizer states."),
            ("activations", "Of it: activations at their most."),
            ("logits", "Of it: logits."),
            ("reserve", "Of it: libraries, buffers and fragments."),
            ("memory_margin", "What is left on it; negative where it does not fit."),
        )
    ),
    ("memory_stage", "int64", "Pipeline stage of the fullest GPU."),
    ("fits", "bool", "The memory is at most that of the GPU."),
    ("energy_j", "float64", "Joules of all GPUs, from power limit and idle power; not measured."),
)

ESTIMATE_OPERATORS: Final = table(
    "estimate_operators",
    "One row an operator and phase of one block of each kind, for one micro-batch on one rank: what an estimate is made of.",
    ("op_id", "int32", "Number of the row in its estimate, from 0."),
    ("block", "string", "attention, mlp, experts, embedding, head."),
    ("blocks", "int64", "Blocks of this kind in the whole model."),
    ("kind", "string", "`kernel`, as in `operators`."),
    ("family", "string", "gemm, grouped_gemm, attention, elementwise, or the collective."),
    ("name", "string", "What it does: norm, query_key_value, mlp_up, ..."),
    ("phase", "string", "forward, backward, recompute, as in `operators`."),
    ("dur", "int64", "Duration, ns; the backward pass of a matrix product is both of its products."),
    ("group", "string", "Collectives: tp, cp, ep, etp; null elsewhere."),
    ("group_size", "int64", "Ranks of the group."),
    ("m", "float64", "Matrix products: rows. Attention: queries of a sequence."),
    ("n", "float64", "Matrix products: columns. Attention: keys of a sequence."),
    ("k", "float64", "Matrix products: inner length. Attention: width of a head."),
    ("batch", "float64", "Products in one kernel. Attention: sequences times heads."),
    ("bytes", "float64", "Collectives: payload as nccl-tests count it. Memory-bound kernels: bytes moved."),
    ("flops", "int64", "Floating-point operations of matrix products, no mask taken off."),
)

OPERATOR_SOURCES: Final = table(
    "operator_sources",
    "One row an operator of an estimated trace: which measured one it is made from, and how its time is known.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "The operator."),
    ("source_trace_id", "string", "Trace of the measured operator."),
    ("source_op_id", "int32", "That operator; null where none was measured."),
    ("provenance", "string", "measured, rescaled, interpolated, modelled."),
    ("error_pct", "float64", "Likely error of its duration, per cent."),
)
