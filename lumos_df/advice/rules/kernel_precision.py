"""Products of float32 outside tensor cores: what they would take as TF32, or as float16 where there is none."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import Call, KernelCalls, Product
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.shorter_kernels import NewTimes, shorter_kernels
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.hardware import Hardware
from lumos_df.schema.codes import CONVOLUTION, GEMM
from lumos_df.schema.dtypes import FP32

_SINGLE: Final = re.compile(r"sgemm|scudnn|f32f32_f32f32|_engine<float")
"""What names of kernels hold that multiply float32 in vector units; those of tensor cores say `s1688gemm`, `tf32`."""
_BYTES: Final = 4
"""Of an element: TF32 is stored as float32, and what becomes float16 is read as float32 to convert it."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that all products of float32 run on tensor cores."""
    hardware = advised.hardware
    slow = [rows.named(_SINGLE.search) & rows.on_gpu for rows in advised.ranks]
    if hardware is None or not any(mask.any() for mask in slow):
        return
    peaks = hardware.peak_flops
    rate, kind = (peaks.bf16 / 2, "TF32 or bfloat16") if peaks.bf16 else (peaks.fp16, "float16")
    if not rate:
        return
    row = hardware.row()
    measured = _measured(advised.kernel_calls, slow)
    times, unmeasured = [], 0
    for calls, mask in zip(advised.kernel_calls, slow, strict=True):
        single = calls.of_calls([call.dtype.name == "float32" for call in calls.calls], False).astype(np.bool_)
        at = np.flatnonzero(mask[calls.row] & single & np.isin(calls.family, (GEMM, CONVOLUTION)))
        known = calls.of_calls([measured.get(call.product, -1.0) for call in calls.calls], -1.0)[at]
        ratio = calls.of_calls([_ratio(call, row, rate) for call in calls.calls], 1.0)[at]
        least = calls.of_calls([_memory_ns(call, hardware) for call in calls.calls], 0.0)[at]
        dur = calls.dur[at]
        would = np.minimum(np.where(known >= 0, known, np.maximum(dur * ratio, least)), dur)
        times.append(NewTimes(calls=calls, at=at, would=would))
        unmeasured += int(np.count_nonzero(known < 0))
    shorter = shorter_kernels(advised, times)
    if shorter is None:
        return
    yield Remedy(
        rule="kernel_precision",
        what=f"products of float32 take {format_ns(round(shorter.before / len(advised.steps_ns)))} a step without "
        f"tensor cores: let them run in {kind}",
        known=Known.MODELLED if unmeasured else Known.MEASURED,
        rests_on=format_count(shorter.count, "kernel"),
        apply=shorter.change.apply,
        uncertainty=shorter.model_error if unmeasured else 0.0,
    )


def _measured(ranks: list[KernelCalls], slow: list[NDArray[np.bool_]]) -> dict[Product | None, float]:
    """Return what the job's other kernels took for the same products, ns in the median."""
    times: dict[Product | None, list[NDArray[np.int64]]] = {}
    for calls, mask in zip(ranks, slow, strict=True):
        at = np.flatnonzero((calls.family == GEMM) & (calls.call >= 0) & ~mask[calls.row])
        at = at[np.argsort(calls.call[at], kind="stable")]
        distinct, first = np.unique(calls.call[at], return_index=True)
        for call, dur in zip(distinct.tolist(), np.split(calls.dur[at], first[1:]), strict=False):
            times.setdefault(calls.calls[call].product, []).append(dur)
    return {product: float(np.median(np.concatenate(dur))) for product, dur in times.items() if product}


def _ratio(call: Call, hardware: np.void, rate: float) -> float:
    """Return the time of a call at a rate over that at the rate of float32, both as far from the model."""
    single = float(hardware["peak_flops"][FP32])
    if call.product is None:
        return single / rate
    return call.product.seconds(hardware, rate, _BYTES) / call.product.seconds(hardware, single, _BYTES)


def _memory_ns(call: Call, hardware: Hardware) -> float:
    return call.moved_bytes / hardware.hbm_bandwidth * 1e9
