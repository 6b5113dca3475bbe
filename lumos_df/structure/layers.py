"""Phase, layer and micro-batch of every operator of a trace, each with where it is known from."""

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import CPU_OP, MEMCPY, MEMSET, NONE, RUNTIME
from lumos_df.schema import EVIDENCE, FAMILIES
from lumos_df.structure import annotations, loops, passes
from lumos_df.structure.kernels import POINT_TO_POINT, Kernels, compute_kernels, is_collective, issued
from lumos_df.structure.loops import UNKNOWN
from lumos_df.structure.passes import Passes
from lumos_df.structure.rows import BACKWARD, COMMUNICATION_PHASE, FORWARD, OTHER, RECOMPUTE, Trace

BY_ANNOTATION, BY_MODULE, BY_LINK, BY_REPETITION, *_, NOT_KNOWN = range(len(EVIDENCE))

_ATTENTION: Final = tuple(FAMILIES.index(family) for family in ("attention", "softmax"))
_CONVOLUTION: Final = FAMILIES.index("convolution")
_EMBEDDING: Final = FAMILIES.index("embedding")
_GEMM: Final = FAMILIES.index("gemm")
_ALIKE: Final = 0.8
"""A backward block whose first kernels are those of the forward block, but for one in five, computes it again."""


_OPERATORS: Final = (
    ("transformer", re.compile(r"aten::(?:scaled_dot_product|_?flash|_?efficient)_?attention|flash_attn")),
    ("convolutional", re.compile(r"aten::\w*convolution")),
    ("recommender", re.compile(r"(?i).*embedding_bag")),
    ("other", re.compile(r"aten::(?:addmm|mm|bmm|baddbmm)$")),
)
"""What the operators say of a model that runs on no GPU."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What every operator of a trace belongs to [n]; NONE is null. Evidence is a place in `schema.EVIDENCE`."""

    phase: NDArray[np.int8]
    """Place in `schema.PHASES`."""
    phase_evidence: NDArray[np.int8]
    layer: NDArray[np.int32]
    """Layer of this rank, from 0."""
    layer_evidence: NDArray[np.int8]
    micro_batch: NDArray[np.int32]
    """Micro-batch of the step, from 0."""
    micro_batch_evidence: NDArray[np.int8]
    kind: str
    """transformer, convolutional, recommender, other; `none` without any work of a model."""
    layers: int
    """Layers of this rank; 0 where none were found."""
    layers_evidence: int
    """Where that is known from."""
    micro_batches: int
    """Of a step; 0 where unknown."""
    forward: Passes
    """The passes forward, among `kernels`."""
    backward: Passes
    """The passes backward."""
    kernels: Kernels
    """Kernels that the structure was read from."""


def understand(trace: Trace) -> Structure:
    """Return phase, layer and micro-batch of every operator."""
    kernels = compute_kernels(trace)
    phase, forward, backward = _found(kernels)
    kind = _kind(trace, kernels, forward)
    if kind != "transformer" or not forward.layers:
        # A block without attention may be anything that repeats: a stage of a convolutional network, or an iteration.
        forward, backward = passes.nothing(forward.place), passes.nothing(backward.place)
    phases, phase_evidence = _phases(trace, kernels, phase)
    batch_of_kernel = _micro_batches(trace, kernels, forward, backward)
    micro_batch, batch_evidence = _spread_batches(trace, kernels, phases, batch_of_kernel, forward.layers > 0)
    if not trace.rows.on_gpu.any():
        own = np.where(micro_batch >= 0, NONE, _batches_of_host(trace, phases))
        micro_batch = np.where(own >= 0, own, micro_batch).astype(np.int32)
        batch_evidence[own >= 0] = BY_ANNOTATION
    layer, layer_evidence = _spread_layers(trace, kernels, phases, forward, backward)
    named = np.unique(layer[(layer >= 0) & np.isin(layer_evidence, (BY_ANNOTATION, BY_MODULE))])
    return Structure(
        phases,
        phase_evidence,
        layer,
        layer_evidence,
        micro_batch,
        batch_evidence,
        kind,
        len(named) or forward.layers,
        BY_MODULE if len(named) else BY_REPETITION if forward.layers else NOT_KNOWN,
        int(micro_batch.max(initial=NONE)) + 1,
        forward,
        backward,
        kernels,
    )


