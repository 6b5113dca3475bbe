"""One statement about a job: a value with where it is known from, or no value with the reason."""

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
SETTING_OF: Final = {"seq": "sequence", "batch": "micro_batches", "vocab": "vocabulary"}
"""Dimensions by what `estimate --set` calls them."""
DEGREES: Final = ("tp", "dp", "pp", "ep")
"""Of the plan: tensor, data, pipeline and expert parallelism; data parallelism counts sharded replicas."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value, or why there is none."""

    value: int | str | None
    evidence: str
    """One of `schema.EVIDENCE`."""
    reason: str
    """How it was found, or why it was not."""

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE or (self.value is None) != (self.evidence == "unknown"):
            raise ValueError(f"a fact without its evidence: {self}")

    @property
    def number(self) -> int | None:
        """The value where it is a number."""
        return self.value if isinstance(self.value, int) else None


def unknown(reason: str) -> Fact:
    """Return that nothing is known, and why."""
    return Fact(None, "unknown", reason)
