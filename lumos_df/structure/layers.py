"""Phase, layer and micro-batch of every operator of a trace, each with where it is known from."""

import re
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import (
    ATTENTION,
    BACKWARD,
    BY_ANNOTATION,
    BY_MODULE,
    BY_REPETITION,
    CONVOLUTION,
    CPU_OP,
    EMBEDDING,
    FORWARD,
    GEMM,
    NONE,
    NOT_KNOWN,
    OTHER_PHASE,
    RECOMPUTE,
    SOFTMAX,
)
from lumos_df.structure import micro_batches, passes, spread_labels, stacks
from lumos_df.structure.axis_rules import JOINS
from lumos_df.structure.compute_stream import ComputeKernels, attends_in_parts, compute_kernels
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.passes import Passes

_ALIKE_SHARE: Final = 0.5
"""Threshold, share of matrix products and convolutions, or of their time. Blocks without attention are layers where
they hold more of those of a pass, and modules' layers where more of them are alike. Evidence: a net in stages has less
in any of them; what is one stage is made of nothing else."""
_OPERATORS: Final = (
    ("transformer", re.compile(r"aten::(?:scaled_dot_product|_?flash|_?efficient)_?attention|flash_attn")),
    ("convolutional", re.compile(r"aten::\w*convolution")),
    ("recommender", re.compile(r"(?i).*embedding_bag")),
    ("other", re.compile(r"aten::(?:addmm|mm|bmm|baddbmm)$")),
)
"""What the operators say of a model that runs on no GPU."""
_CONVOLVES: Final = re.compile(r"aten::\w*conv(?:olution|\d?d)")
_RECURS: Final = re.compile(r"aten::mkldnn_rnn_layer$")
_BATCHED: Final = re.compile(r"aten::b(?:addb)?mm$")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    layers_readings: dict[int, int]
    """Kernels, or operators, in layers by each way to count these: by modules, by repetition."""
    stacks: int
    """Runs of as many layers in a pass, such as those of an encoder and of a decoder."""
    unlike: tuple[int, int]
    """Layers and stacks of a net in stages, where no stack has most of the work: only the user can say that these are
    its layers. (0, 0) of any other."""
    micro_batches: int
    """Of a step; 0 where unknown."""
    forward: Passes
    """The passes forward, among `kernels`."""
    backward: Passes
    """The passes backward."""
    kernels: ComputeKernels
    """ComputeKernels that the structure was read from."""
    on_gpu: bool
    """Whether those are kernels; else operators of the host."""


def understand(trace: Trace, times: int | None = None) -> Structure:
    """Return phase, layer and micro-batch of every operator; `times`: layers of the rank, where they are known."""
    kernels = compute_kernels(trace)
    phase, forward, backward = _passes(kernels, times)
    kind = _kind(trace, kernels, forward)
    linked = inherit(trace.rows.forward, trace.rows.parent, trace.rows.thread)[kernels.row] >= 0
    found, unlike = _Alike(phase, forward, backward, []), (0, 0)
    if kind == "transformer":
        found = found._replace(others=stacks.beside(kernels, forward, backward, linked))
    else:
        found, unlike = _alike_passes(kernels, times, linked)
        if not times and _both_ways(trace, kernels):
            forward, backward = passes.nothing(found.forward.place), passes.nothing(found.backward.place)
            found, unlike = _Alike(found.phase, forward, backward, []), (0, 0)
    phase, forward, backward, others = found
    if not forward.layers:
        forward, backward = passes.nothing(forward.place), passes.nothing(backward.place)
    phases, phase_evidence = _phases(trace, kernels, phase)
    batch_of_kernel = micro_batches.of_kernels(trace, kernels, forward, backward)
    micro_batch, batch_evidence = spread_labels.of_micro_batches(
        trace, kernels, phases, batch_of_kernel, repeats=forward.layers > 0
    )
    layer, layer_evidence = spread_labels.of_layers(trace, kernels, phases, [(forward, backward), *others])
    of_module = (layer >= 0) & np.isin(layer_evidence, (BY_ANNOTATION, BY_MODULE))
    named = np.unique(layer[of_module])
    if times == forward.layers != len(named):
        # What is known is what repeats, whatever modules number.
        trace = replace(trace, layer=np.full_like(trace.layer, NONE))
        layer, layer_evidence = spread_labels.of_layers(trace, kernels, phases, [(forward, backward), *others])
        named = named[:0]
    if kind != "transformer" and not times and not _named_alike(kernels, layer, layer_evidence):
        named = named[:0]
    return Structure(
        phase=phases[trace.twin],
        phase_evidence=_evidence(trace, phase_evidence),
        layer=layer[trace.twin],
        layer_evidence=_evidence(trace, layer_evidence),
        micro_batch=micro_batch[trace.twin],
        micro_batch_evidence=_evidence(trace, batch_evidence),
        kind=kind,
        layers=len(named) or forward.layers,
        layers_evidence=BY_MODULE if len(named) else BY_REPETITION if forward.layers else NOT_KNOWN,
        layers_readings={}
        if times or not len(named) or not forward.layers
        else {
            len(named): int(of_module[kernels.row].sum()),
            forward.layers: int((forward.layer >= 0).sum() + (backward.layer >= 0).sum()),
        },
        stacks=found.stacks,
        unlike=unlike,
        micro_batches=int(micro_batch.max(initial=NONE)) + 1,
        forward=forward,
        backward=backward,
        kernels=kernels,
        on_gpu=bool(trace.rows.on_gpu.any()),
    )


