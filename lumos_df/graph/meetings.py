"""The collectives that a job's simulation keeps: who meets in them, and when each member arrives.

For every rank at once, so that what a rank stores of them costs by its own members, however many ranks there are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.job import Job
from lumos_df.graph.replay import kept_members
from lumos_df.graph.rows import NONE


@dataclass(frozen=True, slots=True)
class Meetings:
    """Members of collectives by (trace, instance), k in all; without those whose collectives make a circle."""

    instance: NDArray[np.int32]
    """[k]"""
    trace: NDArray[np.int32]
    """[k] place of the member's trace in the job."""
    row: NDArray[np.int32]
    """[k]"""
    begin: NDArray[np.int64]
    """[k] ns, when it starts, as recorded, in the time of the job."""
    bounds: NDArray[np.int64]
    """[traces + 1] where the members of each trace begin."""
    first: NDArray[np.int64]
    """[instances] ns, `begin` of the member that arrives first."""
    last: NDArray[np.int64]
    """[instances] the member that arrives last, NONE without members."""
    size: NDArray[np.int64]
    """[instances] how many members there are."""
    transfer: NDArray[np.int64]
    """[instances] ns, as recorded."""

    def of(self, k: int) -> slice:
        """Return where the members of the k-th trace are."""
        return slice(int(self.bounds[k]), int(self.bounds[k + 1]))


def meetings(job: Job) -> Meetings | None:
    """Return the collectives of a job, or None for a rank by itself."""
    found = job.instances
    if found is None:
        return None
    member = kept_members(job.network, found)
    member = member[np.argsort(found.trace[member], kind="stable")]
    instance, trace, row = found.instance[member], found.trace[member], found.row[member]
    bounds = np.searchsorted(trace, np.arange(len(job.graphs) + 1))
    own = [
        graph.rows.ts[row[low:high]] + shift
        for graph, shift, low, high in zip(job.graphs, job.network.shift, bounds[:-1], bounds[1:], strict=True)
    ]
    begin = np.concatenate(own)
    many = len(found.transfer)
    first = np.full(many, np.iinfo(np.int64).max)
    np.minimum.at(first, instance, begin)
    order = np.lexsort((begin, instance))
    final = order[np.flatnonzero(np.diff(instance[order], append=NONE))]
    last = np.full(many, NONE, np.int64)
    last[instance[final]] = final
    size = np.bincount(instance, minlength=many)
    return Meetings(instance, trace, row, begin, bounds, first, last, size, found.transfer)
