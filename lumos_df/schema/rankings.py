"""What plans can be ranked by."""

from enum import StrEnum


class RankBy(StrEnum):
    """By which time of a step plans are ranked."""

    TIME = "time"
    EXPECTED = "expected"

    @property
    def column(self) -> str:
        """The column of an answer."""
        return "expected_s" if self is RankBy.EXPECTED else "iteration_time_s"
