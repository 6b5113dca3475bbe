"""Small collectives of DDP and FSDP: what if fewer and larger ones were called, each with the latency of one."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.hooked_collectives import BUCKET_BYTES, HookedCollectives
from lumos_df.advice.less_work import less_work


def merged(
    advised: AdvisedJob, small: HookedCollectives, given: NDArray[np.int64], *, into_first: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Callable[[ChangedGraph], None]] | None:
    """Return which collectives would go [c], which would be merged [c], and the change; None where none would go.

    Args:
        advised: the job.
        small: its collectives of a kind.
        given: bytes of each that its bucket holds [c].
        into_first: whether a bucket is called for the first of it, else once the last is ready.
    """
    # What a rank by itself takes longest for may be waiting, of which larger buckets would spare nothing.
    known = ~np.isnan(small.latency) & (small.instance >= 0)
    if not known.any():
        return None
    bucket = _bucket(small.sequence, given)
    begins = np.append(True, np.diff(bucket) != 0)
    ends = np.flatnonzero(begins) if into_first else np.append(np.flatnonzero(begins)[1:] - 1, len(small) - 1)
    into = ends[bucket]
    goes = known & (into != np.arange(len(small)))
    if not goes.any():
        return None
    ranks = range(len(advised.graphs))
    removed = less_work(advised, [np.where(_calls(advised, small, goes, place), 0.0, 1.0) for place in ranks])
    latency = np.round(np.where(known, small.latency, 0)).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        time = np.where(goes, small.left(changed), 0)
        # It takes the bytes of all.
        more = np.bincount(into[goes], np.maximum(time - latency, 0)[goes], len(small)).astype(np.int64)
        small.add(changed, more - time)
        removed.apply(changed)

    together = goes.copy()
    together[into[goes]] = True
    return goes, together, apply


def _bucket(sequence: NDArray[np.int64], given: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the bucket that each collective would be in, of its sequence alone [c]."""
    first = np.searchsorted(sequence, sequence)
    total = np.cumsum(given)
    place = (total - (total - given)[first] - 1) // BUCKET_BYTES
    return np.cumsum(np.append(False, (np.diff(sequence) != 0) | (np.diff(place) != 0)))


def _calls(advised: AdvisedJob, small: HookedCollectives, goes: NDArray[np.bool_], place: int) -> NDArray[np.bool_]:
    """Return the operators of a rank that call these collectives [n]."""
    rows, base = advised.ranks[place], int(advised.event_graph.base[place])
    kernel = (small.member[goes[small.of_member]] - base).astype(np.int32)
    kernel = kernel[(kernel >= 0) & (kernel < len(rows))]
    operator = rows.named(lambda name: name.startswith("c10d::"))
    called = rows.nearest(operator, kernel)
    marked = np.zeros(len(rows), np.bool_)
    marked[called[called >= 0]] = True
    return marked
