"""Gradients reduced in 32 bits: what if they were cast to 16 bits, reduced, and cast back."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.half_transfers import may_have_waited
from lumos_df.advice.hooked_collectives import HookedCollectives, gradient_reductions
from lumos_df.advice.kernel_calls import SINGLE_BYTES, memory_bytes_per_ns
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count
from lumos_df.schema.codes import EVENT

_CAST_TRAFFIC: Final = 1.5
"""A cast reads and writes so many times the bytes of the gradients in 32 bits: 4 + 2 an element, or 2 + 4."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose half the bytes for what is reduced in 32 bits."""
    reductions = gradient_reductions(advised)
    single = reductions.element == SINGLE_BYTES
    if not single.any() or advised.hardware is None:
        return
    # Without two sizes nothing tells the latency, and the whole transfer is taken to grow with the bytes.
    growing = np.maximum(reductions.transfer - np.nan_to_num(reductions.latency), 0)
    rate = memory_bytes_per_ns(advised.kernel_calls, advised.hardware)
    cast = np.where(single, np.round(_CAST_TRAFFIC * reductions.moved / rate), 0).astype(np.int64)
    less = np.where(single, growing / 2, 0).astype(np.int64)
    kernel, reduction = _kernels_before(advised, reductions)
    # What is cast back lies beside the next reduction, but for the last. The first cast runs before what the reduction
    # waits for is over, or where nothing tells that, lengthens it.
    serial = np.where(np.isin(np.arange(len(cast)), reduction), 0, cast)
    serial += np.where(np.append(np.diff(reductions.sequence) != 0, True), cast, 0)

    def apply(changed: ChangedGraph) -> None:
        # Of what another remedy has made shorter, the same share.
        share = less / np.maximum(reductions.transfer, 1)
        shorter = np.round(np.minimum(reductions.left(changed) * share, less)).astype(np.int64)
        reductions.add(changed, serial - shorter)
        np.add.at(changed.own, kernel, cast[reduction])

    steps = len(np.unique(reductions.sequence))
    yield Remedy(
        rule="gradient_precision",
        what=f"{format_bytes(int(reductions.moved[single].sum()) // steps)} of gradients are reduced in float32 a step "
        "and rank: if training bears it, halve the bytes with bfloat16 (bf16_compress_hook)",
        known=Known.MODELLED,
        rests_on=format_count(int(np.count_nonzero(single)), "reduction"),
        apply=apply,
        at_most=may_have_waited(advised, np.ones(len(advised.waits.row), np.bool_)),
        # The casts may hide, or not be needed.
        uncertainty=min(1.0, float(2 * cast.sum() / max(less.sum(), 1))),
    )


def _kernels_before(advised: AdvisedJob, reductions: HookedCollectives) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (node, reduction) [k] of the kernels of other streams that the reductions wait for, one a rank."""
    graph = advised.event_graph
    edge = np.flatnonzero(np.concatenate([each.edges.kind == EVENT for each in advised.graphs]))
    waiting = np.full(len(graph.own), -1)
    waiting[reductions.member] = reductions.of_member
    edge = edge[waiting[graph.dst[edge]] >= 0]
    _, first = np.unique(graph.dst[edge], return_index=True)
    edge = edge[first]
    return graph.src[edge].astype(np.int64), waiting[graph.dst[edge]]