def _found(kernels: Kernels) -> tuple[NDArray[np.int8], Passes, Passes]:
    """Return the phase of every compute kernel, and the forward and the backward passes."""
    phase = kernels.phase.copy()
    told = np.isin(phase, (FORWARD, BACKWARD, RECOMPUTE))
    if told.any():
        forward = passes.find(kernels, np.flatnonzero(phase == FORWARD), forward=True)
        backward = passes.find(kernels, np.flatnonzero(np.isin(phase, (BACKWARD, RECOMPUTE))), forward=False)
    else:
        forward, backward = _by_repetition_alone(kernels)
        phase[forward.place] = FORWARD
        phase[backward.place] = BACKWARD
    if not (phase == RECOMPUTE).any() and _recomputes(forward, backward):
        phase[backward.place[(backward.at >= 0) & (backward.at < len(forward.block))]] = RECOMPUTE
    return phase, forward, backward


def _by_repetition_alone(kernels: Kernels) -> tuple[Passes, Passes]:
    """Return the passes of kernels of which nothing says the phase: of two blocks the first to come is the forward."""
    every = np.arange(len(kernels))
    none = passes.nothing(every[:0])
    one = passes.find(kernels, every, forward=True)
    if not one.many:
        return none, none
    rest = every[one.layer < 0]
    other = passes.find(kernels, rest, forward=False)
    if not other.many:
        return _inside(one), none
    if _first(one) < _first(other):
        return _inside(one), _inside(other)
    turned = passes.find(kernels, every, forward=False)
    rest = every[turned.layer < 0]
    return _inside(passes.find(kernels, rest, forward=True)), _inside(turned)


def _first(found: Passes) -> int:
    return int(found.place[np.argmax(found.layer >= 0)])


def _inside(found: Passes) -> Passes:
    """Return only the kernels inside layers."""
    kept = found.layer >= 0
    return replace(
        found,
        place=found.place[kept],
        layer=found.layer[kept],
        at=found.at[kept],
        number=found.number[kept],
    )


def _recomputes(forward: Passes, backward: Passes) -> bool:
    short, long = forward.block, backward.block
    if not len(short) or len(long) <= len(short) or forward.exact != backward.exact:
        return False
    return float(np.mean(long[: len(short)] == short)) >= _ALIKE


def _kind(trace: Trace, kernels: Kernels, forward: Passes) -> str:
    family = trace.rows.family[kernels.row]
    attention = int(np.isin(family, _ATTENTION).sum())
    convolution, embedding, gemm = (int((family == one).sum()) for one in (_CONVOLUTION, _EMBEDDING, _GEMM))
    if not len(kernels):
        names = [trace.rows.names[number] for number in np.unique(trace.rows.name[trace.rows.kind == CPU_OP]).tolist()]
        return next((kind for kind, pattern in _OPERATORS if any(map(pattern.match, names))), "none")
    if np.isin(family[forward.place[forward.layer >= 0]], _ATTENTION).any():
        return "transformer"
    if convolution > gemm and convolution > attention:
        return "convolutional"
    return "recommender" if embedding and not attention else "other"


