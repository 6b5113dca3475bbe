"""One change that a rule proposes, before anyone knows what it brings."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph

_READ_IN_QUOTES: Final = re.compile(r'["$`\\!]')
"""What a shell reads between double quotes."""


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
    view: str = ""
    """The view that shows its figure; by default `advice_evidence`, what the gain is made of."""
    switches: str = ""
    """Options of `replay` that show its gain instead."""
    uncertainty: float = 0.0
    """Relative half width of the gain's interval because of what the rule assumes."""
    at_most: bool = False
    """Whether the gain may be anything down to none: what goes may have been waiting for ranks that nobody recorded."""
    once: bool = False
    """Whether it changes single steps, so that what the others gain is no doubt about the mean."""
    bought: bool = False
    """What money buys: where it would not help, that is told, too."""
    probe: bool = False
    """Told only where it would not help: it is no change to the job that anyone can make."""

    def command(self, job: str, place: int, run: str = "") -> str:
        """Return what shows the figure of change number `place` of a job, after `lumos-df `: of that job alone.

        `run`: id of its only trace, where several runs of one rank have its name.
        """
        if self.switches:
            return f"replay {f'--trace {run}' if run else f'--job {shlex.quote(job)}'} {self.switches}"
        key, value = ("trace_id", run) if run else ("job", job.replace("'", "''"))
        of_change = "" if self.view else f" AND place = {place}"
        query = f"FROM {self.view or 'advice_evidence'} WHERE {key} = '{value}'{of_change}"
        return "sql " + (shlex.quote(query) if _READ_IN_QUOTES.search(query) else f'"{query}"')


Rule: TypeAlias = Callable[[AdvisedJob], Iterator[Remedy]]
"""What a module of `rules` has as `remedies`."""
