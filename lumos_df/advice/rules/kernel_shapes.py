"""Matrix products of 16 bits whose rows do not begin where tensor cores load: what if their sizes were padded."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import Call, KernelCalls
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.unfused_attention import unfused_attention
from lumos_df.advice.shorter_kernels import NewTimes, shorter_kernels, slowness
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.hardware import Hardware
from lumos_df.schema.codes import GEMM
from lumos_df.schema.dtypes import PRECISIONS

_HALF: Final = 2
"""Bytes of an element of the products that are looked at."""
_MULTIPLE: Final = 16 // _HALF
"""Elements of which a size has to be a multiple: tensor cores load 16 bytes at once."""
_NARROW: Final = re.compile(r"align[124](?!\d)")
"""What names of kernels hold that load fewer elements at once."""
_SHAPES: Final = 3
"""Shapes that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Products:
    """Matrix products of 16 bits of one rank [k]; ns."""

    calls: KernelCalls
    at: NDArray[np.int64]
    """Places in `calls`."""
    dur: NDArray[np.int64]
    """What they took."""
    modelled: NDArray[np.float64]
    """What the cost function says of them, with padded sizes."""
    aligned: NDArray[np.bool_]
    """Whether no size has to be padded."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to pad the sizes of products."""
    hardware = advised.hardware
    if hardware is None or not any((rows.family == GEMM).any() for rows in advised.ranks):
        return
    attentions = unfused_attention(advised)
    ranks = [
        _products(calls, attention.products, hardware)
        for calls, attention in zip(advised.kernel_calls, attentions, strict=True)
    ]
    # How far the job's own aligned products are from the cost function; without any it holds as it is.
    slow = slowness([(rank.dur[rank.aligned], rank.modelled[rank.aligned]) for rank in ranks], 1.0)
    shorter = shorter_kernels(
        advised,
        [
            NewTimes(
                calls=rank.calls,
                at=rank.at[~rank.aligned],
                would=np.minimum(rank.modelled * slow, rank.dur)[~rank.aligned],
            )
            for rank in ranks
        ],
    )
    if shorter is None:
        return
    shapes = ", ".join(map(str, islice(shorter.gains, _SHAPES)))
    yield Remedy(
        rule="kernel_shapes",
        what=f"products with sizes that are no multiples of {_MULTIPLE} take "
        f"{format_ns(round(shorter.before / len(advised.steps_ns)))} a step, most {shapes}: pad them",
        known=Known.MODELLED,
        rests_on=format_count(shorter.count, "kernel"),
        apply=shorter.change.apply,
        uncertainty=shorter.model_error,
    )


def _products(calls: KernelCalls, elsewhere: NDArray[np.int64], hardware: Hardware) -> _Products:
    """Return the products of a rank, without those of attention, for which one kernel is the better remedy."""
    row = hardware.row()
    modelled = np.array([*(_padded_ns(call, row) for call in calls.calls), 0.0])[calls.call]
    of_attention = np.zeros(len(calls.row), np.bool_)
    of_attention[elsewhere[elsewhere >= 0]] = True
    at = np.flatnonzero((calls.family == GEMM) & (modelled > 0) & ~of_attention)
    sizes = np.array([*(_sizes(call) for call in calls.calls), (0, 0, 0)])[calls.call[at]]
    odd = sizes % _MULTIPLE != 0
    # Rows of the first matrix are loaded one by one, unless it is transposed, which only the kernel tells.
    narrow = calls.trace.rows.named(_NARROW.search)[calls.row[at]]
    odd[:, 0] &= narrow
    return _Products(calls=calls, at=at, dur=calls.dur[at], modelled=modelled[at], aligned=~odd.any(axis=1))


def _sizes(call: Call) -> tuple[int, int, int]:
    return (call.product.m, call.product.k, call.product.n) if call.product else (0, 0, 0)


def _padded_ns(call: Call, hardware: np.void) -> float:
    """Return what a product of 16 bits takes with padded sizes, ns; 0 of anything else."""
    product = call.product
    if product is None or call.dtype.precision is None or call.dtype.bytes != _HALF:
        return 0.0
    m, k, n = (-(-size // _MULTIPLE) * _MULTIPLE for size in _sizes(call))
    peak = float(hardware["peak_flops"][PRECISIONS.index(call.dtype.precision)])
    return replace(product, m=m, k=k, n=n).seconds(hardware, peak, _HALF) * 1e9 if peak else 0.0
