"""Floating-point operations of every step of a job, from its recorded shapes: as they were, and as they become."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import CPU_OP, RECOMPUTE
from lumos_df.structure.axes import Axes
from lumos_df.structure.describe import DescribedRank
from lumos_df.structure.shapes import ATTENDS
from lumos_df.trace.flops import OPERATORS, count
from lumos_df.whatif.durations.symbols import Symbols

_GEMM, _ATTENTION, _CONVOLUTION = (FAMILIES.index(name) for name in ("gemm", "attention", "convolution"))
_BATCHED: Final = ("aten::bmm", "aten::baddbmm")
"""Where attention is made of these, a kernel of its family is the softmax between them."""
_UNCOUNTED_SHARE: Final = 0.05
"""Threshold, share of the time of products, convolutions and attention. FLOP are not counted where more of it is below
operators of unknown work. Evidence: a count lacks about as large a share of them."""


@dataclass(frozen=True, slots=True)
class OperatorFlops:
    """FLOP of one rank's operators [n], of the original's rows; 0 where an operator is no arithmetic."""

    before: NDArray[np.float64]
    after: NDArray[np.float64]
    """In the changed job."""
    again: NDArray[np.bool_]
    """Whether it computes what was computed before."""


def recorded(rank: DescribedRank, symbols: Symbols, axes: Axes) -> OperatorFlops | None:
    """Return the operations of a rank; None where its shapes tell too little of them.

    Args:
        rank: one rank of the original.
        symbols: what its shapes become.
        axes: what is known of their axes.
    """
    trace, rows = rank.trace, rank.trace.rows
    named = rows.named(lambda name: name in OPERATORS)
    row = np.flatnonzero((rows.kind == CPU_OP) & named & (trace.dims.code >= 0))
    before, after = np.zeros(len(rows)), np.zeros(len(rows))
    if not len(row):
        return None
    columns = np.stack((rows.name[row], trace.dims.code[row], axes.kind[row]))
    kinds, example, inverse = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    told = [(rows.names[name], trace.dims.words[dims]) for name, dims, _ in kinds.T.tolist()]
    changed = [
        symbols.rescaled_text(dims, axes.labels(at)) for (_, dims), at in zip(told, row[example].tolist(), strict=True)
    ]
    inverse = inverse.reshape(-1)
    before[row] = np.array([count(name, dims) or 0 for name, dims in told], np.float64)[inverse]
    after_kind = [
        (count(name, dims) or 0) * (symbols.context if ATTENDS.search(name) else 1)
        for (name, _), dims in zip(told, changed, strict=True)
    ]
    after[row] = np.array(after_kind, np.float64)[inverse]
    apart = any(name in _BATCHED for name, _ in told)
    families = (_GEMM, _CONVOLUTION) if apart else (_GEMM, _CONVOLUTION, _ATTENTION)
    heavy = np.isin(rows.family, families) & rows.on_gpu
    lost = heavy & ~inherited(before > 0, rows.parent)
    if rows.dur[lost].sum() > _UNCOUNTED_SHARE * rows.dur[heavy].sum():
        return None
    return OperatorFlops(before, after, rank.structure.phase == RECOMPUTE)


def by_step(
    flops: NDArray[np.float64], step: NDArray[np.int32], numbers: NDArray[np.int32], *, whole: bool
) -> NDArray[np.float64]:
    """Return the FLOP of each step [s].

    Args:
        flops: of every row [n].
        step: step of every row [n].
        numbers: numbers of the steps [s].
        whole: whether the trace is one step without a number.
    """
    if whole:
        return np.array([flops.sum()])
    place = np.searchsorted(numbers, step)
    inside = (place < len(numbers)) & (np.take(numbers, np.minimum(place, len(numbers) - 1)) == step)
    return np.bincount(place[inside], flops[inside], len(numbers)).astype(np.float64)
