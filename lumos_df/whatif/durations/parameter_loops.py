"""What a program does to one parameter after the other, outside of layers: such loops have as many turns as parameters.

DDP copies each gradient back from its bucket, a program reduces one by one, an optimizer reads how often it updated
each. No layer is around such a loop, so copied layers do not make it longer.
"""

import json

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import dense, packed
from lumos_df.schema.codes import NONE
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.whatif.durations import added_gradients, fused_updates


def turns(trace: Trace, structure: Structure, working: NDArray[np.int32], more: float) -> NDArray[np.float64]:
    """Return by how much more often each operator comes, because it is a turn of a loop over all parameters [n].

    Operators of one name that run in a step between two layers, as often as there are parameters or so many times as
    often, are such turns. Those of a parameter's shape come as often as it, others as all parameters; parameters
    outside of layers may have a turn more, or none. What autograd links is the model's: a net with many heads behind
    its layers multiplies as often.

    Args:
        trace: a rank without a GPU.
        structure: layer and micro-batch of every operator.
        working: its operators that do work, thread by thread in their order [k].
        more: how many times as many layers there will be.
    """
    often = np.ones(len(trace))
    added, _, passes = added_gradients.added_up(trace, structure)
    parameters = len(added) // passes
    if more == 1 or not parameters:
        return often
    inside = structure.layer[fused_updates.last_linked(trace, added)] >= 0
    grown = np.where(inside, more, 1.0)
    outside = (structure.layer[working] < 0) & ~_differentiated(trace)[working]
    row = working[outside]
    between = np.cumsum(structure.layer[working] >= 0)[outside]
    loop = dense(packed(trace.rows.thread[row], trace.rows.step[row], between, trace.rows.name[row]))
    held = np.bincount(loop)[loop]
    times = np.maximum(np.round(held / parameters), 1)
    row = row[np.abs(held - times * parameters) <= np.count_nonzero(~inside) // passes]
    # One shape more, of what records none.
    first = np.array([_first(word) for word in trace.dims.words] + [""])
    shapes, of_word = np.unique(first, return_inverse=True)
    of_added = of_word[trace.dims.code[added]]
    of_shape, after = (np.bincount(of_added, each, len(shapes)) for each in (None, grown))
    ratio = np.where(of_shape > 0, after / np.maximum(of_shape, 1), grown.mean())
    often[row] = ratio[of_word[trace.dims.code[row]]]
    return often


def _differentiated(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows are, or run in, an operator with a backward one, or that backward one [n]."""
    rows = trace.rows
    linked = rows.forward.copy()
    ahead = rows.forward[rows.forward >= 0]
    linked[ahead] = ahead
    differentiated: NDArray[np.bool_] = inherit(linked, rows.parent, rows.thread) != NONE
    return differentiated


def _first(word: str) -> str:
    """Return the shape of the first tensor in a word of shapes, as text."""
    return json.dumps(next(iter(json.loads(word)), None))
