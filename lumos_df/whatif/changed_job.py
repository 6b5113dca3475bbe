"""A changed job, run: what the answers and the stored traces are made from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.job import Job, Played
from lumos_df.whatif.answerable import Unscaled
from lumos_df.whatif.durations import operator_times
from lumos_df.whatif.job.recorded_job import RecordedJob


@dataclass(frozen=True, slots=True)
class ChangedJob:
    """A changed job, and how every duration in it is known."""

    anchor: RecordedJob
    played: Played
    """The job as it was."""
    usual: Played
    """The same without what happened once, where that is left out."""
    plan: operator_times.PlannedChange
    job: Job
    times: list[operator_times.Times]
    """One a graph of `job`."""
    transfer_error: NDArray[np.float64]
    """Relative error of each collective of `job`."""
    sources: list[NDArray[np.int32]]
    """Which row of the original each row of each graph is from, NONE for what was inserted."""
    makers: list[tuple[int, ...]]
    """Which traces of the original each graph is from; `sources` counts their rows one behind the other."""
    again: list[NDArray[np.bool_]]
    """Which rows of each graph a setting makes the backward pass compute again."""
    slowed: list[NDArray[np.float64]]
    """By how much rows of each graph may take longer beside communication, relative; nothing where none runs so."""
    after: Played
    unscaled: list[NDArray[np.int8]]
    """Why rows of each recorded rank could not be rescaled, as `durations.unscaled` says [n]; one a trace."""
    unscaled_share: Unscaled
    """How much of the job that is."""
    between_runs: float
    """By how much the host of another run differs, as a logarithm: 8 times of 10 by no more."""
    warnings: list[str]
    stand_in: str | None
    """The GPU by whose links, not its own, transfers move that nothing measured tells of; None where none do."""

    @property
    def ranks(self) -> list[int]:
        """Which trace of the original each graph is held against: the first that it is from."""
        return [ranks[0] for ranks in self.makers]