def _evidence(trace: Trace, evidence: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return evidence where GPU rows of before the recording are told by their likes in a recorded step [n]."""
    told = evidence[trace.twin]
    again = (trace.twin != np.arange(len(trace))) & (told != NOT_KNOWN)
    return np.where(again, BY_REPETITION, told).astype(np.int8)


class _Alike(NamedTuple):
    """Phase of every compute kernel, passes through the first stack of layers, and those through others."""

    phase: NDArray[np.int8]
    forward: Passes
    backward: Passes
    others: list[tuple[Passes, Passes]]

    @property
    def stacks(self) -> int:
        return self.forward.stacks + sum(up.stacks for up, _ in self.others)


def _alike_passes(
    kernels: ComputeKernels, times: int | None, linked: NDArray[np.bool_]
) -> tuple[_Alike, tuple[int, int]]:
    """Return phases and passes of a model without attention, with layers only where all they repeat is alike.

    Then come layers and stacks that may be some, as `Structure.unlike`. `linked`: as `stacks.beside` takes it.

    A block without attention may be anything that repeats, so what it repeats must be alike in its shapes, and be most
    of the products and convolutions, or else most of their time.
    """
    counted = replace(kernels, loose=kernels.exact)
    weighed = [counted] if kernels.usual is None else [counted, replace(counted, weight=kernels.usual)]
    found = []
    for same in weighed:
        phase, forward, backward = _up_and_down(same, times, linked)
        each = _Alike(phase, forward, backward, stacks.beside(same, forward, backward, linked))
        shares = stacks.covered(same, [forward, *(up for up, _ in each.others)])
        if _alike(same, each, max(shares), linked, times):
            return each, (0, 0)
        found.append((each, _alike(same, each, sum(shares), linked, times)))
    unlike = next(((each.forward.layers, each.stacks) for each, together in found if together), (0, 0))
    phase, forward, backward, _ = found[0][0]
    return _Alike(phase, passes.nothing(forward.place), passes.nothing(backward.place), []), unlike


def _both_ways(trace: Trace, kernels: ComputeKernels) -> bool:
    """Return whether what two recurrent layers give is put together right behind them: they are one, read both ways.

    As the first layer may read another width, and dropout lies between layers alone, what repeats is one direction, or
    begins in the middle of a layer.
    """
    recurs, joins = (trace.rows.named(pattern.match)[kernels.row] for pattern in (_RECURS, JOINS))
    return bool((recurs[:-1] & joins[1:]).any())


def _up_and_down(
    kernels: ComputeKernels, times: int | None, linked: NDArray[np.bool_]
) -> tuple[NDArray[np.int8], Passes, Passes]:
    """Return phases and passes, with as many layers down as up where either count shows in both.

    One of several stacks may hold little: what layers must hold is asked of what is found.
    """
    phase, forward, backward = _passes(kernels, times, least=0.0)
    up, down = forward.layers, backward.layers
    if up > down > 1 and up % down == 0:
        # The halves of a layer may look like layers on the way up, and not on the way down.
        forward = passes.find(kernels, forward.place, forward=True, times=down, least=0.0)
    elif up > down and stacks.links_tell(kernels, backward, linked):
        # The first layer need not pass a gradient on, so its way down may look otherwise.
        backward = passes.nothing(backward.place)
    elif down > up > 1:
        backward = passes.find(kernels, backward.place, forward=False, times=up, least=0.0)
    return phase, forward, backward


def _alike(kernels: ComputeKernels, found: _Alike, share: float, linked: NDArray[np.bool_], times: int | None) -> bool:
    """Return whether blocks without attention are layers: as many up as down, in a marked step, most of its work.

    Without a step's mark an iteration looks like a layer. `share`: of the work of the forward passes that they hold.
    """
    forward = found.forward
    if times:
        return forward.layers == times
    inside = forward.place[forward.layer >= 0]
    same = stacks.comes_down(kernels, forward, found.backward, linked) and _own_parameters(kernels, found)
    return bool(same and forward.layers > 1 and share > _ALIKE_SHARE and (kernels.step[inside] >= 0).all())


def _own_parameters(kernels: ComputeKernels, found: _Alike) -> bool:
    """Return whether blocks have parameters of their own: gradients are not added up in just one of them.

    Turns of a loop, over tokens or iterations, share theirs, so that gradients are added up in the last turn that comes
    down. Where nothing tells, blocks are taken to have some: what a compiler made adds up none before its pass is over.
    """
    up = np.full(len(kernels) + 1, NONE, np.int32)
    for forward in (found.forward, *(each for each, _ in found.others)):
        inside = forward.layer >= 0
        up[forward.place[inside]] = forward.layer[inside]
    known = np.flatnonzero(kernels.source >= 0)
    adds_up = np.flatnonzero(kernels.adds_up)
    before = np.searchsorted(known, adds_up) - 1
    if not len(known) or not (before >= 0).any():
        return True
    layer = up[kernels.source[known[before[before >= 0]]]]
    return len(np.unique(layer[layer >= 0])) != 1


def _named_alike(kernels: ComputeKernels, layer: NDArray[np.int32], evidence: NDArray[np.int8]) -> bool:
    """Return whether most of the layers that modules number multiply and convolve the same: a name alone says little.

    Args:
        kernels: the compute kernels.
        layer: of every operator [n].
        evidence: where that is known from [n].
    """
    row = kernels.row
    works = (kernels.phase == FORWARD) & (kernels.weight > 0) & (layer[row] >= 0) & (evidence[row] == BY_MODULE)
    if not works.any():
        return True
    number, symbol = (
        np.unique(column[works], return_inverse=True)[1].reshape(-1) for column in (layer[row], kernels.exact)
    )
    done = np.zeros((int(number.max()) + 1, int(symbol.max()) + 1), np.bool_)
    done[number, symbol] = True
    return bool(np.unique(done, axis=0, return_counts=True)[1].max() > _ALIKE_SHARE * len(done))


def _passes(
    kernels: ComputeKernels, times: int | None, least: float | None = None
) -> tuple[NDArray[np.int8], Passes, Passes]:
    """Return the phase of every kernel, and the forward and the backward passes; `least`: as `passes.find` takes it."""
    phase = kernels.phase.copy()
    if np.isin(phase, (FORWARD, BACKWARD, RECOMPUTE)).any():
        forward = passes.find(kernels, np.flatnonzero(phase == FORWARD), forward=True, times=times, least=least)
        down = np.flatnonzero(np.isin(phase, (BACKWARD, RECOMPUTE)))
        backward = passes.find(kernels, down, forward=False, times=times, least=least)
    else:
        forward, backward = _by_repetition_alone(kernels)
        phase[forward.place] = FORWARD
        phase[backward.place] = BACKWARD
    if not (phase == RECOMPUTE).any() and _recomputes(forward, backward):
        phase[backward.place[(backward.at >= 0) & (backward.at < len(forward.block))]] = RECOMPUTE
    return phase, forward, backward


def _by_repetition_alone(kernels: ComputeKernels) -> tuple[Passes, Passes]:
    """Return the passes of kernels of which nothing says the phase: of two blocks the first to come is the forward."""
    every = np.arange(len(kernels))
    none = passes.nothing(every[:0])
    block = passes.find(kernels, every, forward=True)
    if not block.count or not _several_in_a_step(kernels, block):
        return none, none
    other_block = passes.find(kernels, every[block.layer < 0], forward=False)
    if not other_block.count:
        return _inside(block), none
    if _first(block) < _first(other_block):
        return _inside(block), _inside(other_block)
    backward = passes.find(kernels, every, forward=False)
    forward = passes.find(kernels, every[backward.layer < 0], forward=True)
    return _inside(forward), _inside(backward)


def _several_in_a_step(kernels: ComputeKernels, block: Passes) -> bool:
    """Return whether a marked step holds two layers or more; else what repeats is the step, as CUDA graphs launch it.

    True where no step is marked.
    """
    inside = block.layer >= 0
    step = kernels.step[block.place[inside]]
    if (step == NONE).all():
        return True
    turn = block.number[inside] * block.layers + block.layer[inside]
    first, last = np.full(turn.max() + 1, np.iinfo(np.int32).max), np.full(turn.max() + 1, NONE)
    np.minimum.at(first, turn, step)
    np.maximum.at(last, turn, step)
    within = np.sort(first[(first == last) & (last >= 0)])
    return bool((within[1:] == within[:-1]).any())


def _first(block: Passes) -> int:
    """Return the place of the first kernel inside layers."""
    return int(block.place[np.argmax(block.layer >= 0)])


def _inside(block: Passes) -> Passes:
    """Return only the kernels inside layers."""
    kept = block.layer >= 0
    return replace(
        block,
        place=block.place[kept],
        layer=block.layer[kept],
        at=block.at[kept],
        number=block.number[kept],
    )


def _recomputes(forward: Passes, backward: Passes) -> bool:
    short, long = forward.block, backward.block
    if not len(short) or len(long) <= len(short) or forward.exact != backward.exact:
        return False
    return bool((long[: len(short)] == short).all())


def _kind(trace: Trace, kernels: ComputeKernels, forward: Passes) -> str:
    family = trace.rows.family[kernels.row]
    is_attention = np.isin(family, (ATTENTION, SOFTMAX))
    attention = int(is_attention.sum())
    convolution, embedding, gemm = (int((family == code).sum()) for code in (CONVOLUTION, EMBEDDING, GEMM))
    if not trace.rows.on_gpu.any() or not len(kernels):
        names = [trace.rows.names[number] for number in np.unique(trace.rows.name[trace.rows.kind == CPU_OP]).tolist()]
        kinds = [kind for kind, pattern in _OPERATORS if any(map(pattern.match, names))]
        if _attends_in_parts(trace):
            kinds = [_OPERATORS[0][0], *kinds]
        if kinds[:1] == ["transformer"] and "convolutional" in kinds and _convolves(trace, kernels, forward):
            return "convolutional"
        return next(iter(kinds), "none")
    if is_attention[forward.place[forward.layer >= 0]].any():
        return "transformer"
    if convolution > gemm and convolution > attention:
        return "convolutional"
    return "recommender" if embedding and not attention else "other"


def _attends_in_parts(trace: Trace) -> bool:
    """Return whether the host attends operator by operator.

    That is a softmax of (batch, heads, tokens, tokens) in a model that multiplies batches of matrices.
    """
    return bool(trace.rows.named(_BATCHED.match).any() and attends_in_parts(trace).any())


def _convolves(trace: Trace, kernels: ComputeKernels, forward: Passes) -> bool:
    """Return whether a net of the host that attends is a convolutional one, as a U-Net that does so at its bottom is.

    Then no layer attends, and convolutions have most of the forward pass's work.
    """
    if kernels.usual is None or kernels.attends[forward.place[forward.layer >= 0]].any():
        return False
    convolution = trace.rows.named(_CONVOLVES.match)[kernels.row[forward.place]]
    work = kernels.usual[forward.place]
    return bool(2 * work[convolution].sum() > work.sum())


def _phases(
    trace: Trace, kernels: ComputeKernels, phase: NDArray[np.int8]
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    phases = trace.phase.copy()
    evidence = np.where(phases == OTHER_PHASE, NOT_KNOWN, BY_ANNOTATION).astype(np.int8)
    changed = (phase != phases[kernels.row]) & np.isin(phase, (FORWARD, BACKWARD, RECOMPUTE))
    phases[kernels.row[changed]] = phase[changed]
    evidence[kernels.row[changed]] = BY_REPETITION
    return phases, evidence
