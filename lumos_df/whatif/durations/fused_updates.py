"""Optimizers whose one operator updates all parameters of a rank: what it touches is told by the gradients.

PyTorch records no shapes of a list of more than 30 tensors, and no list shows that other layers have other parameters.
"""

import json
import re
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.structure.axes import Axes
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.structure.operator_kinds import tensors
from lumos_df.whatif.durations import added_gradients
from lumos_df.whatif.durations.symbols import Symbols

_FUSED: Final = re.compile(r"aten::_fused_\w+_$")
_ELEMENT_BYTES: Final = 4 * 4
"""A parameter, its gradient and two moments. Only ratios matter."""


def updates_all(name: str) -> bool:
    """Return whether an operator updates all parameters at once."""
    return bool(_FUSED.match(name))


def touched(
    trace: Trace, structure: Structure, symbols: Symbols, axes: Axes, copies: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the bytes of all parameters, before and after a change; (0, 0) where no gradient tells its shape.

    Args:
        trace: the trace.
        structure: micro-batch of every operator.
        symbols: what axes of shapes become.
        axes: what is known of them.
        copies: how many times as many of every operator there will be [n].
    """
    row, elements, grown, passes = parameters(trace, structure, symbols, axes)
    bytes_of = elements * _ELEMENT_BYTES / passes
    after = bytes_of * grown * copies[row]
    return float(bytes_of.sum()), float(after.sum())


def parameters(
    trace: Trace, structure: Structure, symbols: Symbols, axes: Axes
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], int]:
    """Return of each gradient that is added up an operator of its layer, its elements, and by how much they grow [k].

    Last comes in how many passes they are.

    Args:
        trace: the trace.
        structure: micro-batch of every operator.
        symbols: what axes of shapes become.
        axes: what is known of them.
    """
    row, elements, passes = added_gradients.added_up(trace, structure)
    code, kind = trace.dims.code[row], axes.kind[row]
    _, example, inverse = np.unique(packed(code, kind), return_index=True, return_inverse=True)
    grown = np.ones(len(example))
    for number, at in enumerate(row[example].tolist()):
        # A parameter of one number has no axes.
        shape = next(iter(tensors(json.loads(trace.dims.words[trace.dims.code[at]]))), ())
        labels = axes.labels(at)
        # A rank's part of a parameter may be empty.
        grown[number] = prod(symbols.rescaled(shape, labels=labels[0] if labels else ())) / max(prod(shape), 1)
    return last_linked(trace, row), elements, grown[inverse.reshape(-1)], passes


def last_linked(trace: Trace, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of some rows the last one before on its thread that is the backward of a forward one, else itself [k].

    What adds up a gradient comes behind what computed it, and has no forward operator that tells its layer.
    """
    rows = trace.rows
    linked = np.flatnonzero((rows.forward >= 0) & (rows.thread >= 0))
    if not len(linked) or not len(row):
        return row
    first = rows.ts.min()
    moment = rows.thread * (rows.ts.max() - first + 1) + rows.ts - first
    linked = linked[np.argsort(moment[linked], kind="stable")]
    last = linked[np.searchsorted(moment[linked], moment[row]) - 1]
    follows = (moment[last] < moment[row]) & (rows.thread[last] == rows.thread[row])
    return np.where(follows, last, row)
