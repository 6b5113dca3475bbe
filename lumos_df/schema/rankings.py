"""What plans can be ranked by."""

from enum import StrEnum
from typing import Final

_FEW: Final = 10
"""Plans that can be measured one by one."""


class RankBy(StrEnum):
    """By which time of a step plans are ranked."""

    TIME = "time"
    EXPECTED = "expected"

    @property
    def column(self) -> str:
        """The column of an answer."""
        return "expected_s" if self is RankBy.EXPECTED else "iteration_time_s"


def what_to_measure(alike: int) -> str:
    """Return what to do about the first plans of a ranking, where each may be faster than the other."""
    them = "them" if alike <= _FEW else "some, then lumos-df calibrate"
    return f"the first {alike} lie within each other's range: measure {them}"
