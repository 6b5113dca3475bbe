"""The plan: how a training job is spread over GPUs, and what it does to fit and to overlap."""

from typing import Final

from lumos_df.model.rows import Column, row_type

RECOMPUTE: Final = ("none", "selective", "full")
"""What the backward pass computes again: nothing, attention's core, the whole layer."""

SCHEDULES: Final = ("1f1b", "interleaved", "zb-h1", "dualpipe", "gpipe", "fsdp")
"""Order of micro-batches in a pipeline; `fsdp`: no pipeline, parameters gathered where they are needed."""

DIMENSIONS: Final = ("tp", "cp", "ep", "dp", "pp")
"""What ranks are numbered by, innermost first unless a plan says otherwise."""

PLAN_COLUMNS: Final = (
    Column("tp", "tensor-parallel ranks"),
    Column("pp", "pipeline stages"),
    Column("vp", "virtual stages (model chunks) of a stage"),
    Column("dp", "data-parallel ranks"),
    Column("cp", "context-parallel ranks"),
    Column("ep", "expert-parallel ranks, out of tp * cp * dp"),
    Column("etp", "tensor-parallel ranks of an expert"),
    Column("sequence_parallel", "1: norms and dropout are split over tp along the sequence"),
    Column("micro_batch", "sequences of a micro-batch of one data-parallel rank"),
    Column("batch", "sequences of a step, all ranks together"),
    Column("recompute", "place in RECOMPUTE"),
    Column("schedule", "place in SCHEDULES"),
    Column("zero", "what dp shards: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters"),
    Column("precision", "place in PRECISIONS"),
    Column("flash", "1: attention never stores its scores"),
    Column("overlap_tp", "1: tensor-parallel communication runs beside GEMMs"),
    Column("overlap_dp", "1: gradient and parameter communication runs beside compute"),
    Column("overlap_pp", "1: pipeline communication runs beside compute"),
    Column("offload_optimizer", "1: optimizer states and step on the host"),
    Column("placement", "order of DIMENSIONS on ranks: base-8 digits, innermost lowest"),
    Column("software", "row of the sweep's software table"),
)
"""What a kernel knows of a plan."""

PLAN_ROW: Final = row_type(PLAN_COLUMNS)
"""Structured dtype of `Plan.row()`."""
