"""Gradients reduced in many small pieces: what if fewer and larger ones were, each with the latency of one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advise.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advise.gradient_reductions import BUCKET_BYTES, GradientReductions, gradient_reductions
from lumos_df.advise.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count, format_ns
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import LAUNCH


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
    parts = [_host_part(advised, reductions, merged, place) for place in range(len(advised.graphs))]
    own, lag = (np.concatenate(column) for column in zip(*parts, strict=True))
    latency = np.round(np.where(known, reductions.latency, 0)).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        time = np.where(merged, reductions.left(changed), 0)
        # A bucket goes when its last gradient is ready, and takes the bytes of all.
        more = np.bincount(last[merged], np.maximum(time - latency, 0)[merged], len(reductions)).astype(np.int64)
        reductions.add(changed, more - time)
        changed.own[:] = np.round(changed.own * (1 - own)).astype(np.int64)
        changed.lag[:] = np.where(changed.lag > 0, np.round(changed.lag * (1 - lag)).astype(np.int64), changed.lag)

    yield Remedy(
        rule="gradient_buckets",
        what=f"gradients are reduced {format_bytes(int(np.median(reductions.moved)))} at a time, each for "
        f"{format_ns(int(np.median(latency[known])))} whatever its size: "
        f"use buckets of {format_bytes(BUCKET_BYTES)} (bucket_cap_mb)",
        known=Known.REPLAYED,
        rests_on=format_count(len(reductions), "reduction") + f", of which {np.count_nonzero(merged):,} would go",
        command="report --view collective_summary",
        apply=apply,
    )


def _last_of_bucket(reductions: GradientReductions) -> NDArray[np.int64]:
    """Return the last reduction of the bucket that each would be in [c]."""
    first = np.searchsorted(reductions.sequence, reductions.sequence)
    total = np.cumsum(reductions.moved)
    moved = total - (total - reductions.moved)[first]
    bucket = (moved - 1) // BUCKET_BYTES
    change = np.flatnonzero((np.diff(reductions.sequence) != 0) | (np.diff(bucket) != 0))
    ends = np.append(change, len(reductions) - 1)
    return ends[np.searchsorted(ends, np.arange(len(reductions)))]


def _host_part(
    advised: AdvisedJob, reductions: GradientReductions, merged: NDArray[np.bool_], place: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of each row [n], and of each edge's lag [m], that the host of a rank spends on these calls."""
    graph, rows = advised.graphs[place], advised.ranks[place]
    base = int(advised.event_graph.base[place])
    kernel = np.zeros(len(rows), np.bool_)
    inside = reductions.member[merged[reductions.of_member]] - base
    kernel[inside[(inside >= 0) & (inside < len(rows))]] = True
    operator = np.array([*(name.startswith("c10d::") for name in rows.names), False])[rows.name]
    called = rows.nearest(operator, np.flatnonzero(kernel).astype(np.int32))
    marked = np.zeros(len(rows), np.bool_)
    marked[called[called >= 0]] = True
    work = inherited(marked, rows.parent) & ~rows.on_gpu
    lag = advised.host_works[place].share(work)
    # What is not launched costs no latency.
    lag[(graph.edges.kind == LAUNCH) & kernel[graph.edges.dst]] = 1.0
    return work.astype(np.float64), lag
