"""Matrix products that leave most multiprocessors idle in their last wave of blocks: what if sizes filled the wave."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import MODEL_ERROR, Call, KernelCalls
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.gemm import FLOOR, QUANTISATION
from lumos_df.schema.codes import GEMM, NONE
from lumos_df.schema.dtypes import BF16, PRECISIONS

_MOST: Final = 0.5
"""Threshold, waves. A product is named where more of its last wave is idle. Evidence: a judgement, as that is most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InWaves:
    """Matrix products of one rank [k]; ns."""

    calls: KernelCalls
    at: NDArray[np.int64]
    """Places in `calls`."""
    dur: NDArray[np.int64]
    """What they took."""
    half: NDArray[np.bool_]
    """Whether most of their last wave is idle."""
    less: NDArray[np.float64]
    """What they took, without what the cost function says that is lost; no less than their bytes take."""
    whole: NDArray[np.float64]
    """What the cost function says of them when no wave is lost."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose sizes with which products run in whole waves."""
    hardware = advised.hardware
    if hardware is None or not any((rows.family == GEMM).any() for rows in advised.ranks):
        return
    ranks = [_products(calls, hardware) for calls in advised.kernel_calls]
    usual = sum(int(rank.dur[~rank.half].sum()) for rank in ranks)
    # How far the job's own products in fuller waves are from the cost function tells whether it loses waves at all.
    slowness = usual / sum(float(rank.whole[~rank.half].sum()) for rank in ranks) if usual else 0.0
    parts, before, after, count = [], 0.0, 0.0, 0
    worst = (0.0, "")
    for rank in ranks:
        at, dur = rank.at[rank.half], rank.dur[rank.half]
        would = np.minimum(np.maximum(rank.less[rank.half], slowness * rank.whole[rank.half]), dur)
        part = np.ones(len(rank.calls.trace))
        part[rank.calls.row[at]] = would / np.maximum(dur, 1)
        parts.append(part)
        before, after, count = before + dur.sum(), after + would.sum(), count + int(np.count_nonzero(would < dur))
        worst = max(worst, _worst(rank.calls, at, dur - would))
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


def _products(calls: KernelCalls, hardware: Hardware) -> _InWaves:
    """Return the products of a rank; a multiprocessor works on one block at a time, as in `model.kernels.gemm`."""
    row = hardware.row()
    even = row.copy()
    even["gemm"][:, QUANTISATION] = 0
    seconds = calls.of_calls([_seconds(call, even) for call in calls.calls], 0.0)
    waves = calls.trace.blocks[calls.row] / hardware.sms
    at = np.flatnonzero((calls.family == GEMM) & (seconds > 0) & (waves > 0))
    idle = np.where(waves > 1, -waves % 1, 0.0)[at]
    floor, lost = row["gemm"][BF16, [FLOOR, QUANTISATION]]
    dur, floor = calls.dur[at], floor * 1e9
    busy = waves[at] / (waves[at] + lost * idle)
    moved = calls.of_calls([call.moved_bytes for call in calls.calls], 0)[at]
    return _InWaves(
        calls=calls,
        at=at,
        dur=dur,
        half=idle > _MOST,
        less=np.maximum(floor + (dur - floor) * busy, moved / hardware.hbm_bandwidth * 1e9),
        whole=seconds[at] * 1e9,
    )


def _seconds(call: Call, hardware: np.void) -> float:
    """Return what a product takes by the cost function, s; 0 of anything else."""
    if call.product is None or call.dtype.precision is None:
        return 0.0
    peak = float(hardware["peak_flops"][PRECISIONS.index(call.dtype.precision)])
    return call.product.seconds(hardware, peak, call.dtype.bytes) if peak else 0.0


def _worst(calls: KernelCalls, at: NDArray[np.int64], gain: NDArray[Any]) -> tuple[float, str]:
    """Return what the products of one operator and shape would gain at most, ns, and what they are."""
    gains = np.bincount(calls.call[at], gain, len(calls.calls))
    call = int(gains.argmax()) if gains.any() else NONE
    product = calls.calls[call].product if call != NONE else None
    if product is None:
        return 0.0, ""
    sizes = f"[{product.m}, {product.k}] x [{product.k}, {product.n}]"
    blocks = calls.trace.blocks[calls.row[at[calls.call[at] == call][0]]]
    return float(gains[call]), f"{sizes} in {blocks:,.0f} blocks"
