"""One statement about a job: a value with where it is known from, or no value with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lumos_df.schema import EVIDENCE

DIMENSIONS: Final = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "sequence",
    "micro_batch",
    "micro_batches",
    "vocabulary",
)
"""Of a transformer; `micro_batch` is its sequences, `micro_batches` how many a step has."""
EXPERTS: Final = ("experts", "top_k", "expert_tokens")
"""Of a model with experts, only said of one: those of a layer, of a token, and rows that a rank's experts compute."""
TABLES: Final = ("tables", "table_params", "embedding_dim", "dense_params")
"""Of a recommender, only said of one: tables of a rank and their elements, elements of a row, all other parameters."""
WINDOWS: Final = "windows"
"""Of a model whose attention runs over windows, only said of one: how many of each sample."""
_RIVAL_SHARE: Final = 0.1
"""Threshold, share of the operators that say the likeliest value. A value of less is no second reading. Evidence: of a
transformer with packed projections 3 operators of 129 begin with 3, for queries, keys and values."""
SETTING_OF: Final = {"seq": "sequence", "batch": "micro_batches", "vocab": "vocabulary"}
"""Dimensions by what `estimate --set` calls them."""
DEGREES: Final = ("tp", "dp", "pp", "ep")
"""Of the plan: tensor, data, pipeline and expert parallelism; data parallelism counts sharded replicas."""
CONTEXT: Final = "cp"
"""Of a plan whose ranks share each sequence, only said of one: how many do."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value, or why there is none."""

    value: int | str | None
    evidence: str
    """One of `schema.EVIDENCE`."""
    reason: str
    """How it was found, or why it was not."""
    readings: tuple[tuple[int, int], ...] = ()
    """Where several values fit: each with how many operators say so, the likeliest first."""

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE or (self.value is None) != (self.evidence == "unknown"):
            raise ValueError(f"a fact without its evidence: {self}")

    @property
    def choices(self) -> str:
        """What it may be, where several values fit: `64 (3 operators) or 128 (1)`; else nothing."""
        if len(self.readings) < 2:
            return ""
        value, count = self.readings[0]
        first = f"{value} ({count} {'operator' if count == 1 else 'operators'})"
        return " or ".join([first, *(f"{value} ({count})" for value, count in self.readings[1:])])

    @property
    def number(self) -> int | None:
        """The value where it is a number."""
        return self.value if isinstance(self.value, int) else None


def unknown(reason: str, readings: tuple[tuple[int, int], ...] = ()) -> Fact:
    """Return that nothing is known, and why."""
    return Fact(None, "unknown", reason, readings)


def by_count(votes: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the readings of how many operators say each value: nothing where one alone fits."""
    least = max(1.0, _RIVAL_SHARE * max(votes.values(), default=0))
    told = sorted((each for each in votes.items() if each[1] >= least), key=lambda each: (-each[1], -each[0]))
    return tuple(told) if len(told) > 1 else ()
