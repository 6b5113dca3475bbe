"""Passes of micro-batches through the layers: the kernels of one phase, and which block of which run each is in."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
from lumos_df.structure import repetition
from lumos_df.structure.compute_stream import ComputeKernels
from lumos_df.structure.repetition import Repetition

_WORTH_SHARE: Final = 0.3
"""Threshold, share of matrix products and attention. A block that holds less of those of its phase is no layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What was found among k kernels of one phase."""

    place: NDArray[np.int64]
    """Which of the trace's compute kernels they are [k]."""
    layer: NDArray[np.int32]
    """Layer from 0 in the order of the forward pass; NONE outside the layers [k]."""
    at: NDArray[np.int32]
    """Place in its layer's block, from 0; NONE outside [k]."""
    number: NDArray[np.int32]
    """Number of the pass, from 0; NONE where no pass is near [k]."""
    count: int
    """Passes."""
    cut: NDArray[np.bool_]
    """Which of them began before the recording [count]."""
    layers: int
    """Layers of a whole pass; 0 where nothing repeats."""
    block: NDArray[np.int32]
    """Symbols of a block, from its first kernel."""
    exact: bool
    """Whether the symbols are those of `ComputeKernels.exact`, else of `ComputeKernels.loose`."""
    covered: float
    """Share of the phase's matrix products and attention inside layers."""
    stacks: int
    """Runs through the layers in one pass: 2 where as many come once more behind something else."""


def find(
    kernels: ComputeKernels,
    place: NDArray[np.int64],
    *,
    forward: bool,
    times: int | None = None,
    least: float | None = None,
) -> Passes:
    """Return the passes among some compute kernels.

    Args:
        kernels: the compute kernels.
        place: which of them are looked at, ascending [k].
        forward: whether they go up through the layers.
        times: layers that are known.
        least: share of their matrix products and attention that layers hold; as a block does if not given.
    """
    segment = _segments(kernels, place, split=True)
    blocks, exact = _repetition(kernels, place, segment, times)
    if kernels.transfers.any():
        # Sends and receives inside a layer (ring attention) are no end of a pass: blocks cover more across them.
        whole = _segments(kernels, place, split=False)
        across, across_exact = _repetition(kernels, place, whole, times)
        if across is not None and (blocks is None or blocks.covered < across.covered):
            segment, blocks, exact = whole, across, across_exact
    if blocks is None or blocks.covered < (_WORTH_SHARE if least is None else least):
        return nothing(place)
    first = _boundary(blocks, kernels.norm[place], forward=forward)
    merged = _merged(blocks, first)
    begin, end = _ends(merged.run)
    start, layers = _counts(merged, begin, end, first, kernels.named[place], segment)
    # Of the counts that occur, the one that most layers have: a run that the recording cut is shorter.
    usual = int(np.bincount(layers, weights=layers).argmax())
    cut_before = (begin < merged.period) & (place[0] < merged.period) & (layers < usual)
    cut_after = (len(place) - end < merged.period) & (len(kernels) - place[-1] < merged.period) & (layers < usual)
    layer = _layers(merged, start, layers, usual, cut_before, cut_after, forward=forward)
    number, first_run = _whole_passes(merged.run, segment, kernels.exact[place], begin, end, layer >= 0)
    block = np.roll(merged.template, -first)
    at = np.where(layer >= 0, (merged.place - first) % merged.period, NONE).astype(np.int32)
    return Passes(
        place=place,
        layer=layer,
        at=at,
        number=number,
        count=len(first_run),
        cut=cut_before[first_run],
        layers=usual,
        block=block,
        exact=exact,
        covered=blocks.covered,
        stacks=int(np.diff(np.append(first_run, len(begin))).max(initial=1)),
    )


def _segments(kernels: ComputeKernels, place: NDArray[np.int64], *, split: bool) -> NDArray[np.int32]:
    """Return numbers of stretches that a pass does not leave: one phase, one step, no send or receive in between."""
    step = kernels.step[place]
    before = np.append(NONE, step[:-1])
    ends = (np.diff(place, prepend=-1) > 1) | ((step != before) & (step >= 0) & (before >= 0))
    if split:
        ends |= np.diff(kernels.transfers[place], prepend=0) > 0
    return np.cumsum(ends).astype(np.int32)


