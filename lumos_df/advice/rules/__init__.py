"""The rules of advice: a module each, whose `remedies` proposes changes to a job."""

from typing import Final

from lumos_df.advice.remedy import Rule
from lumos_df.advice.rules import (
    attention_precision,
    copy_to_host,
    data_loader,
    exchange_size,
    faster_hardware,
    fused_elementwise,
    gpu_silence,
    gradient_buckets,
    gradient_overlap,
    gradient_precision,
    host_operator,
    host_silence,
    kernel_precision,
    kernel_shapes,
    larger_micro_batch,
    late_rank,
    launch_bound,
    pageable_copy,
    recomputation,
    stall,
    synchronisation,
    unfused_attention,
    unfused_optimizer,
    wave_quantisation,
)

RULES: Final[tuple[Rule, ...]] = (
    attention_precision.remedies,
    copy_to_host.remedies,
    data_loader.remedies,
    exchange_size.remedies,
    faster_hardware.remedies,
    fused_elementwise.remedies,
    gpu_silence.remedies,
    gradient_buckets.remedies,
    gradient_overlap.remedies,
    gradient_precision.remedies,
    host_operator.remedies,
    host_silence.remedies,
    kernel_precision.remedies,
    kernel_shapes.remedies,
    larger_micro_batch.remedies,
    late_rank.remedies,
    launch_bound.remedies,
    pageable_copy.remedies,
    recomputation.remedies,
    stall.remedies,
    synchronisation.remedies,
    unfused_attention.remedies,
    unfused_optimizer.remedies,
    wave_quantisation.remedies,
)
"""Every rule."""