def _phases(trace: Trace, kernels: Kernels, phase: NDArray[np.int8]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    phases = trace.phase.copy()
    evidence = np.where(phases == OTHER, NOT_KNOWN, BY_ANNOTATION).astype(np.int8)
    changed = (phase != phases[kernels.row]) & np.isin(phase, (FORWARD, BACKWARD, RECOMPUTE))
    phases[kernels.row[changed]] = phase[changed]
    evidence[kernels.row[changed]] = BY_REPETITION
    return phases, evidence


def _micro_batches(trace: Trace, kernels: Kernels, forward: Passes, backward: Passes) -> NDArray[np.int32]:
    """Return the micro-batch of every compute kernel: the how-manieth pass of its step; NONE outside the passes."""
    batch = np.full(len(kernels), NONE, np.int32)
    if forward.many:
        own = _order_in_step(kernels, forward)
        batch[forward.place] = np.append(own, NONE)[forward.number]
        if backward.many:
            own = _linked(trace, kernels, batch, backward, _order_in_step(kernels, backward))
            batch[backward.place] = np.append(own, NONE)[backward.number]
        return batch
    both = np.sort(np.concatenate((forward.place, backward.place)))
    if len(both):
        number = _turns(kernels.phase[both] == FORWARD, kernels.weight[both])
        many = int(number[-1]) + 1
        whole = replace(passes.nothing(both), number=number, many=many, cut=np.zeros(many, np.bool_))
        batch[both] = _order_in_step(kernels, whole)[number]
    return batch


def _batches_of_host(trace: Trace, phase: NDArray[np.int8]) -> NDArray[np.int32]:
    """Return the micro-batch of every row of a trace without a GPU: the how-manieth turn of the step's products."""
    rows = trace.rows
    batch = np.full(len(rows), NONE, np.int32)
    works = np.array([*(any(pattern.match(name) for _, pattern in _OPERATORS) for name in rows.names), False])
    in_pass = np.isin(phase, (FORWARD, BACKWARD, RECOMPUTE)) & (rows.step >= 0) & (rows.thread >= 0)
    row = np.flatnonzero(works[rows.name] & in_pass & (rows.kind == CPU_OP))
    if not len(row):
        return batch
    row = row[np.argsort(rows.ts[row], kind="stable")]
    turn = _turns(phase[row] == FORWARD, rows.dur[row])
    least = np.full(int(rows.step.max()) + 1, len(row))
    np.minimum.at(least, rows.step[row], turn)
    inside = np.flatnonzero(in_pass)
    at = np.searchsorted(rows.ts[row], rows.ts[inside])
    at = np.minimum(at, len(row) - 1)
    # What follows the last product of a step belongs to it.
    at = np.where(rows.step[row[at]] > rows.step[inside], np.maximum(at - 1, 0), at)
    batch[inside] = np.maximum(turn[at] - least[rows.step[inside]], NONE)
    return batch


def _turns(ahead: NDArray[np.bool_], weight: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the pass of kernels without layers: one ends where the backward goes over into a forward.

    A forward of less than half the work of the largest is no pass of its own: losses and gathers in between.
    """
    number = np.cumsum(ahead & ~np.append(True, ahead[:-1]))
    work = np.bincount(number, np.where(ahead, weight + 1e-6, 0))
    own = work >= work.max() / 2
    own[0] = True
    turns: NDArray[np.int32] = (np.cumsum(own) - 1)[number].astype(np.int32)
    return turns


def _order_in_step(kernels: Kernels, found: Passes) -> NDArray[np.int32]:
    """Return each pass's number in its step: since the step's mark, or since the optimizer where there are no marks.

    A pass whose beginning the recording lacks has none: it is the last of a step before.
    """
    inside = found.number >= 0
    number, place = found.number[inside], found.place[inside]
    step, era = np.full((2, found.many), NONE, np.int32)
    np.maximum.at(step, number, kernels.step[place])
    np.maximum.at(era, number, kernels.era[place])
    key = np.where(step >= 0, step, NONE - 1 - era)
    key[found.cut] = np.iinfo(np.int32).min
    inverse = np.unique(key, return_inverse=True)[1]
    by_key = np.argsort(inverse, kind="stable")
    order = np.empty(found.many, np.int32)
    start = np.cumsum(np.bincount(inverse)) - np.bincount(inverse)
    order[by_key] = np.arange(found.many) - start[inverse[by_key]]
    order[found.cut] = NONE
    return order


def _linked(
    trace: Trace, kernels: Kernels, batch: NDArray[np.int32], backward: Passes, order: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the micro-batch of each backward pass: where the trace links its operators to forward ones, theirs."""
    rows = trace.rows
    forward = loops.inherit(rows.forward, rows.parent, rows.thread)[kernels.row[backward.place]]
    launched = np.full(len(rows), NONE, np.int32)
    call = rows.parent[kernels.row]
    known = (batch >= 0) & (call >= 0)
    # The operator around the launching call: what the backward operator is linked to.
    around = rows.parent[call[known]]
    launched[around[around >= 0]] = batch[known][around >= 0]
    own = np.where(forward >= 0, launched[forward], NONE)
    use = (own >= 0) & (backward.number >= 0)
    if not use.any():
        return order
    votes = np.zeros((backward.many, int(own.max()) + 1), np.int64)
    np.add.at(votes, (backward.number[use], own[use]), 1)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), order).astype(np.int32)


