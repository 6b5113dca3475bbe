"""Gradients reduced in many small pieces: what if fewer and larger ones were, each with the latency of one."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.hooked_collectives import BUCKET_BYTES, gradient_reductions
from lumos_df.advice.merged_collectives import merged
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count, format_ns


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose buckets of the usual size where gradients go in smaller ones."""
    reductions = gradient_reductions(advised)
    found = merged(advised, reductions, reductions.moved, into_first=False)
    if found is None:
        return
    goes, together, apply = found
    of_kernels = reductions.of_member[together[reductions.of_member]]
    taken = format_ns(round(reductions.transfer[of_kernels].sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="gradient_buckets",
        what=f"small reductions of gradients take {taken} a step, {format_bytes(int(np.median(reductions.moved)))} "
        f"at a time, each {format_ns(round(float(np.nanmedian(reductions.latency))))} whatever its size: "
        f"use buckets of {format_bytes(BUCKET_BYTES)} (bucket_cap_mb)",
        known=Known.REPLAYED,
        rests_on=format_count(len(reductions), "reduction") + f", of which {np.count_nonzero(goes):,} would go",
        apply=apply,
    )
