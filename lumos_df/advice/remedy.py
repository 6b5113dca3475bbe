"""One change that a rule proposes, before anyone knows what it brings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph


class Known(StrEnum):
    """How the gain of a change is known."""

    MEASURED = "measured"
    """What goes away was not there on other ranks, or in like calls, of this job."""
    REPLAYED = "replayed"
    """The job was simulated with a time that the change is known to take away or divide."""
    MODELLED = "modelled"
    """As replayed; how long the changed work takes is estimated from the hardware."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change to a job: what it is in words, and what it does to the times of the graph."""

    rule: str
    """Name of the rule, which is that of its module."""
    what: str
    """What is wrong and what to do, in one short line."""
    known: Known
    rests_on: str
    """What the gain is made of, counted: rows, ranks, kernels."""
    apply: Callable[[ChangedGraph], None]
    """Makes the change."""
    command: str = ""
    """What shows its figure, after `lumos-df `; by default what the gain is made of."""
    uncertainty: float = 0.0
    """Relative half width of the gain's interval because of what the rule assumes."""
    once: bool = False
    """Whether it changes single steps, so that what the others gain is no doubt about the mean."""
    bought: bool = False
    """What money buys: where it would not help, that is told, too."""
    probe: bool = False
    """Told only where it would not help: it is no change to the job that anyone can make."""

    def __post_init__(self) -> None:
        """Fill in the command."""
        shows = self.command or f"sql \"FROM advice_evidence WHERE rule = '{self.rule}'\""
        object.__setattr__(self, "command", shows)


Rule: TypeAlias = Callable[[AdvisedJob], Iterator[Remedy]]
"""What a module of `rules` has as `remedies`."""
