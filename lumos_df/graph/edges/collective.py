"""Collective edges of a job: who takes part in each, when each member arrives, and for whom it waits.

For every rank at once, so that what a rank stores of them costs by its own members, however many ranks there are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import kept_members
from lumos_df.graph.job import Job
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveEdges:
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
    """[instances] the member that arrives last, NONE without members: all others wait for it."""
    size: NDArray[np.int64]
    """[instances] how many members there are."""
    transfer: NDArray[np.int64]
    """[instances] ns, as recorded."""

    def of_trace(self, k: int) -> slice:
        """Return where the members of the k-th trace are."""
        return slice(int(self.bounds[k]), int(self.bounds[k + 1]))

    def waiting(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the members of the k-th trace that wait for a later one, and that member of each."""
        member = np.arange(self.bounds[k], self.bounds[k + 1])
        last = self.last[self.instance[member]]
        waits = last != member
        return member[waits], last[waits]


def collective_edges(job: Job) -> CollectiveEdges | None:
    """Return the collectives that a job's simulation keeps, or None for a rank by itself."""
    instances = job.instances
    if instances is None:
        return None
    member = kept_members(job.event_graph, instances)
    member = member[np.argsort(instances.trace[member], kind="stable")]
    instance, trace, row = instances.instance[member], instances.trace[member], instances.row[member]
    bounds = np.searchsorted(trace, np.arange(len(job.graphs) + 1))
    parts = zip(job.graphs, job.event_graph.shift, bounds[:-1], bounds[1:], strict=True)
    begin = np.concatenate([graph.rows.ts[row[low:high]] + shift for graph, shift, low, high in parts])
    count = len(instances.transfer)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, instance, begin)
    order = np.lexsort((begin, instance))
    final = order[np.flatnonzero(np.diff(instance[order], append=NONE))]
    last = np.full(count, NONE, np.int64)
    last[instance[final]] = final
    return CollectiveEdges(
        instance=instance,
        trace=trace,
        row=row,
        begin=begin,
        bounds=bounds,
        first=first,
        last=last,
        size=np.bincount(instance, minlength=count),
        transfer=instances.transfer,
    )
