"""The kernels of the compute stream in order, as symbols, and where one pass of a micro-batch must end.

Of a trace without a GPU the operators that no other one calls stand for kernels, each with all that it calls.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.issued_before import issued_before
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import (
    ATTENTION,
    BACKWARD,
    COMMUNICATION,
    COMMUNICATION_PHASE,
    CONVOLUTION,
    CPU_OP,
    GEMM,
    KERNEL,
    NONE,
    NORMALIZATION,
    OPTIMIZER,
    OTHER_PHASE,
    RECOMPUTE,
    RUNTIME,
    SOFTMAX,
)
from lumos_df.schema.collective_kinds import POINT_TO_POINT
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.operator_kinds import tensors
from lumos_df.structure.shapes import Shape

_HOST_WORK: Final = re.compile(
    r"aten::(?:(?:mm|addmm|_addmm_activation|bmm|baddbmm)$|\w*convolution|\w*attention|mkldnn_rnn_layer)|flash_attn"
)
"""Operators of the host that multiply matrices, attend or convolve, forward and backward."""
_LAYOUT: Final = "aten::contiguous"
"""What copies a tensor only where it lies otherwise in memory: that layers are alike does not depend on it."""
_RECURRENT: Final = re.compile(r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)$")
_STATE_AXES: Final = 3
"""Of what a recurrent net keeps: layers, samples and width."""
_OF_LAYERS: Final = re.compile(
    rf"{_RECURRENT.pattern}|(?:autograd::engine::evaluate_function: )?(?:Checkpoint|Compiled)Function(?:Backward)?$"
    r"|Torch-Compiled Region"
)
"""What calls all layers of a recurrent net, or of one that torch.compile made, and what checkpoints are: they call what
they hold, a layer or several."""
_HOST_PRODUCT: Final = re.compile(r"aten::(?:mm|addmm|_addmm_activation)$")
"""Of activations with parameters; those of heads are batched."""
_GRADIENT: Final = "AccumulateGrad"
"""Ends the name of what adds up the gradient of one parameter."""
_HOST_ATTENTION: Final = re.compile(r"attention|flash_attn")
_HOST_SOFTMAX: Final = re.compile(r"aten::_softmax(?:_backward_data)?$")
_PER_HEAD: Final = 4
"""Axes of what each head of each sequence says of each token: a softmax of these is attention in parts."""
_HOST_BATCHED: Final = re.compile(r"aten::b(?:addb)?mm$")
_HOST_NORM: Final = re.compile(r"(?i)(?:layer|rms|batch|group)_?norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeKernels:
    """Kernels of the compute stream, by start [k]."""

    row: NDArray[np.int32]
    """Their rows."""
    issued_before: NDArray[np.bool_]
    """Whether it was issued before the recording, in a step that was not recorded."""
    phase: NDArray[np.int8]
    """As recorded; of a kernel without a launch that of the next one that has it."""
    known: NDArray[np.bool_]
    """Whether the phase was recorded for the kernel itself."""
    step: NDArray[np.int32]
    era: NDArray[np.int32]
    """Optimizer steps before it."""
    exact: NDArray[np.int32]
    """Symbol: name, grid and block."""
    loose: NDArray[np.int32]
    """Symbol: name alone, for shapes that change from layer to layer."""
    named: NDArray[np.int32]
    """Its own name alone, whatever it calls."""
    weight: NDArray[np.int64]
    """How much each counts where periods are compared: 1 where it is the model's work, else 0."""
    usual: NDArray[np.int64] | None
    """Of the host's operators the same by time: the median of those with its exact symbol, ns, so that what came once
    counts for no more. None of kernels, whose names and grids do not tell whether they are alike in their shapes."""
    attends: NDArray[np.bool_]
    """Whether it is attention in one kernel, or operator."""
    whole_layer: NDArray[np.bool_]
    """Whether it is an operator of the host that attends and multiplies by parameters: a whole layer."""
    norm: NDArray[np.bool_]
    """Whether it is of a normalization."""
    transfers: NDArray[np.int32]
    """Sends and receives issued before it."""
    adds_up: NDArray[np.bool_]
    """Whether it adds up the gradient of a parameter."""
    source: NDArray[np.int32]
    """Place of the host's operator that it is the backward of, NONE where nothing tells."""

    def __len__(self) -> int:
        """Return k."""
        return len(self.row)

    @property
    def gradients(self) -> int | None:
        """Gradients of parameters that are added up, in all steps; None where nothing tells."""
        return int(self.adds_up.sum()) or None


