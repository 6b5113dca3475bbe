"""Convolutions that turn their tensors into another layout and back: what if tensors had that layout throughout."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP, KERNEL

_TRANSPOSES: Final = re.compile(r"nchwToNhwc|nhwcToNchw|^batched_transpose_")
"""How cuDNN and MIOpen call what turns one layout into the other."""
_CONVOLUTION: Final = re.compile(r"^aten::.*convolution")


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose channels_last for convolutions that transpose their tensors."""
    turned = [_transposes(rows) for rows in advised.ranks]
    kernels = sum(map(len, turned))
    if not kernels:
        return
    parts = [np.ones(len(rows)) for rows in advised.ranks]
    for part, row in zip(parts, turned, strict=True):
        part[row] = 0
    taken = sum(int(rows.dur[row].sum()) for rows, row in zip(advised.ranks, turned, strict=True))
    lasts = format_ns(taken // len(advised.steps_ns))
    yield Remedy(
        rule="convolution_layout",
        what=f"convolutions transpose their tensors from NCHW to NHWC and back, {lasts} a step: keep model and batches "
        "in channels_last",
        known=Known.REPLAYED,
        rests_on=f"{format_count(kernels, 'kernel')} on {format_count(len(advised.graphs), 'rank')}",
        apply=less_work(advised, parts).apply,
    )


def _transposes(rows: Rows) -> NDArray[np.int64]:
    """Return the kernels of a rank that change the layout for a convolution."""
    kernel = np.flatnonzero((rows.kind == KERNEL) & rows.named(_TRANSPOSES.search))
    operator = rows.nearest(rows.kind == CPU_OP, kernel.astype(np.int32))
    convolves = np.append(rows.named(_CONVOLUTION.match), False)
    found: NDArray[np.int64] = kernel[convolves[operator]]
    return found