def _repetition(
    kernels: ComputeKernels, place: NDArray[np.int64], segment: NDArray[np.int32], times: int | None
) -> tuple[Repetition | None, bool]:
    """Return the blocks by names with grids, else by names alone, and whether grids count."""
    counted = kernels.weight[place], kernels.attends[place], kernels.whole_layer[place], kernels.gradients
    exact = _search(kernels.exact[place], *counted, segment, times)
    if exact is not None and exact.covered >= _WORTH_SHARE:
        return exact, True
    return _search(kernels.loose[place], *counted, segment, times), False


def _search(
    symbols: NDArray[np.int32],
    weight: NDArray[np.int64],
    attends: NDArray[np.bool_],
    whole_layer: NDArray[np.bool_],
    gradients: int | None,
    segment: NDArray[np.int32],
    times: int | None,
) -> Repetition | None:
    breaks = np.flatnonzero(np.diff(segment)) + 1
    with_breaks = np.insert(symbols, breaks, NONE), np.insert(weight, breaks, 0)
    attention, layers = (np.insert(each, breaks, np.False_) for each in (attends, whole_layer))
    blocks = repetition.find(*with_breaks, times, attention, gradients, layers)
    if blocks is None:
        return None
    kept = np.ones(len(symbols) + len(breaks), np.bool_)
    kept[breaks + np.arange(len(breaks))] = False
    return replace(blocks, run=blocks.run[kept], place=blocks.place[kept])


def nothing(place: NDArray[np.int64]) -> Passes:
    """Return what is known of kernels in which nothing repeats."""
    nowhere = np.full(len(place), NONE, np.int32)
    return Passes(
        place=place,
        layer=nowhere,
        at=nowhere,
        number=nowhere,
        count=0,
        cut=np.empty(0, np.bool_),
        layers=0,
        block=np.empty(0, np.int32),
        exact=True,
        covered=0.0,
        stacks=1,
    )


