"""The rules of advice: a module each, whose `remedies` proposes changes to a job."""

from typing import Final

from lumos_df.advise.remedy import Rule
from lumos_df.advise.rules import (
    faster_hardware,
    fused_elementwise,
    kernel_precision,
    kernel_shapes,
    late_rank,
    unfused_attention,
    unfused_optimizer,
)

RULES: Final[tuple[Rule, ...]] = (
    faster_hardware.remedies,
    fused_elementwise.remedies,
    kernel_precision.remedies,
    kernel_shapes.remedies,
    late_rank.remedies,
    unfused_attention.remedies,
    unfused_optimizer.remedies,
)
"""Every rule."""
