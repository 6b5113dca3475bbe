"""The rules of advice: a module each, whose `remedies` proposes changes to a job."""

from typing import Final

from lumos_df.advise.remedy import Rule
from lumos_df.advise.rules import (
    data_loader,
    faster_hardware,
    host_silence,
    late_rank,
    launch_bound,
    stall,
    synchronisation,
)

RULES: Final[tuple[Rule, ...]] = (
    data_loader.remedies,
    faster_hardware.remedies,
    host_silence.remedies,
    late_rank.remedies,
    launch_bound.remedies,
    stall.remedies,
    synchronisation.remedies,
)
"""Every rule."""
