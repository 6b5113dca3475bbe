"""The rules of advice: a module each, whose `remedies` proposes changes to a job."""

from typing import Final

from lumos_df.advice.remedy import Rule
from lumos_df.advice.rules import faster_hardware, late_rank

RULES: Final[tuple[Rule, ...]] = (late_rank.remedies, faster_hardware.remedies)
"""Every rule."""
