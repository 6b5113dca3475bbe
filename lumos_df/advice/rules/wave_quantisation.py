"""Matrix products that leave most multiprocessors idle in their last wave of blocks: what if sizes filled the wave."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import MODEL_ERROR, KernelCalls
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.gemm import FLOOR, QUANTISATION
from lumos_df.schema.codes import GEMM, NONE
from lumos_df.schema.dtypes import PRECISIONS

_MOST: Final = 0.5
"""Threshold, waves. A product is named where more of its last wave is idle. Evidence: a judgement; that is most of it."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose sizes with which products run in whole waves."""
    hardware = advised.hardware
    if hardware is None or not any((rows.family == GEMM).any() for rows in advised.ranks):
        return
    parts, before, after, count = [], 0.0, 0.0, 0
    worst = (0.0, "")
    for calls in advised.kernel_calls:
        blocks = calls.trace.blocks[calls.row]
        idle = -blocks % hardware.sms / hardware.sms
        known = calls.of_calls([call.product is not None for call in calls.calls], False).astype(np.bool_)
        at = np.flatnonzero((calls.family == GEMM) & known & (blocks > hardware.sms) & (idle > _MOST))
        dur = calls.dur[at]
        would = _in_whole_waves(calls, at, blocks[at] / hardware.sms, idle[at], hardware)
        part = np.ones(len(calls.trace))
        part[calls.row[at]] = would / np.maximum(dur, 1)
        parts.append(part)
        before, after, count = before + dur.sum(), after + would.sum(), count + int(np.count_nonzero(would < dur))
        worst = max(worst, _worst(calls, at, dur - would, blocks[at]))
    if after >= before:
        return
    yield Remedy(
        rule="wave_quantisation",
        what=f"products whose last wave of blocks is mostly empty take "
        f"{format_ns(round(before / len(advised.steps_ns)))} a step, most {worst[1]} on {hardware.sms} "
        "multiprocessors: choose sizes that fill whole waves",
        known=Known.MODELLED,
        rests_on=format_count(count, "kernel"),
        command="report --view kernel_efficiency",
        apply=less_work(advised, parts).apply,
        uncertainty=MODEL_ERROR * after / (before - after),
    )


def _in_whole_waves(
    calls: KernelCalls, at: NDArray[np.int64], waves: NDArray[np.float64], idle: NDArray[np.float64], hardware: Hardware
) -> NDArray[np.float64]:
    """Return what the same work takes when no wave is partly filled, ns [k], at least what its bytes take.

    Args:
        calls: kernels of a rank.
        at: places of products in it [k].
        waves: of blocks, a multiprocessor working on one at a time, as in `model.kernels.gemm` [k].
        idle: part of the last one [k].
        hardware: the GPU.
    """
    row = hardware.row()
    of_precision = [PRECISIONS.index(call.dtype.precision) if call.dtype.precision else -1 for call in calls.calls]
    precision = calls.of_calls(of_precision, -1)[at]
    floor, lost = (row["gemm"][precision, place] for place in (FLOOR, QUANTISATION))
    moved = calls.of_calls([call.moved_bytes for call in calls.calls], 0)[at]
    least = np.maximum(floor, moved / hardware.hbm_bandwidth) * 1e9
    dur = calls.dur[at]
    busy = waves / (waves + np.where(precision >= 0, lost, 0.0) * idle)
    would: NDArray[np.float64] = np.minimum(np.maximum(floor * 1e9 + (dur - floor * 1e9) * busy, least), dur)
    return would


def _worst(
    calls: KernelCalls, at: NDArray[np.int64], gain: NDArray[np.float64], blocks: NDArray[np.int64]
) -> tuple[float, str]:
    """Return what the products of one operator and shape would gain at most, ns, and what they are."""
    gains = np.bincount(calls.call[at], gain, len(calls.calls))
    call = int(gains.argmax()) if gains.any() else NONE
    product = calls.calls[call].product if call != NONE else None
    if product is None:
        return 0.0, ""
    sizes = f"[{product.m}, {product.k}] x [{product.k}, {product.n}]"
    return float(gains[call]), f"{sizes} in {blocks[calls.call[at] == call][0]:,} blocks"
