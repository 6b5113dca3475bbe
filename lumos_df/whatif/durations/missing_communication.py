"""Communication that a changed job has and its recording lacks: what the network model says of it."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.job import Job
from lumos_df.whatif.durations.modelled_activations import with_activations
from lumos_df.whatif.durations.modelled_gradients import with_gradients
from lumos_df.whatif.durations.operator_times import PlannedChange, Times
from lumos_df.whatif.durations.unmeasured import filled
from lumos_df.whatif.job.recorded_job import RecordedJob


def with_missing(
    anchor: RecordedJob,
    change: PlannedChange,
    job: Job,
    times: list[Times],
    sources: list[NDArray[np.int32]],
    ranks: list[int],
) -> tuple[Job, list[Times], list[NDArray[np.int32]], list[str]]:
    """Return the job with its communication, durations and sources with theirs, and what to tell of it.

    Args:
        anchor: the job as recorded.
        change: the change, whose groups and links hold.
        job: the changed job.
        times: durations, one a graph of it.
        sources: row of the original of each row, one a graph.
        ranks: place of the recorded rank that each graph is from.

    Raises:
        QueryError: the trace does not tell what would be sent, or when.
    """
    old, new = change.old, change.new
    told: list[str] = []
    for is_missing, add in (
        ((old.tp or 1) == 1 < (new.tp or 1), with_activations),
        ((old.dp or 1) == 1 < (new.dp or 1), with_gradients),
        (anchor.unmeasured, filled),
    ):
        if is_missing:
            job, times, sources, more = add(anchor, change, job, times, sources, ranks)
            told += more
    return job, times, sources, told
