"""Gradients that the backward pass adds up, by their shapes: which parameters a rank has."""

import json
from math import prod

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.words import GRADIENT
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.whatif.job.settings import Sizes


def tables(trace: Trace, structure: Structure, sizes: Sizes) -> int:
    """Return how many tables of the vocabulary a rank with both ends of the model has: two, if their gradients say so.

    Args:
        trace: the rank.
        structure: what is known of its layers.
        sizes: those of its job.
    """
    row, elements, passes = added_up(trace, structure)
    table = (sizes.vocab or 0) * (sizes.hidden or 0) / (sizes.tp or 1)
    found = np.count_nonzero((structure.layer[row] < 0) & (elements == table)) / passes
    return 2 if table and round(found) > 1 else 1


def added_up(trace: Trace, structure: Structure) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Return the rows that add up gradients, their elements, and in how many passes they do; of recorded shapes [k]."""
    rows = trace.rows
    adds = rows.named(lambda name: name == GRADIENT)
    row = np.flatnonzero(adds & (trace.dims.code >= 0))
    shapes = [(json.loads(word) or [None])[0] for word in trace.dims.words]
    plain = [prod(shape) if shape and all(type(size) is int for size in shape) else 0 for shape in shapes]
    passes = len(np.unique(np.stack((rows.step[row], structure.micro_batch[row])), axis=1).T)
    return row, np.array(plain, np.float64)[trace.dims.code[row]] if plain else np.zeros(len(row)), max(passes, 1)
