"""The sequence of a changed job's blocks: layers and micro-batches copied or dropped."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumos_df.estimate.anchored.blocks import OUTSIDE, Blocks
from lumos_df.graph.rows import NONE


def program(of: Blocks, layers: tuple[int, int], batch: tuple[int, int]) -> NDArray[np.int64]:
    """Return the blocks in the sequence of a job with other layers or micro-batches [p].

    Args:
        of: the blocks of one rank.
        layers: of the whole model, before and after.
        batch: micro-batches of a step, before and after; without a pipeline they come one after another.
    """
    sequence = np.arange(len(of), dtype=np.int64)
    if layers[0] != layers[1]:
        known = np.unique(of.layer[of.layer >= 0])
        many = max(1, round(len(known) * layers[1] / layers[0]))
        times = np.ones(len(of), np.int64)
        inside = of.layer >= 0
        times[inside] = _times(len(known), many)[np.searchsorted(known, of.layer[inside])]
        sequence = np.repeat(sequence, times)
    if batch[0] != batch[1]:
        sequence = _batches(of, sequence, batch[1])
    return sequence


def _times(old: int, new: int) -> NDArray[np.int64]:
    """Return how often each of `old` things is there when they are made `new`.

    Fewer are the first ones and the last, which meets what follows; more are copies, spread evenly.
    """
    if new <= old:
        kept = np.arange(old) < new - 1
        kept[-1] = True
        return kept.astype(np.int64)
    # The first and the last meet what is around them, so what is copied lies between, where there is anything.
    edge = 1 if old > 2 else 0
    chosen = edge + np.round(np.linspace(0, old - 1 - 2 * edge, new - 2 * edge)).astype(np.int64)
    return np.bincount(chosen, minlength=old) + np.isin(np.arange(old), (0, old - 1)) * edge


def _batches(of: Blocks, sequence: NDArray[np.int64], new: int) -> NDArray[np.int64]:
    """Return a sequence with another number of micro-batches in every step."""
    parts: list[NDArray[np.int64]] = []
    step = of.step[sequence]
    # Steps lie one after another.
    bounds = np.append(np.flatnonzero(np.diff(step, prepend=step[:1] - 1)), len(sequence)).tolist()
    for low, high in pairwise(bounds):
        own = sequence[low:high]
        batch = _batch_of(of, own)
        known = np.unique(batch[batch >= 0])
        if not len(known):
            parts.append(own)
            continue
        inside = np.flatnonzero(batch >= 0)
        parts.append(own[: inside[0]])
        times = _times(len(known), new)
        parts.extend(own[batch == one] for one in np.repeat(known, times).tolist())
        parts.append(own[inside[0] :][batch[inside[0] :] == NONE])
    return np.concatenate(parts) if parts else sequence


def _batch_of(of: Blocks, own: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the micro-batch of the blocks of one step; what lies between two blocks of one has it, too."""
    batch = of.micro_batch[own].copy()
    inside = np.flatnonzero(of.kind[own] != OUTSIDE)
    if len(inside):
        place = np.searchsorted(inside, np.arange(len(own)))
        after = batch[inside[np.minimum(place, len(inside) - 1)]]
        before = batch[inside[np.maximum(place - 1, 0)]]
        between = (place > 0) & (place < len(inside)) & (before == after)
        batch = np.where(between, after, batch)
    return batch.astype(np.int32)
