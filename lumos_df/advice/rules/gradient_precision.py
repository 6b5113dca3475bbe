"""Gradients reduced in 32 bits: what if they were cast to 16 bits, reduced, and cast back."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.gradient_reductions import gradient_reductions
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count

_SINGLE_BYTES: Final = 4
_CAST_TRAFFIC: Final = 3
"""Both casts read and write so many times the bytes of the gradients in 32 bits: there 4 + 2 an element, and back."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose half the bytes for what is reduced in 32 bits."""
    reductions = gradient_reductions(advised)
    single = reductions.element == _SINGLE_BYTES
    if not single.any() or advised.hardware is None:
        return
    # Without two sizes nothing tells the latency, and the whole transfer is taken to grow with the bytes.
    growing = np.maximum(reductions.transfer - np.nan_to_num(reductions.latency), 0)
    cast_ns = _CAST_TRAFFIC * reductions.moved / advised.hardware.hbm_bandwidth * 1e9
    less = np.where(single, np.maximum(growing / 2 - cast_ns, 0), 0).astype(np.int64)
    if not less.any():
        return

    def apply(changed: ChangedGraph) -> None:
        # Of what another remedy has made shorter, the same share.
        share = less / np.maximum(reductions.transfer, 1)
        reductions.add(changed, -np.round(np.minimum(reductions.left(changed) * share, less)).astype(np.int64))

    steps = len(np.unique(reductions.sequence))
    yield Remedy(
        rule="gradient_precision",
        what=f"{format_bytes(int(reductions.moved[single].sum()) // steps)} of gradients are reduced in float32 a step "
        "and rank: if training bears it, halve the bytes with bfloat16 (bf16_compress_hook)",
        known=Known.MODELLED,
        rests_on=format_count(int(np.count_nonzero(single)), "reduction"),
        command="report --view collective_summary",
        apply=apply,
        # The casts may hide, or not be needed.
        uncertainty=min(1.0, float(cast_ns[single].sum() / less.sum())),
    )
