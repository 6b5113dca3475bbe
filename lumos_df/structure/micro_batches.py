"""Which micro-batch of its step each compute kernel works on."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import FORWARD, NONE
from lumos_df.structure import passes
from lumos_df.structure.compute_stream import ComputeKernels
from lumos_df.structure.kernels.spread import UNKNOWN, inherit, spread
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.passes import Passes


def of_kernels(trace: Trace, kernels: ComputeKernels, forward: Passes, backward: Passes) -> NDArray[np.int32]:
    """Return the micro-batch of every compute kernel: the ordinal of its pass in the step; NONE outside the passes."""
    batch = np.full(len(kernels), NONE, np.int32)
    if forward.count:
        ordinal = _ordinal_in_step(kernels, forward)
        batch[forward.place] = np.append(ordinal, NONE)[forward.number]
        partner = _of_partner(trace, kernels, batch, backward)
        if backward.count:
            ordinal = _linked(partner, backward, _ordinal_in_step(kernels, backward))
            of_pass = np.append(ordinal, NONE)[backward.number]
            partner = np.where(backward.number == NONE, _in_no_pass(partner, backward), of_pass)
        batch[backward.place] = partner
        return batch
    both = np.sort(np.concatenate((forward.place, backward.place)))
    if len(both):
        number = _turns(kernels.phase[both] == FORWARD, kernels.weight[both])
        count = int(number[-1]) + 1
        whole = replace(passes.nothing(both), number=number, count=count, cut=np.zeros(count, np.bool_))
        batch[both] = _ordinal_in_step(kernels, whole)[number]
    return batch


def _in_no_pass(partner: NDArray[np.int32], backward: Passes) -> NDArray[np.int32]:
    """Return the micro-batch of backward kernels by links alone: of each stretch in no pass that of most partners.

    The first of several micro-batches adds no gradients up, so its backward pass may repeat nothing of the others'.
    """
    apart = backward.number == NONE
    begins = apart & (~np.append(False, apart[:-1]) | (np.diff(backward.place, prepend=NONE) > 1))
    stretch = np.where(apart, np.cumsum(begins, dtype=np.int32) - 1, NONE)
    whole = replace(backward, number=stretch, count=int(begins.sum()))
    unknown = np.full(whole.count + 1, NONE, np.int32)
    return np.append(_linked(partner, whole, unknown[:-1]), NONE)[stretch].astype(np.int32)


def _turns(ahead: NDArray[np.bool_], weight: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the pass of kernels without layers: one ends where the backward goes over into a forward.

    A forward with less than half of the work of the largest is no pass of its own: losses and gathers in between.
    """
    number = np.cumsum(ahead & ~np.append(True, ahead[:-1]))
    work = np.bincount(number, np.where(ahead, weight + 1e-6, 0))
    begins = 2 * work >= work.max()
    begins[0] = True
    turns: NDArray[np.int32] = (np.cumsum(begins) - 1)[number].astype(np.int32)
    return turns


def _ordinal_in_step(kernels: ComputeKernels, one_way: Passes) -> NDArray[np.int32]:
    """Return each pass's ordinal in its step: since the step's mark, or since the optimizer where there are no marks.

    A pass that began, or was issued, before the recording has none: it is of a step before.
    """
    inside = one_way.number >= 0
    number, place = one_way.number[inside], one_way.place[inside]
    before = np.ones(one_way.count, np.bool_)
    np.logical_and.at(before, number, kernels.issued_before[place])
    before |= one_way.cut
    step, era = np.full((2, one_way.count), NONE, np.int32)
    np.maximum.at(step, number, kernels.step[place])
    np.maximum.at(era, number, kernels.era[place])
    key = np.where(step >= 0, step, NONE - 1 - era)
    key[before] = np.iinfo(np.int32).min
    inverse = np.unique(key, return_inverse=True)[1]
    by_key = np.argsort(inverse, kind="stable")
    ordinal = np.empty(one_way.count, np.int32)
    start = np.cumsum(np.bincount(inverse)) - np.bincount(inverse)
    ordinal[by_key] = np.arange(one_way.count) - start[inverse[by_key]]
    ordinal[before] = NONE
    return ordinal


def _of_partner(trace: Trace, kernels: ComputeKernels, batch: NDArray[np.int32], backward: Passes) -> NDArray[np.int32]:
    """Return the micro-batch of the forward operator that each backward kernel is linked to, NONE where none is."""
    rows = trace.rows
    forward = inherit(rows.forward, rows.parent, rows.thread)[kernels.row[backward.place]]
    value = np.full(len(rows), UNKNOWN, np.int32)
    value[kernels.row] = batch
    source = np.where(rows.on_gpu[kernels.row], rows.parent[kernels.row], kernels.row)
    launches = np.zeros(len(rows), np.bool_)
    launches[source[source >= 0]] = True
    spread(value, rows.parent, rows.thread, launches)
    return np.where(forward >= 0, np.maximum(value[forward], NONE), NONE).astype(np.int32)


def _linked(partner: NDArray[np.int32], backward: Passes, ordinal: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the micro-batch of each backward pass: that of most of its kernels' partners, else its ordinal."""
    use = (partner >= 0) & (backward.number >= 0)
    if not use.any():
        return ordinal
    votes = np.zeros((backward.count, int(partner.max()) + 1), np.int64)
    np.add.at(votes, (backward.number[use], partner[use]), 1)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), ordinal).astype(np.int32)
