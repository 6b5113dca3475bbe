"""Parameters that replicas share out, given to all of them: once a step, or for each layer.

Where only the optimizer's work is shared out, what it updated is gathered behind it, in buckets, and what comes next
waits. Where parameters are shared out, too, those of a layer are gathered before its forward and its backward pass,
while the layer before it computes, as PyTorch's FullyShardedDataParallel does it; those outside of layers before each
forward pass; and gradients are scattered in each micro-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, FORWARD, NONE, OPTIMIZER, RECOMPUTE
from lumos_df.schema.collective_kinds import ALL_GATHER, COLLECTIVES, REDUCE_SCATTER
from lumos_df.schema.plan_words import DP
from lumos_df.whatif.durations.added_kernels import GRADIENTS, PARAMETERS, AddedKernels, with_modelled
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.modelled_gradients import bucket_ends, gradients
from lumos_df.whatif.durations.operator_times import reductions
from lumos_df.whatif.durations.own_links import OwnLinks
from lumos_df.whatif.durations.pass_kernels import PassKernels, kinds_of, pass_kernels

_Places = Callable[[PassKernels, "_Parameters"], tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]]
"""Bytes of each collective, the row that lets it start, and the one that waits for it [k]."""


@dataclass(frozen=True, slots=True)
class _Parameters:
    """What a rank's parameters are [k]: those of one gradient each, in the order in which those are ready."""

    moved: NDArray[np.int64]
    """Bytes."""
    layer: NDArray[np.int32]
    step: NDArray[np.int32]
    batches: int
    """Micro-batches of a step."""


def with_parameters(draft: DraftJob) -> DraftJob:
    """Return the job with its parameters gathered.

    Raises:
        QueryError: the trace does not tell their bytes, or which work is of which layer.
    """
    new, total = draft.change.new, draft
    if new.gathers_layers:
        draft = _with(draft, ALL_GATHER, PARAMETERS, _of_layers)
        if (new.batch or 1) > 1 and reductions(draft.anchor, draft.ranks[0]).any():
            draft = _with(draft, REDUCE_SCATTER, GRADIENTS, _of_earlier_batches)
    else:
        draft = _with(draft, ALL_GATHER, PARAMETERS, _of_steps)
    each = OwnLinks.of(draft.anchor, draft.change).lasting(ALL_GATHER, DP, np.zeros(1, np.int64))
    when = "before each layer's passes" if new.gathers_layers else "behind the optimizer"
    a_step = round(draft.added(total) / max(total.steps, 1))
    return draft.said(
        f"zero={new.zero} is modelled: {a_step} collectives a step, which gather parameters {when}, take what "
        f"{each.source}, within {each.error[0]:.0%}, and no rank waits for another there; record it so to have them "
        "measured"
    )


def _with(draft: DraftJob, kind: int, what: str, places: _Places) -> DraftJob:
    anchor, change = draft.anchor, draft.change
    links = OwnLinks.of(anchor, change)

    def added(graph: TraceGraph, source: NDArray[np.int32], rank: int) -> AddedKernels:
        about = anchor.about.ranks[rank]
        ready, _, moved = gradients(anchor, change, graph, source, rank)
        layer = np.append(about.structure.layer, np.int32(NONE))[source[ready]]
        known = _Parameters(moved, layer, graph.rows.step[ready], change.new.batch or 1)
        along = pass_kernels(about, kinds_of(about), graph, source)
        payload, after, before = places(along, known)
        if not payload.any():
            lacks = "layers that its parameters belong to" if change.new.gathers_layers else "optimizer"
            near = "the step as recorded, whose all-reduces take what reduce-scatters and gathers do together"
            if change.new.gathers_layers and (along.phase == OPTIMIZER).any():
                near = "zero=1, which gathers behind the optimizer"
            raise QueryError(
                f"{anchor.about.job}: zero={change.new.zero} cannot be, because rank {graph.rows.rank} shows no "
                f"{lacks}; record training with_modules=True; nearest is {near}"
            )
        title, size = (COLLECTIVES[kind], what), change.groups[1].size[DP]
        return AddedKernels.alike(graph, title, size, (payload, links.lasting(kind, DP, payload)), (after, before))

    return with_modelled(draft, added)


