"""The sequence of a changed job's blocks: layers and micro-batches copied or dropped."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, FORWARD_PASS, OUTSIDE, Blocks


def program(blocks: Blocks, layers: tuple[int, int], batch: tuple[int, int]) -> NDArray[np.int64]:
    """Return the blocks in the sequence of a job with other layers or micro-batches [p].

    Args:
        blocks: the blocks of one rank.
        layers: of the whole model, before and after.
        batch: micro-batches of a step, before and after; without a pipeline they come one after another.
    """
    sequence = np.arange(len(blocks), dtype=np.int64)
    if layers[0] != layers[1]:
        sequence = _layers(blocks, layers[1] / layers[0])
    if batch[0] != batch[1]:
        sequence = _batches(blocks, sequence, batch[1])
    return sequence


def _layers(blocks: Blocks, ratio: float) -> NDArray[np.int64]:
    """Return the blocks with another number of layers in every pass; the backward comes down through the same ones.

    Where a pass comes to its first layer again, another stack begins, which has as many.
    """
    known = np.unique(blocks.layer[blocks.layer >= 0])
    chosen = known[taken(len(known), max(1, round(len(known) * ratio)))]
    inside = np.flatnonzero(blocks.layer >= 0)
    same = (
        (np.diff(blocks.kind[inside]) == 0)
        & (np.diff(blocks.step[inside]) == 0)
        & (np.diff(blocks.micro_batch[inside]) == 0)
    )
    onward = np.diff(blocks.layer[inside])
    same &= np.where(blocks.kind[inside[1:]] == BACKWARD_PASS, onward <= 0, onward >= 0)
    starts = np.append(0, np.flatnonzero(~same) + 1)
    parts: list[NDArray[np.int64]] = []
    done = 0
    for low, high in pairwise(np.append(starts, len(inside)).tolist()):
        begin, end = int(inside[low]), int(inside[high - 1]) + 1
        parts.append(np.arange(done, begin))
        parts += _pass(blocks, begin, end, chosen)
        done = end
    parts.append(np.arange(done, len(blocks)))
    return np.concatenate(parts)


def _pass(blocks: Blocks, begin: int, end: int, chosen: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Return the blocks of one pass by the chosen layers; what lies between two layers goes with the first."""
    block = np.arange(begin, end)
    layer = blocks.layer[block]
    known = np.flatnonzero(layer >= 0)
    layer = layer[known[np.searchsorted(known, np.arange(len(block)), side="right") - 1]]
    up = blocks.kind[begin] != BACKWARD_PASS
    return [block[layer == wanted] for wanted in (chosen if up else chosen[::-1]).tolist()]


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


def _batches(blocks: Blocks, sequence: NDArray[np.int64], new: int) -> NDArray[np.int64]:
    """Return a sequence with another number of micro-batches in every step."""
    parts: list[NDArray[np.int64]] = []
    step = blocks.step[sequence]
    # Steps lie one after another.
    bounds = np.append(np.flatnonzero(np.diff(step, prepend=step[:1] - 1)), len(sequence)).tolist()
    for low, high in pairwise(bounds):
        in_step = sequence[low:high]
        batch = _batch_of(blocks, in_step)
        known = np.unique(batch[batch >= 0])
        if not len(known):
            parts.append(in_step)
            continue
        inside = np.flatnonzero(batch >= 0)
        parts.append(in_step[: inside[0]])
        each = [in_step[batch == number] for number in known.tolist()]
        parts.extend([each[number] for number in taken(len(each), new).tolist()] if new > 1 else _only(blocks, each))
        parts.append(in_step[inside[0] :][batch[inside[0] :] == NONE])
    return np.concatenate(parts) if parts else sequence


def _only(blocks: Blocks, each: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Return what a step of one micro-batch has of several: the first one up to its last layer, the last one on.

    What is done once a step comes before the first forward pass (gradients cleared) and in the last backward one
    (gradients reduced).
    """
    ends = [np.flatnonzero(blocks.kind[batch] == FORWARD_PASS)[-1:] + 1 for batch in (each[0], each[-1])]
    if not all(map(len, ends)):
        return each[:1]
    return [each[0][: ends[0][0]], each[-1][ends[1][0] :]]


def _batch_of(blocks: Blocks, in_step: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the micro-batch of the blocks of one step; what lies between two blocks of one has it, too."""
    batch = blocks.micro_batch[in_step].copy()
    inside = np.flatnonzero(blocks.kind[in_step] != OUTSIDE)
    if len(inside):
        place = np.searchsorted(inside, np.arange(len(in_step)))
        after = batch[inside[np.minimum(place, len(inside) - 1)]]
        before = batch[inside[np.maximum(place - 1, 0)]]
        between = (place > 0) & (place < len(inside)) & (before == after)
        batch = np.where(between, after, batch)
    return batch.astype(np.int32)


def turns(blocks: Blocks, sequence: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which micro-batch each block of a sequence is in, counted over its steps and copies; NONE: in none [p]."""
    batch = np.full(len(blocks), NONE, np.int32)
    every = np.arange(len(blocks))
    for in_step in np.split(every, np.flatnonzero(np.diff(blocks.step)) + 1):
        batch[in_step] = _batch_of(blocks, in_step)
    inside = np.flatnonzero(batch[sequence] >= 0)
    block = sequence[inside]
    _, first, which = np.unique(np.stack((blocks.step, batch)), axis=1, return_index=True, return_inverse=True)
    which = which.reshape(-1)[block]
    # A copy begins where the first block of the micro-batch comes again.
    begun = (block == first[which]) | (np.diff(which, prepend=NONE) != 0)
    turn = np.full(len(sequence), NONE, np.int64)
    turn[inside] = np.cumsum(begun)
    return turn


def early(blocks: Blocks, sequence: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which blocks of a sequence come again later in their step, in another micro-batch [p]."""
    step = blocks.step[sequence]
    batch = blocks.micro_batch[sequence]
    kind = blocks.kind[sequence]
    # A new pass begins where the kind, the micro-batch or the step of layers changes.
    inside = np.flatnonzero(kind != OUTSIDE)
    if not len(inside):
        return np.zeros(len(sequence), np.bool_)
    change = np.append(
        True, (np.diff(kind[inside]) != 0) | (np.diff(batch[inside]) != 0) | (np.diff(step[inside]) != 0)
    )
    number = np.cumsum(change)
    last: dict[tuple[int, int], int] = {}
    for place, pass_number in zip(inside[change].tolist(), number[change].tolist(), strict=True):
        last[int(step[place]), int(kind[place])] = pass_number
    comes_again = np.zeros(len(sequence), np.bool_)
    final = np.array([last[int(step[place]), int(kind[place])] for place in inside[change].tolist()], np.int64)
    if len(final):
        comes_again[inside] = number != final[number - 1]
        # What comes between two passes ends the first of them.
        before = np.searchsorted(inside, np.arange(len(sequence)), side="right") - 1
        comes_again = np.where(before >= 0, comes_again[inside[np.maximum(before, 0)]], False)
    return comes_again
