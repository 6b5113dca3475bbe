"""Matrix products that leave most multiprocessors idle in their last wave of blocks: what if sizes filled the wave."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import Call, KernelCalls, Product
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.shorter_kernels import NewTimes, shorter_kernels, slowness
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.gemm import FLOOR, QUANTISATION
from lumos_df.schema.codes import GEMM
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
    # How far the job's own products in fuller waves are from the cost function tells whether it loses waves at all.
    slow = slowness([(rank.dur[~rank.half], rank.whole[~rank.half]) for rank in ranks], 0.0)
    times = [
        NewTimes(
            calls=rank.calls,
            at=rank.at[rank.half],
            would=np.minimum(np.maximum(rank.less, slow * rank.whole), rank.dur)[rank.half],
        )
        for rank in ranks
    ]
    shorter = shorter_kernels(advised, times)
    if shorter is None:
        return
    worst = next(iter(shorter.gains))
    yield Remedy(
        rule="wave_quantisation",
        what=f"products whose last wave of blocks is mostly empty take "
        f"{format_ns(round(shorter.before / len(advised.steps_ns)))} a step, most {worst} in {_blocks(times, worst):,} "
        f"blocks on {hardware.sms} multiprocessors: choose sizes that fill whole waves",
        known=Known.MODELLED,
        rests_on=format_count(shorter.count, "kernel"),
        apply=shorter.change.apply,
        uncertainty=shorter.model_error,
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


def _blocks(ranks: list[NewTimes], product: Product) -> int:
    """Return in how many blocks a product runs that would take less."""
    for rank in ranks:
        for place in rank.at[rank.gain > 0].tolist():
            if rank.calls.calls[rank.calls.call[place]].product == product:
                return int(rank.calls.trace.blocks[rank.calls.row[place]])
    return 0