def _of_steps(along: PassKernels, known: _Parameters) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the buckets of every step, behind the last of its optimizer's work."""
    updating = np.flatnonzero(along.phase == OPTIMIZER)
    last = updating[np.append(np.diff(along.step[updating]) != 0, True)] if len(updating) else updating
    payload, place = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for at in last.tolist():
        moved = known.moved[known.step == along.step[at]]
        moved = moved[len(moved) - len(moved) // known.batches :]
        closed = np.diff(np.cumsum(moved)[bucket_ends(moved)], prepend=0)
        payload.append(closed)
        place.append(np.full(len(closed), at))
    behind = np.concatenate(place)
    return np.concatenate(payload), along.at(behind), along.at(behind + 1)


def _of_layers(
    along: PassKernels, known: _Parameters
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return what is gathered for each pass of a layer, and for each forward pass."""
    begins, _, back = _segments(along)
    if not len(begins):
        return np.empty(0, np.int64), along.row[:0], along.row[:0]
    step = along.step[begins]
    passes = np.flatnonzero(np.isin(along.phase, (FORWARD, BACKWARD, RECOMPUTE)))
    turned = np.diff((along.phase[passes] == FORWARD).astype(np.int8), prepend=0) > 0
    first = passes[turned]
    inside, outside = _bytes(along.step[begins[back]], known, inside=True), _bytes(along.step[first], known)
    payload = np.concatenate((outside(along.step[first]), inside(step)))
    waits = np.concatenate((first, begins))
    order = np.argsort(waits, kind="stable")
    payload, waits = payload[order], waits[order]
    # While the layer before it in the pass computes.
    starts = np.where(np.isin(waits, first), waits, np.append(waits[:1], waits[:-1]))
    return payload, along.before(starts), along.at(waits)


def _of_earlier_batches(
    along: PassKernels, known: _Parameters
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the gradients of each layer in all micro-batches but the last, for which the optimizer waits."""
    begins, ends, back = _segments(along)
    begins, ends = begins[back], ends[back]
    step = along.step[begins]
    total = np.bincount(step - step.min(initial=0))[step - step.min(initial=0)] if len(step) else step
    turn = np.arange(len(step)) - np.searchsorted(step, step)
    early = turn < total - total // known.batches
    updating = np.flatnonzero(along.phase == OPTIMIZER)
    place = np.searchsorted(updating, ends[early])
    until = np.append(updating, len(along.row))[place]
    return _bytes(step, known, inside=True)(step[early]), along.at(ends[early]), along.at(until)


def _segments(along: PassKernels) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return where each pass of a layer begins, its last place, and whether it is a backward one [s]."""
    inside = np.flatnonzero((along.layer >= 0) & np.isin(along.phase, (FORWARD, BACKWARD, RECOMPUTE)))
    back = along.phase[inside] != FORWARD
    changes = (np.diff(along.layer[inside], prepend=-1) != 0) | (np.diff(back.astype(np.int8), prepend=-1) != 0)
    begins = np.flatnonzero(changes)
    ends = np.append(begins[1:], len(inside))[: len(begins)] - 1
    return inside[begins], inside[ends], back[begins]


def _bytes(
    step: NDArray[np.int32], known: _Parameters, *, inside: bool = False
) -> Callable[[NDArray[np.int32]], NDArray[np.int64]]:
    """Return what says, of the steps of some collectives, the bytes of each: all of the step's, evenly.

    Args:
        step: step of all that a step's parameters are spread over [s].
        known: the parameters.
        inside: whether of those inside layers; else of those outside.
    """
    mine = (known.layer >= 0) == inside
    numbers = np.unique(known.step)
    whole = np.array([known.moved[mine & (known.step == number)].sum() for number in numbers.tolist()], np.float64)
    count = np.array([max(int((step == number).sum()), 1) for number in numbers.tolist()])
    each = np.append(np.round(whole / count).astype(np.int64), 0)

    def of_steps(steps: NDArray[np.int32]) -> NDArray[np.int64]:
        place = np.searchsorted(numbers, steps)
        return each[np.where(np.isin(steps, numbers), place, len(numbers))]

    return of_steps