def _spread_batches(
    trace: Trace,
    kernels: Kernels,
    phase: NDArray[np.int8],
    batch: NDArray[np.int32],
    repeats: bool,  # noqa: FBT001 - a fact about the trace
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    value = _to_all(trace, kernels, phase, batch)
    evidence = np.where(value >= 0, BY_REPETITION if repeats else BY_ANNOTATION, NOT_KNOWN).astype(np.int8)
    stated = annotations.of_rows(trace, "micro_batch")
    value = np.where(stated >= 0, stated, value)
    evidence[stated >= 0] = BY_ANNOTATION
    return np.maximum(value, NONE).astype(np.int32), evidence


def _spread_layers(
    trace: Trace, kernels: Kernels, phase: NDArray[np.int8], forward: Passes, backward: Passes
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    rows = trace.rows
    stated = annotations.of_rows(trace, "layer")
    named = np.where(stated >= 0, stated, trace.layer)
    layer = np.full(len(kernels), NONE, np.int32)
    layer[forward.place] = forward.layer
    # A backward of other length than the forward (a layer split in two, say) is not told apart by repetition.
    if backward.layers == forward.layers:
        layer[backward.place] = backward.layer
    own = named[kernels.row]
    both = (own >= 0) & (layer >= 0)
    if both.any():
        # Modules count from another number where layers came before those of this trace.
        layer[layer >= 0] += int(np.round(np.median(own[both] - layer[both])))
    found = forward.layers > 0
    # What goes from stage to stage is part of no layer.
    value = (
        _to_all(trace, kernels, phase, layer, without=POINT_TO_POINT) if found else np.full(len(rows), NONE, np.int32)
    )
    evidence = np.where(value >= 0, BY_REPETITION, NOT_KNOWN).astype(np.int8)
    value = np.maximum(np.where(named >= 0, named, value), NONE)
    evidence[named >= 0] = np.where(stated >= 0, BY_ANNOTATION, BY_MODULE)[named >= 0]
    link = np.where((rows.forward >= 0) & (named < 0), value[rows.forward], NONE).astype(np.int32)
    linked = loops.inherit(link, rows.parent, rows.thread)
    use = (linked >= 0) & (evidence != BY_ANNOTATION) & np.isin(phase, (BACKWARD, RECOMPUTE)) & (named < 0)
    value = np.where(use, linked, value)
    evidence[use] = BY_LINK
    return value.astype(np.int32), evidence


def _to_all(
    trace: Trace,
    kernels: Kernels,
    phase: NDArray[np.int8],
    known: NDArray[np.int32],
    without: tuple[str, ...] = (),
) -> NDArray[np.int32]:
    """Spread what is known of compute kernels to what was issued with them and to the host."""
    rows = trace.rows
    value = np.full(len(rows), UNKNOWN, np.int32)
    value[kernels.row] = known
    # Outside a pass no layer works.
    gpu = np.flatnonzero(rows.on_gpu)
    outside = gpu[(value[gpu] == UNKNOWN) & ~np.isin(phase[gpu], (FORWARD, BACKWARD, RECOMPUTE, COMMUNICATION_PHASE))]
    value[outside] = NONE
    value[is_collective(trace, without)] = NONE
    order = gpu[np.argsort(issued(trace, gpu.astype(np.int32)), kind="stable")]
    ahead = np.isin(rows.kind, (MEMCPY, MEMSET)) | is_collective(trace, ("recv",))
    loops.fill_launched(value, order, ahead)
    launches = np.zeros(len(rows), np.bool_)
    call = rows.parent[gpu]
    launches[call[call >= 0]] = True
    launches &= rows.kind == RUNTIME
    loops.spread(value, rows.parent, rows.thread, launches)
    return value
