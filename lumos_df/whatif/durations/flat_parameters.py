"""Vectors of parameters: what is sent of them, or of their gradients, lies in one row, whatever their shapes.

A layer's that is gathered and given back (FSDP's), a bucket of gradients (DDP's), the share of each rank: no size of
the model is a factor of such a length. It is the elements of parameters, whose gradients are added up in their shapes.
"""

import json

import numpy as np

from lumos_df.graph.host_collectives import host_collectives
from lumos_df.structure.axes import Axes
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.structure.operator_kinds import tensors
from lumos_df.structure.shapes import Shape
from lumos_df.whatif.durations import fused_updates
from lumos_df.whatif.durations.symbols import Symbols


def grown(trace: Trace, structure: Structure, symbols: Symbols, axes: Axes) -> dict[Shape, float]:
    """Return by how much rows of parameters grow, by their shapes: one parameter each, and what collectives carry.

    A vector as long as a layer's parameters grows as these, one as long as all outside of layers as those, any other
    as all parameters. The share of a rank and what all ranks have grow alike.

    Args:
        trace: a rank without a GPU.
        structure: layer and micro-batch of every operator.
        symbols: what axes of shapes become.
        axes: what is known of them.
    """
    rows = trace.rows
    sent = host_collectives(rows)
    if not len(sent):
        return {}
    row, elements, ratios, passes = fused_updates.parameters(trace, structure, symbols, axes)
    ranks = max(rows.world_size, 1)
    if not len(row) or (ratios == 1).all():
        return {}
    known: dict[Shape, float] = {}
    for length, ratio in zip(elements.tolist(), ratios.tolist(), strict=True):
        _add(known, round(length), ratio, ranks)
    layer = structure.layer[row]
    sums: dict[int, float] = {}
    for number in np.unique(layer).tolist():
        mine = layer == number
        before, after = (float(each[mine].sum()) / passes for each in (elements, elements * ratios))
        sums[round(before)] = after / max(before, 1)
    everything = float((elements * ratios).sum() / max(elements.sum(), 1))
    for code in np.unique(trace.dims.code[sent]).tolist():
        shape = next(iter(tensors(json.loads(trace.dims.words[code]))), ()) if code >= 0 else ()
        if len(shape) == 1:
            length = shape[0]
            _add(known, length, sums.get(length, sums.get(length * ranks, everything)), ranks)
    return known


def after(shape: Shape, rescaled: Shape, known: dict[Shape, float]) -> Shape:
    """Return what a shape becomes that sizes of the model leave as it is, if it is parameters in one row, or a rank's.

    Args:
        shape: as recorded.
        rescaled: after the change.
        known: as `grown` returns it.
    """
    if rescaled != shape or shape not in known:
        return rescaled
    return (*shape[:-1], max(1, round(shape[-1] * known[shape])))


def _add(known: dict[Shape, float], length: int, ratio: float, ranks: int) -> None:
    share = -(-length // ranks)
    for shape in ((length,), (length * ranks,), (share,), (ranks, length), (ranks, share)):
        known.setdefault(shape, ratio)