def compute_kernels(trace: Trace) -> ComputeKernels:
    """Return the kernels of the stream that does the model's work, else the operators that do it on the host."""
    rows = trace.rows
    if not rows.on_gpu.any():
        return _host_operators(trace)
    computes = (rows.stream == compute_stream(rows)) & _computes(rows) & (trace.phase != COMMUNICATION_PHASE)
    row = np.flatnonzero(computes).astype(np.int32)
    row = row[np.argsort(rows.ts[row], kind="stable")]
    known = rows.parent[row] >= 0
    phase = _next_known(trace.phase[row], known)
    optimizer = phase == OPTIMIZER
    return ComputeKernels(
        row=row,
        issued_before=issued_before(rows)[row],
        phase=phase,
        known=known & (phase != OTHER_PHASE),
        step=rows.step[row],
        era=np.cumsum(optimizer & ~np.append(False, optimizer[:-1])).astype(np.int32),
        exact=_symbols(rows.name[row], trace.grid.code[row], trace.block.code[row]),
        loose=_symbols(rows.name[row]),
        named=rows.name[row],
        weight=_weights()[rows.family[row]],
        usual=None,
        attends=rows.family[row] == ATTENTION,
        whole_layer=np.zeros(len(row), np.bool_),
        norm=rows.family[row] == NORMALIZATION,
        transfers=_transfers_before(trace, row),
        adds_up=np.zeros(len(row), np.bool_),
        source=np.full(len(row), NONE, np.int32),
    )


def _host_operators(trace: Trace) -> ComputeKernels:
    """Return the operators that no operator calls, by start; the symbol of each is of all that it calls, in order.

    Of what calls the layers of a recurrent net, or those of a checkpoint, they are those that it calls. What the
    backward pass computes again is called by none of its nodes.
    """
    rows = trace.rows
    opened = rows.named(_OF_LAYERS.match) & ~_of_one_layer(trace)
    computes = (rows.kind == CPU_OP) & (trace.phase != COMMUNICATION_PHASE) & ~opened
    computes &= ~_inside_layouts(rows)
    again = (trace.phase == RECOMPUTE) & (trace.phase[rows.parent] == BACKWARD)
    called = computes & (rows.parent >= 0) & (rows.kind[rows.parent] == CPU_OP) & ~opened[rows.parent] & ~again
    outermost = np.where(computes & ~called, np.arange(len(rows)), NONE).astype(np.int32)
    caller = inherit(outermost, rows.parent, rows.thread)
    row = np.flatnonzero(computes & (caller >= 0))
    row = row[np.argsort(caller[row], kind="stable")]
    begins = np.flatnonzero(np.diff(caller[row], prepend=NONE))
    first = row[begins].astype(np.int32)
    turn = np.arange(len(row)) - np.repeat(begins, np.diff(np.append(begins, len(row))))
    works, fused, norms, products = (
        rows.named(pattern.search)[row] for pattern in (_HOST_WORK, _HOST_ATTENTION, _HOST_NORM, _HOST_PRODUCT)
    )
    in_parts = attends_in_parts(trace)[row]
    work, attends, norm, multiplies = (
        np.logical_or.reduceat(held, begins) if len(row) else np.empty(0, np.bool_)
        for held in (works, fused | in_parts, norms, products)
    )
    order = np.argsort(rows.ts[first], kind="stable")
    phase = trace.phase[first][order]
    optimizer = phase == OPTIMIZER
    exact = _sequences(_symbols(rows.name[row], trace.dims.code[row]), turn, begins)
    return ComputeKernels(
        row=first[order],
        issued_before=np.zeros(len(first), np.bool_),
        phase=phase,
        known=phase != OTHER_PHASE,
        step=rows.step[first][order],
        era=np.cumsum(optimizer & ~np.append(False, optimizer[:-1])).astype(np.int32),
        exact=exact[order],
        loose=_sequences(_symbols(rows.name[row]), turn, begins)[order],
        named=rows.name[first][order],
        weight=work[order].astype(np.int64),
        usual=_usual(rows.dur[first], exact, work)[order],
        attends=attends[order],
        whole_layer=(attends & multiplies)[order],
        norm=norm[order],
        transfers=np.zeros(len(first), np.int32),
        adds_up=rows.named(lambda name: name.endswith(_GRADIENT))[first][order],
        source=_sources(rows, first[order], caller),
    )


