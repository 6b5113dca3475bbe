"""The rules of advice: a module each, whose `remedies` proposes changes to a job."""

from typing import Final

from lumos_df.advice.remedy import Rule
from lumos_df.advice.rules import (
    faster_hardware,
    gradient_buckets,
    gradient_overlap,
    gradient_precision,
    larger_micro_batch,
    late_rank,
    pageable_copy,
    recomputation,
)

RULES: Final[tuple[Rule, ...]] = (
    late_rank.remedies,
    faster_hardware.remedies,
    gradient_buckets.remedies,
    gradient_overlap.remedies,
    gradient_precision.remedies,
    larger_micro_batch.remedies,
    pageable_copy.remedies,
    recomputation.remedies,
)
"""Every rule."""
