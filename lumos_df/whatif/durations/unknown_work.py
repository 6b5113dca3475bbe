"""What kernels of unknown work take after a change, as no shapes are recorded of them.

Of other sizes they grow as kernels of known work do. On another GPU their family tells, and the precision that their
names hold. What moves tensors follows the memory as far as such kernels mostly wait for it. A product is taken for one
of three equal sides that lasts as long, and attention for one of heads of 128 over a sequence that does: how long these
take on either GPU, the cost functions of `model` say. So a long product follows the peak, and a short one what it takes
to start. Convolutions follow the memory, where the peak grows as much.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.model.kernels.gemm import gemm_seconds
from lumos_df.schema.codes import ATTENTION, CONVOLUTION, GEMM, NONE
from lumos_df.structure.labelled_rows import Trace
from lumos_df.whatif.durations import kernel_times, other_memory
from lumos_df.whatif.durations.kernel_kind import BESIDE_ATTENTION
from lumos_df.whatif.durations.kernel_times import KernelWork
from lumos_df.whatif.durations.named_precision import machines
from lumos_df.whatif.job.recorded_gpu import Machine

ERROR: Final = 0.48
"""Threshold, relative error. A product of unknown sides takes on another GPU what is said within this. Evidence: 8 of
10 of 144,000 pairs of products in 16 bits on two of A100, H100 and B200 (aiconfigurator) are nearer; by GPUs 0.30 to
0.79. Attention and convolutions are taken to be as far off."""
_SIDES: Final = np.unique(np.round(np.geomspace(64, 65536, 100) / 64) * 64)
_HEADS: Final = 32
_HEAD_SIZE: Final = 128


def like_others(
    kernels: KernelWork, after: NDArray[np.float64], passes: NDArray[np.bool_], tokens: float
) -> NDArray[np.float64]:
    """Return the times if all grow as the last kernel of known work before them did, s [k].

    Where the trace records no shapes at all, all that the passes do grows with the tokens.

    Args:
        kernels: of which some are of unknown work.
        after: what those of known work take, s [k].
        passes: which belong to the forward or the backward pass [k].
        tokens: by how much the tokens grow.
    """
    known = np.flatnonzero(~np.isnan(kernels.before))
    if len(known):
        before = known[np.maximum(np.searchsorted(known, np.arange(len(after)), side="right") - 1, 0)]
        return kernels.time * after[before] / np.maximum(kernels.time[before], 1e-9)
    return np.where(passes, kernels.floor + (kernels.time - kernels.floor) * tokens, kernels.time)


def by_family(
    kernels: KernelWork, trace: Trace, old: Machine, new: Machine
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what kernels take that do the same on another GPU, s, and by how much that may be off, relative [k].

    Args:
        kernels: those of the trace.
        trace: the trace.
        old: the GPU that was measured, and the precision of products whose names tell none.
        new: the other one.
    """
    rows = trace.rows
    names, which = np.unique(rows.name[kernels.row], return_inverse=True)
    words = [rows.names[name] for name in names.tolist()]
    beside = np.array([*(bool(BESIDE_ATTENTION.search(word)) for word in words)], np.bool_)[which]
    family = rows.family[kernels.row].astype(np.int64)
    family[(family == ATTENTION) & beside] = NONE
    multiplies = np.isin(family, (GEMM, ATTENTION))
    floors, above = float(new.row["memory"][0] / old.row["memory"][0]), kernels.time - kernels.floor
    convolves = family == CONVOLUTION
    ratio = np.where(convolves, other_memory.convolution_ratio(old, new), other_memory.untold_ratio(old, new))
    after = kernels.floor * floors + above * ratio
    # Near the floor a kernel may wait for what no faster memory makes shorter.
    near = 1 - above / np.maximum(above + kernel_times.TRUST_FLOORS * kernels.floor, 1e-12)
    error = near * np.abs(np.log(np.maximum(after, 1e-9) / np.maximum(kernels.time, 1e-9)))
    for place, word in enumerate(words):
        mine = multiplies & (which == place)
        if mine.any():
            law = _attention if (family[mine] == ATTENTION).any() else _product
            after[mine] = kernels.time[mine] * _ratio(kernels.time[mine], law, *machines(word, old, new))
    return after, np.where(multiplies | convolves, ERROR, error)


def _ratio(
    time: NDArray[np.float64], law: Callable[[float, Machine], float], old: Machine, new: Machine
) -> NDArray[np.float64]:
    """Return what kernels take on another GPU over what they took, where a size decides both [k]."""
    was, now = (np.array([law(side, machine) for side in _SIDES.tolist()]) for machine in (old, new))
    was = np.maximum.accumulate(was)
    ratio: NDArray[np.float64] = np.exp(np.interp(np.log(np.maximum(time, 1e-9)), np.log(was), np.log(now / was)))
    return ratio


def _product(side: float, machine: Machine) -> float:
    """Return the time of a product of three equal sides, s."""
    row = machine.row
    peak, fitted = row["peak_flops"][machine.precision], row["gemm"][machine.precision]
    seconds = gemm_seconds(side, side, side, 1, machine.element_bytes, peak, row["hbm_bandwidth"], row["sms"], fitted)
    return float(seconds)


def _attention(keys: float, machine: Machine) -> float:
    """Return the time of causal attention over a sequence, s."""
    row = machine.row
    peak, fitted = row["peak_flops"][machine.precision], row["attention"][machine.precision]
    size, bandwidth = machine.element_bytes, row["hbm_bandwidth"]
    seconds = attention_seconds(
        1, keys, keys, _HEADS, _HEADS, _HEAD_SIZE, True, False, size, peak, bandwidth, row["sms"], fitted
    )
    return float(seconds)
