"""The sequence of a changed job's blocks: layers and micro-batches copied or dropped."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, OUTSIDE, Blocks


def program(of: Blocks, layers: tuple[int, int], batch: tuple[int, int]) -> NDArray[np.int64]:
    """Return the blocks in the sequence of a job with other layers or micro-batches [p].

    Args:
        of: the blocks of one rank.
        layers: of the whole model, before and after.
        batch: micro-batches of a step, before and after; without a pipeline they come one after another.
    """
    sequence = np.arange(len(of), dtype=np.int64)
    if layers[0] != layers[1]:
        sequence = _layers(of, layers[1] / layers[0])
    if batch[0] != batch[1]:
        sequence = _batches(of, sequence, batch[1])
    return sequence


def _layers(of: Blocks, ratio: float) -> NDArray[np.int64]:
    """Return the blocks with another number of layers in every pass; the backward comes down through the same ones."""
    known = np.unique(of.layer[of.layer >= 0])
    chosen = known[taken(len(known), max(1, round(len(known) * ratio)))]
    inside = np.flatnonzero(of.layer >= 0)
    same = (np.diff(of.kind[inside]) == 0) & (np.diff(of.step[inside]) == 0) & (np.diff(of.micro_batch[inside]) == 0)
    starts = np.append(0, np.flatnonzero(~same) + 1)
    parts: list[NDArray[np.int64]] = []
    done = 0
    for low, high in pairwise(np.append(starts, len(inside)).tolist()):
        begin, end = int(inside[low]), int(inside[high - 1]) + 1
        parts.append(np.arange(done, begin))
        parts += _pass(of, begin, end, chosen)
        done = end
    parts.append(np.arange(done, len(of)))
    return np.concatenate(parts)


def _pass(of: Blocks, begin: int, end: int, chosen: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Return the blocks of one pass by the chosen layers; what lies between two layers goes with the first."""
    own = np.arange(begin, end)
    layer = of.layer[own]
    known = np.flatnonzero(layer >= 0)
    layer = layer[known[np.searchsorted(known, np.arange(len(own)), side="right") - 1]]
    up = of.kind[begin] != BACKWARD_PASS
    return [own[layer == one] for one in (chosen if up else chosen[::-1]).tolist()]


def taken(old: int, new: int) -> NDArray[np.int64]:
    """Return which of `old` layers or micro-batches the `new` ones are made of.

    The first and the last meet what is around them, so they stay; those between are left out at the end, or come again
    in their order: what disturbed a rank now and then does so as often, and no more at once, than as recorded.
    """
    if old <= 2:
        return np.sort(np.arange(new) % old) if new >= old else np.arange(new)
    if new == 1:
        return np.zeros(1, np.int64)
    between = 1 + np.arange(new - 2) % (old - 2)
    return np.concatenate(([0], between, [old - 1]))


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
        parts.extend(own[batch == one] for one in known[taken(len(known), new)].tolist())
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


def turns(of: Blocks, sequence: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which micro-batch each block of a sequence is in, counted over its steps and copies; NONE: in none [p]."""
    batch = np.full(len(of), NONE, np.int32)
    every = np.arange(len(of))
    for own in np.split(every, np.flatnonzero(np.diff(of.step)) + 1):
        batch[own] = _batch_of(of, own)
    inside = np.flatnonzero(batch[sequence] >= 0)
    block = sequence[inside]
    _, first, which = np.unique(np.stack((of.step, batch)), axis=1, return_index=True, return_inverse=True)
    which = which.reshape(-1)[block]
    # A copy begins where the first block of the micro-batch comes again.
    begun = (block == first[which]) | (np.diff(which, prepend=NONE) != 0)
    found = np.full(len(sequence), NONE, np.int64)
    found[inside] = np.cumsum(begun)
    return found


def early(of: Blocks, sequence: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which blocks of a sequence come again later in their step, in another micro-batch [p]."""
    step = of.step[sequence]
    batch = of.micro_batch[sequence]
    kind = of.kind[sequence]
    # A new pass begins where the kind, the micro-batch or the step of layers changes.
    inside = np.flatnonzero(kind != OUTSIDE)
    if not len(inside):
        return np.zeros(len(sequence), np.bool_)
    change = np.append(
        True, (np.diff(kind[inside]) != 0) | (np.diff(batch[inside]) != 0) | (np.diff(step[inside]) != 0)
    )
    number = np.cumsum(change)
    last: dict[tuple[int, int], int] = {}
    for place, one in zip(inside[change].tolist(), number[change].tolist(), strict=True):
        last[int(step[place]), int(kind[place])] = one
    found = np.zeros(len(sequence), np.bool_)
    final = np.array([last[int(step[place]), int(kind[place])] for place in inside[change].tolist()], np.int64)
    if len(final):
        found[inside] = number != final[number - 1]
        # What comes between two passes ends the first of them.
        before = np.searchsorted(inside, np.arange(len(sequence)), side="right") - 1
        found = np.where(before >= 0, found[inside[np.maximum(before, 0)]], False)
    return found
