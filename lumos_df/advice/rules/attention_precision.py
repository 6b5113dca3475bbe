"""Attention of float32 in a job that multiplies in 16 bits elsewhere: what if it took 16 bits, too."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import HALF_BYTES, Call
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.shorter_kernels import NewTimes, shorter_kernels
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.schema.codes import ATTENTION
from lumos_df.schema.dtypes import PRECISIONS

_SINGLE: Final = re.compile(r"_f32_|float32|<float")
"""What names of kernels hold that attend in float32, as in `fmha_cutlassF_f32_aligned_64x64_rf_sm80`."""
_HEADS_BEHIND: Final = re.compile(r"aten::_(?:efficient|flash)_attention")
"""Operators whose tensors are [batch, sequence, heads, width]; those of others are [batch, heads, sequence, width]."""
_TENSORS: Final = {False: 3, True: 4}
"""Of the same rank at least: queries, keys and values; of the backward pass the gradient before them."""
_DIMENSIONS: Final = 4


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose 16 bits for attention, if the job multiplies in them."""
    hardware = advised.hardware
    single = [rows.named(_SINGLE.search) & (rows.family == ATTENTION) & rows.on_gpu for rows in advised.ranks]
    if hardware is None or not any(of_rank.any() for of_rank in single):
        return
    half = {name for calls in advised.kernel_calls for name in calls.half_precisions()}
    if not half:
        return
    precision = PRECISIONS.index("bf16" if "bf16" in half else min(half))
    row = hardware.row()
    times = []
    for calls, of_rank in zip(advised.kernel_calls, single, strict=True):
        would = calls.of_calls([_attention_ns(call, row, precision) for call in calls.calls], 0.0)
        at = np.flatnonzero(of_rank[calls.row] & (would > 0))
        # Kernels of one operator share its time as they do now.
        called = np.stack((calls.operator[at], calls.repeat[at]))
        operator = np.unique(called, axis=1, return_inverse=True)[1].reshape(-1)
        together = np.bincount(operator, calls.dur[at])
        share = np.minimum(would[at] / np.maximum(together[operator], 1), 1.0)
        times.append(NewTimes(calls=calls, at=at, would=(calls.dur[at] * share).astype(np.float64)))
    shorter = shorter_kernels(advised, times)
    if shorter is None:
        return
    yield Remedy(
        rule="attention_precision",
        what=f"attention of float32 takes {format_ns(round(shorter.before / len(advised.steps_ns)))} a step in a job "
        "that multiplies in 16 bits: cast queries, keys and values, too",
        known=Known.MODELLED,
        rests_on=format_count(shorter.count, "kernel"),
        apply=shorter.change.apply,
        uncertainty=shorter.model_error,
    )


def _attention_ns(call: Call, hardware: np.void, precision: int) -> float:
    """Return what one fused kernel of 16 bits takes, ns; 0 where the shapes are not those of attention."""
    backward = "backward" in call.name
    heads = [tensor for tensor in call.tensors if tensor and len(tensor) == _DIMENSIONS][int(backward) :]
    if call.dtype.bytes == HALF_BYTES or len(heads) + backward < _TENSORS[backward]:
        return 0.0
    order = (0, 2, 1, 3) if _HEADS_BEHIND.match(call.name) else (0, 1, 2, 3)
    (batch, count, queries, width), (_, key_heads, keys, _) = ([each[k] for k in order] for each in heads[:2])
    seconds = attention_seconds(
        batch,
        queries,
        keys,
        count,
        key_heads,
        width,
        False,  # a mask is not known to be causal
        backward,
        float(HALF_BYTES),
        hardware["peak_flops"][precision],
        hardware["hbm_bandwidth"],
        hardware["sms"],
        hardware["attention"][precision],
    )
    return float(seconds) * 1e9