def _ends(run: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first place of every run, and the place after its last; runs are numbered as they come."""
    inside = np.flatnonzero(run >= 0)
    begin = inside[np.flatnonzero(np.diff(run[inside], prepend=NONE))]
    end = inside[np.flatnonzero(np.diff(run[inside], append=NONE))] + 1
    return begin, end


def _boundary(blocks: Repetition, norm: NDArray[np.bool_], *, forward: bool) -> int:
    """Return the place in the template at which a block begins.

    A run may be longer than its blocks: what comes before and after them can look like their end and beginning. Of the
    possible boundaries, the one with a normalization nearest after it (backward: before it) is taken: layers begin with
    one. Without any, blocks begin where the run does (backward: end where it does).
    """
    begin, end = _ends(blocks.run)
    longest = int(np.argmax(blocks.place[end - 1] - blocks.place[begin]))
    first, last = int(blocks.place[begin[longest]]), int(blocks.place[end[longest] - 1]) + 1
    period = blocks.period
    over = (last - first) % period
    choices = np.arange(over + 1)
    inside = np.flatnonzero((blocks.run >= 0) & norm)
    marks = np.unique(blocks.place[inside] % period)
    usual = over if not forward else 0
    choices = choices[np.argsort(np.abs(choices - usual), kind="stable")]
    if not len(marks):
        return int((first + choices[0]) % period)
    at = (first + choices)[:, None]
    away = ((marks - at) if forward else (at - 1 - marks)) % period
    return int((first + choices[np.argmin(away.min(axis=1))]) % period)


def _merged(blocks: Repetition, first: int) -> Repetition:
    """Return the runs with those joined that a disturbance in the middle of a block parted."""
    begin, end = _ends(blocks.run)
    runs = blocks.run[begin]
    period = blocks.period
    inner = np.zeros(len(begin), np.bool_)
    if len(begin) > 1:
        phase = (blocks.place[begin[1:]] - first) % period
        inner[1:] = blocks.joined[runs[:-1]] & (phase > 0)
    ahead = np.zeros(len(begin), np.int64)
    if len(begin) > 1:
        step = blocks.place[end[:-1] - 1] + 1 - blocks.place[begin[1:]]
        ahead[1:] = (step + period // 2) // period * period
    # How far each run is moved: the sum over the runs that it continues.
    total = np.cumsum(np.where(inner, ahead, 0))
    base = np.maximum.accumulate(np.where(inner, 0, np.arange(len(begin))))
    moved = total - total[base]
    number = np.cumsum(~inner) - 1
    index = np.full(int(blocks.run.max()) + 2, NONE, np.int64)
    index[runs] = np.arange(len(begin))
    which = index[blocks.run]
    inside = blocks.run >= 0
    return replace(
        blocks,
        run=np.where(inside, number[which], NONE).astype(np.int32),
        place=np.where(inside, blocks.place + moved[which], 0),
    )


def _counts(
    blocks: Repetition,
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    first: int,
    named: NDArray[np.int32],
    segment: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where in its unrolled template each run's first block begins, and how many blocks it has.

    The first layer of all may read something else than the others do: what a run lacks of a block counts as there where
    kernels of the same names are in its place (`named`: names as numbers).
    """
    period = blocks.period
    low, high = blocks.place[begin], blocks.place[end - 1] + 1
    lack = -(high - low) % period
    few = np.flatnonzero((lack > 0) & (lack <= repetition.reach(period)) & (end - begin >= period))
    whole = np.zeros(len(begin), np.bool_)
    for run in few.tolist():
        k, at, to = int(lack[run]), int(begin[run]), int(end[run])
        ahead, behind = slice(max(at - k, 0), at), slice(to, to + k)
        if _alike(named, segment, ahead, slice(at + period - k, at + period)):
            low[run] -= k
            whole[run] = True
        elif _alike(named, segment, behind, slice(to - period, to - period + k)):
            high[run] += k
            whole[run] = True
    # Where nothing but whole blocks is there, the first begins where all do.
    start = low + np.where(whole, 0, (first - low) % period)
    return start, np.maximum((high - start) // period, 0)


def _alike(named: NDArray[np.int32], segment: NDArray[np.int32], one: slice, other: slice) -> bool:
    """Return whether two stretches of kernels have the same names, and are in one segment."""
    same = len(named[one]) == len(named[other]) and (named[one] == named[other]).all()
    return bool(same and len(np.unique(np.concatenate((segment[one], segment[other])))) == 1)


def _layers(
    blocks: Repetition,
    start: NDArray[np.int64],
    layers: NDArray[np.int64],
    usual: int,
    cut_before: NDArray[np.bool_],
    cut_after: NDArray[np.bool_],
    *,
    forward: bool,
) -> NDArray[np.int32]:
    """Return every kernel's layer; a run that the recording cut counts from the end that it has."""
    inside = blocks.run >= 0
    run = np.where(inside, blocks.run, 0)
    block = (blocks.place - start[run]) // blocks.period
    low = np.where(cut_before, -1, 0)[run]
    high = (layers + cut_after)[run]
    shift = np.where(cut_before, usual - layers, 0)[run]
    inside &= (block >= low) & (block < high)
    layer = block + shift
    layer = layer if forward else np.where((layers > usual)[run], layers[run], usual) - 1 - layer
    return np.where(inside, layer, NONE).astype(np.int32)


def _whole_passes(
    run: NDArray[np.int32],
    segment: NDArray[np.int32],
    symbols: NDArray[np.int32],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    inside: NDArray[np.bool_],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the pass of every kernel, and the first run of each pass.

    It is its run's, and around the runs that of the nearest in the same segment. Between two runs of one segment, what
    looks like the kernels before the first run begins the second pass. Where there were such kernels, and none of those
    between the layers (`inside`: which are in some) is like them, the second run is another stack of the same pass.
    """
    number = run.copy()
    home = segment[begin]
    prologue = symbols[:0]
    opens = np.ones(len(begin), np.bool_)
    before = symbols[:0]
    for k in range(len(begin)):
        if k == 0 or home[k - 1] != home[k]:
            opening = int(np.searchsorted(segment, home[k]))
            number[opening : begin[k]] = k
            prologue = symbols[opening : begin[k]][::-1]
            first = int(begin[k] + np.argmax(inside[begin[k] :]))
            before = symbols[opening:first][~inside[opening:first]]
        if k + 1 == len(begin) or home[k + 1] != home[k]:
            number[end[k] : np.searchsorted(segment, home[k], side="right")] = k
            continue
        gap = symbols[end[k] : begin[k + 1]][::-1]
        both = min(len(gap), len(prologue))
        differ = np.flatnonzero(gap[:both] != prologue[:both])
        second = begin[k + 1] - (int(differ[0]) if len(differ) else both)
        number[end[k] : second] = k
        number[second : begin[k + 1]] = k + 1
        first, last = (int(at + np.argmax(inside[at:])) for at in (begin[k], begin[k + 1]))
        between = symbols[first:last][~inside[first:last]]
        opens[k + 1] = not len(between) or not len(before) or bool(np.isin(between, before).any())
    of_run = np.append(np.cumsum(opens) - 1, NONE)
    return of_run[number].astype(np.int32), np.flatnonzero(opens)
