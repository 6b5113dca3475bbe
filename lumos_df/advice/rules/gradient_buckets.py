"""Gradients reduced in many small pieces: what if fewer and larger ones were, each with the latency of one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.hooked_collectives import BUCKET_BYTES, HookedCollectives, gradient_reductions
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count, format_ns


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose buckets of the usual size where gradients go in smaller ones."""
    reductions = gradient_reductions(advised)
    # What a rank by itself takes longest for may be waiting, of which larger buckets would spare nothing.
    known = ~np.isnan(reductions.latency) & (reductions.instance >= 0)
    if not known.any():
        return
    last = _last_of_bucket(reductions)
    merged = known & (last != np.arange(len(reductions)))
    if not merged.any():
        return
    ranks = range(len(advised.graphs))
    removed = less_work(advised, [np.where(_calls(advised, reductions, merged, place), 0.0, 1.0) for place in ranks])
    latency = np.round(np.where(known, reductions.latency, 0)).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        time = np.where(merged, reductions.left(changed), 0)
        # A bucket goes when its last gradient is ready, and takes the bytes of all.
        more = np.bincount(last[merged], np.maximum(time - latency, 0)[merged], len(reductions)).astype(np.int64)
        reductions.add(changed, more - time)
        removed.apply(changed)

    filled = merged.copy()
    filled[last[merged]] = True
    of_kernels = reductions.of_member[filled[reductions.of_member]]
    taken = format_ns(round(reductions.transfer[of_kernels].sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="gradient_buckets",
        what=f"small reductions of gradients take {taken} a step, {format_bytes(int(np.median(reductions.moved)))} "
        f"at a time, each {format_ns(int(np.median(latency[known])))} whatever its size: "
        f"use buckets of {format_bytes(BUCKET_BYTES)} (bucket_cap_mb)",
        known=Known.REPLAYED,
        rests_on=format_count(len(reductions), "reduction") + f", of which {np.count_nonzero(merged):,} would go",
        apply=apply,
    )


def _last_of_bucket(reductions: HookedCollectives) -> NDArray[np.int64]:
    """Return the last reduction of the bucket that each would be in [c]."""
    first = np.searchsorted(reductions.sequence, reductions.sequence)
    total = np.cumsum(reductions.moved)
    moved = total - (total - reductions.moved)[first]
    bucket = (moved - 1) // BUCKET_BYTES
    change = np.flatnonzero((np.diff(reductions.sequence) != 0) | (np.diff(bucket) != 0))
    ends = np.append(change, len(reductions) - 1)
    return ends[np.searchsorted(ends, np.arange(len(reductions)))]


def _calls(
    advised: AdvisedJob, reductions: HookedCollectives, merged: NDArray[np.bool_], place: int
) -> NDArray[np.bool_]:
    """Return the operators of a rank that call these reductions [n]."""
    rows, base = advised.ranks[place], int(advised.event_graph.base[place])
    kernel = (reductions.member[merged[reductions.of_member]] - base).astype(np.int32)
    kernel = kernel[(kernel >= 0) & (kernel < len(rows))]
    operator = rows.named(lambda name: name.startswith("c10d::"))
    called = rows.nearest(operator, kernel)
    marked = np.zeros(len(rows), np.bool_)
    marked[called[called >= 0]] = True
    return marked