def attends_in_parts(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows are the softmax, or its backward, of attention that the host does operator by operator [n].

    That is one of (batch, heads, tokens, tokens), or of (batch times heads, tokens, tokens) if a product of batches of
    matrices makes such scores.
    """
    batched = trace.rows.named(_HOST_BATCHED.match)
    # The last code is that of no shapes.
    multiplied = np.unique(trace.dims.code[batched & (trace.dims.code >= 0)])
    scores = set(filter(None, (_product_of_batches(trace.dims.words[code]) for code in multiplied.tolist())))
    per_head = np.array([*(_is_per_head(inputs, scores) for inputs in trace.dims.words), False])
    attends: NDArray[np.bool_] = trace.rows.named(_HOST_SOFTMAX.match) & per_head[trace.dims.code]
    return attends


def _of_one_layer(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows call a recurrent net of one layer [n], as the first axis of its states says.

    What they call are turns of a loop over its tokens.
    """
    inputs = [tensors(json.loads(word)) for word in trace.dims.words]
    one = np.array([*(len(each) > 1 and len(each[1]) == _STATE_AXES and each[1][0] == 1 for each in inputs), False])
    of_one: NDArray[np.bool_] = trace.rows.named(_RECURRENT.match) & one[trace.dims.code]
    return of_one


def _product_of_batches(inputs: str) -> Shape | None:
    """Return the shape that a product of batches of matrices makes of its inputs, None where they do not tell."""
    shapes = [tuple(each) for each in tensors(json.loads(inputs)) if len(each) == _PER_HEAD - 1]
    return (*shapes[-2][:-1], shapes[-1][-1]) if len(shapes) > 1 else None


def _is_per_head(inputs: str, scores: set[Shape]) -> bool:
    """Return whether inputs begin with what heads say of tokens; `scores`: what products of batches make."""
    first = next(iter(tensors(json.loads(inputs))), ())
    of_each_two = len(first) == _PER_HEAD - 1 and first[1] == first[2] > 1
    return len(first) == _PER_HEAD or (of_each_two and first in scores)


def _sources(rows: Rows, row: NDArray[np.int32], caller: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the place of the operator that each of some is the backward of, NONE where it is none of them [k].

    Args:
        rows: the trace's.
        row: those operators, which no other calls [k].
        caller: which of them every row is in, NONE for none [n].
    """
    # The last place is that of no row.
    place = np.full(len(rows) + 1, NONE, np.int32)
    place[row] = np.arange(len(row))
    forward = inherit(rows.forward, rows.parent, rows.thread)[row]
    return place[np.where(forward >= 0, caller[forward], NONE)]


def _inside_layouts(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are copies made for how tensors lie in memory, with what they call and their backward [n]."""
    named = rows.named(lambda name: name == _LAYOUT)
    inside = inherit(np.where(named, 0, NONE).astype(np.int32), rows.parent, rows.thread) >= 0
    back = (rows.forward >= 0) & inside[rows.forward]
    inside |= inherit(np.where(back, 0, NONE).astype(np.int32), rows.parent, rows.thread) >= 0
    copies: NDArray[np.bool_] = inside
    return copies


def _usual(dur: NDArray[np.int64], symbol: NDArray[np.int32], works: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the median time of those of the same symbol, at least 1 ns, and 0 of what is not the model's work [k]."""
    ordered = dur[np.lexsort((dur, symbol))]
    _, alike, size = np.unique(symbol, return_inverse=True, return_counts=True)
    first = np.cumsum(size) - size
    median = (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) // 2
    return np.where(works, np.maximum(median, 1)[alike], 0)


def _sequences(symbol: NDArray[np.int32], turn: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return a number from 0 for each of the sequences of symbols that begin at `begins`, alike for alike ones.

    Args:
        symbol: at least 0 [n].
        turn: place of each in its sequence [n].
        begins: place of the first of each sequence [k].
    """
    if not len(begins):
        return np.empty(0, np.int32)
    # Sums of well mixed numbers differ where sequences do: the mixing is that of splitmix64.
    mixed = (symbol.astype(np.uint64) << np.uint64(32)) + turn.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    sums = np.add.reduceat(mixed ^ (mixed >> np.uint64(31)), begins)
    numbers: NDArray[np.int32] = np.unique(sums, return_inverse=True)[1].reshape(-1).astype(np.int32)
    return numbers


def compute_stream(rows: Rows) -> int:
    """Return the stream that does the model's work, NONE where no kernel computes.

    Most matrix products decide; where there are none, most kernels.
    """
    computes = _computes(rows)
    if not computes.any():
        return NONE
    work = np.bincount(rows.stream[computes], 1 + _weights()[rows.family[computes]] * len(rows))
    return int(np.argmax(work))


def _computes(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are kernels of a stream that do not communicate [n]."""
    computes: NDArray[np.bool_] = (rows.kind == KERNEL) & (rows.family != COMMUNICATION) & (rows.stream >= 0)
    return computes


def _weights() -> NDArray[np.int64]:
    """Return how much a kernel counts where periods are compared, by family; nothing for none at the end."""
    weights = np.zeros(len(FAMILIES) + 1, np.int64)
    weights[[GEMM, CONVOLUTION, ATTENTION, SOFTMAX]] = 1
    return weights


def issued(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return when the GPU rows were issued by the host, ns; where no call is known, when they started."""
    rows = trace.rows
    call = rows.parent[row]
    launched = (call >= 0) & (rows.kind[np.maximum(call, 0)] == RUNTIME)
    return np.where(launched, rows.ts[np.maximum(call, 0)], rows.ts[row])


def is_collective(trace: Trace, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which rows are kernels of collectives of some names."""
    collective: NDArray[np.bool_] = (trace.rows.kind == KERNEL) & trace.rows.of_collective(names)
    return collective


def _transfers_before(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int32]:
    moments = np.sort(issued(trace, np.flatnonzero(is_collective(trace, POINT_TO_POINT)).astype(np.int32)))
    return np.searchsorted(moments, issued(trace, row)).astype(np.int32)


def _next_known(phase: NDArray[np.int8], known: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Return the phases with those that are not known taken from the next that is, else from the one before."""
    places = np.flatnonzero(known)
    if not len(places):
        return phase
    after = np.minimum(np.searchsorted(places, np.arange(len(phase))), len(places) - 1)
    return np.where(known, phase, phase[places[after]]).astype(np.int8)


def _symbols(*columns: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return numbers from 0 of the distinct rows of some columns of codes."""
    return dense(packed(*columns)).astype(np.int32)
