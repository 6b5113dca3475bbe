"""A job that ran without a GPU: the operators that do its work on the host's threads stand for kernels.

Their cost functions are sums of what this very trace's operators multiplied and moved, each by its rate: what a core
packs for a product it does not multiply meanwhile. What each operator did against them is kept, as it is for a kernel.
"""

import json
import re
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host_spread import works_between
from lumos_df.graph.job import Job
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.simulate.forward import forward_star
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema import PHASES
from lumos_df.schema.codes import BACKWARD, CPU_OP, NONE, OPTIMIZER
from lumos_df.structure.axes import Axes
from lumos_df.structure.kernels.repeats import stretches
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.structure.operator_kinds import tensors
from lumos_df.structure.shapes import Shape
from lumos_df.whatif.durations import (
    flat_parameters,
    fused_updates,
    half_precision,
    host_operations,
    new_pages,
    recurrences,
)
from lumos_df.whatif.durations.kernel_times import KernelWork, floor_of, numbered, shaped
from lumos_df.whatif.durations.symbols import Symbols

_VIEWS: Final = re.compile(
    r"aten::(?:_?(?:un)?(?:safe_)?view(?:_as\w*)?|_?reshape(?:_alias)?|as_strided|t|transpose|permute|expand|detach_?"
    r"|alias|slice|select|(?:un)?squeeze|(?:un)?flatten|narrow|split\w*|chunk|resize_|empty\w*|_unsafe_view|lift_fresh"
    r"|resolve_\w+|result_type|item|_local_scalar_dense|is_nonzero|_has_\w+)$|detach$"
)
"""Operators that touch no element, or one: their time is the host's own."""
_OWN_CACHE_BYTES: Final = 2_097_152
"""Threshold, bytes. What an operator touches beyond this comes from outside of the core's own cache at any size of the
step. Evidence: level-two caches of server cores hold 1 to 2 MiB; with 1 or 4 the nets below are as far off."""
_OUT_OF_CACHE: Final = 0.15
"""Threshold, exponent. What a step's operators touch, to this power, is by how much each byte takes longer that the
core's own cache may hold. Evidence: of 36 kinds of nets batches are 5.2 % off; with 0.25, which was best before gaps
grew, 6.1. Layers of these are 5.1 % off, with 0.25 for what is copied 4.7; of 11 other kinds, on a core that shares
300 MiB of a third cache, 3.3, with 0.1 2.9 and with 0.2 3.9."""
_GIVEN_BACK: Final = 0.4
"""Threshold, exponent. What each operator touches, to this power, in the mean of a phase, is by how much longer the
host works there: tensors are freed, and the system takes their pages back, while calls and Python take as long.
Evidence: in 25 kinds of nets at two widths and three batches each most lie in 0.3 to 0.5, the median about 0.37; in 21
others it is about 0.41."""
_MAPPED_BYTES: Final = 131_072
"""Threshold, bytes. Operators that touch no more leave the system nothing to take back. Evidence: what glibc's `malloc`
asks the system for by itself begins there (mallopt(3), M_MMAP_THRESHOLD). Of 11 kinds of nets phases whose operators
touch 40 to 60 KiB keep their gaps, to the power -0.1 to 0.1; by all phases gaps grow within 0.19 (a logarithm), without
it within 0.27, and with half or double of it within 0.20."""
_BEGINS_S: Final = 80e-6
"""Threshold, s. What a convolution takes whatever it reads: a kernel is looked up and the weight brought into blocks;
the backward pass has two. Evidence: of 15 kinds of nets at three batches each half lie in 80 to 150 us forward, and of
17 in 60 to 110 for each of both backward."""
_MORE_CHANNELS: Final = 0.9
"""Threshold, exponent. A convolution whose weight has so many times as many elements takes that to this power longer,
but for how it begins: wider loops run better. Evidence: of 12 kinds of nets whose channels all become twice as many
half lie in 0.85 to 0.95; batches are left at 1, and so are filters of one channel each."""


def works(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return the operators that do the work of a trace without a GPU: those that are moments which last [n]."""
    working = np.zeros(len(graph.rows), np.bool_)
    working[graph.atoms.row[graph.atoms.dur > 0]] = True
    working &= graph.rows.kind == CPU_OP
    return working


def runs_here(graph: TraceGraph) -> bool:
    """Return whether the host's operators do the work of a trace."""
    return bool(works(graph).any())


def communicates(graph: TraceGraph) -> bool:
    """Return whether a trace without a GPU has collectives: operators or annotations of the host, such as gloo's."""
    return runs_here(graph) and bool((graph.rows.collective >= 0).any())


def working(graph: TraceGraph) -> NDArray[np.int32]:
    """Return the operators that do the work, thread by thread in their order."""
    row = graph.atoms.row[graph.atoms.by_thread]
    of_work: NDArray[np.int32] = row[works(graph)[row]]
    return of_work


def work(
    trace: Trace,
    graph: TraceGraph,
    symbols: Symbols,
    axes: Axes,
    structure: Structure,
    copies: NDArray[np.float64],
) -> KernelWork:
    """Return what the operators of a trace without a GPU do, before and after a change.

    Args:
        trace: the trace.
        graph: its graph.
        symbols: what axes of shapes become.
        axes: what is known of them.
        structure: phase and micro-batch of every operator.
        copies: how many times as many of every operator there will be [n].
    """
    rows, phase = trace.rows, structure.phase
    row = working(graph)
    touches = rows.named(_touches)
    least = floor_of((rows.dur[row] * 1e-9).astype(np.float64))
    row = row[(trace.dims.code[row] >= 0) & touches[row]]
    time = (rows.dur[row] * 1e-9).astype(np.float64)
    columns = (rows.name[row], trace.dims.code[row], axes.kind[row], (phase[row] == BACKWARD).astype(np.int32))
    _, first, inverse = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    kinds: list[tuple[object, ...]] = []
    flat = flat_parameters.grown(trace, structure, symbols, axes)
    fused = rows.named(fused_updates.updates_all).any()
    of_parameters = fused_updates.touched(trace, structure, symbols, axes, copies) if fused else (0.0, 0.0)
    read = np.zeros((len(_Read._fields), len(first)))
    for number, at in enumerate(row[first].tolist()):
        name, before = rows.names[rows.name[at]], tuple(tensors(json.loads(trace.dims.words[trace.dims.code[at]])))
        labels = axes.labels(at) or ((),) * len(before)
        after = tuple(
            flat_parameters.after(shape, symbols.rescaled(shape, labels=known), flat)
            for shape, known in zip(before, labels, strict=True)
        )
        read[:, number] = _read(name, before, after)
        if fused_updates.updates_all(name):
            read[2:4, number] = of_parameters
        kinds.append((name, tuple(map(len, before)), bool(columns[-1][first[number]])))
    each = _Read(*read[:, inverse])
    multiplies = each.flop > 0
    peak = _rate(each.flop[multiplies], time[multiplies])
    bandwidth = _rate(each.touched[~multiplies], time[~multiplies])
    before_s, after_s = (
        each.flop / peak + each.touched / bandwidth,
        each.flop_after / peak + each.touched_after / bandwidth,
    )
    touched = np.maximum((each.touched.sum(), (each.touched_after * copies[row]).sum()), 1)
    grown = _OUT_OF_CACHE * float(np.log(touched[1] / touched[0]))
    further = np.minimum(each.touched_after, _OWN_CACHE_BYTES) / bandwidth * np.expm1(grown)
    half = half_precision.reads_half(trace, row) & (each.made > 0)
    if half.any():
        moved, moved_after = each.touched + each.made, each.touched_after + each.made_after
        of_flop, of_byte = half_precision.seconds(time[half], each.flop[half], moved[half])
        before_s[half] = (each.flop * of_flop + moved * of_byte)[half]
        after_s[half] = (each.flop_after * of_flop + moved_after * of_byte)[half]
    recurs, alone = each.beside > 0, multiplies & (each.beside == 0)
    longer, unsure = recurrences.grown(
        _rate(each.flop[alone], time[alone]) if alone.any() else peak,
        *(column[recurs] for column in (time, each.flop, each.flop_after, each.beside)),
    )
    after_s[recurs] = before_s[recurs] * longer
    apart = each.doubt + np.log1p((np.abs(further) + each.pages) / np.maximum(after_s, 1e-12))
    apart[recurs] += unsure
    after_s += further
    floor = np.minimum(time, least)
    # How a convolution begins does not grow.
    grows = (time - np.clip(each.begins, floor, time)) / np.maximum(time - floor, 1e-12)
    after_s = np.where(each.begins > 0, before_s + (after_s - before_s) * grows, after_s)
    key = numbered(kinds)[inverse]
    none = np.zeros(len(row))
    gaps = _gaps(phase, row, each.touched, each.touched_after)
    return KernelWork(row, time, floor, before_s, after_s, after_s, before_s, after_s, key, none, apart, gaps)


class _Read(NamedTuple):
    """What operators do before and after a change, each figure [k]."""

    flop: NDArray[np.float64]
    flop_after: NDArray[np.float64]
    touched: NDArray[np.float64]
    """Bytes."""
    touched_after: NDArray[np.float64]
    made: NDArray[np.float64]
    """Bytes of a product's result, 0 for other operators."""
    made_after: NDArray[np.float64]
    doubt: NDArray[np.float64]
    """By how much operations may be others, a logarithm."""
    begins: NDArray[np.float64]
    """Time of what does not grow, s."""
    pages: NDArray[np.float64]
    """Time of pages that may be new, s."""
    beside: NDArray[np.float64]
    """How many times as long a recurrent layer takes beside its products, 0 for other operators."""


def _read(name: str, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> tuple[float, ...]:
    """Return what `_Read` says of one kind of operators."""
    flops = np.stack([host_operations.operations(name, shapes) for shapes in (before, after)])
    flop, flop_after = np.sqrt(flops.prod(axis=1)).tolist()
    doubt, spread, begins = 0.0, 0.0, 0.0
    if host_operations.convolves(name):
        begins = _BEGINS_S * max(len(host_operations.maps(before)) - 1, 0)
    if host_operations.sums_channels(name, before):
        more, less = (max(prod(host_operations.maps(shapes)[-1]), 1) for shapes in (after, before))
        grown = float(np.log(more / less))
        spread = abs((1 - _MORE_CHANNELS) * grown)
        flop_after *= np.exp((_MORE_CHANNELS - 1) * grown)
    if flops.all():
        doubt = abs(float(np.diff(np.log(flops[1] / flops[0]))[0])) / 2
    return (
        flop,
        flop_after,
        *(host_operations.touched(name, shapes) for shapes in (before, after)),
        *(host_operations.made(name, shapes) for shapes in (before, after)),
        float(np.hypot(doubt, spread)),
        begins,
        0.0 if flops.any() else new_pages.seconds(name, before, after),
        host_operations.beside_products(name, before, after),
    )


def _gaps(
    phase: NDArray[np.int8], row: NDArray[np.int32], touched: NDArray[np.float64], after: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return by how much the host's work before every row grows, as a logarithm: by what its phase touches [n].

    Args:
        phase: of every row [n].
        row: operators that do work [k].
        touched: bytes of each [k].
        after: bytes of each after the change [k].
    """
    taken = (np.maximum(each, _MAPPED_BYTES) ** _GIVEN_BACK for each in (touched, after))
    before_of, after_of = (np.bincount(phase[row], each, len(PHASES)) for each in taken)
    return np.log(np.divide(after_of, before_of, out=np.ones(len(PHASES)), where=before_of > 0))[phase]


def with_gaps(job: Job, gaps: list[NDArray[np.float64]]) -> Job:
    """Return a job whose host works longer before each row, by logarithms; one array a rank [n]."""
    if not any(of_rank.any() for of_rank in gaps):
        return job
    graphs = []
    for graph, of_rank in zip(job.graphs, gaps, strict=True):
        edges = graph.edges
        grown = np.where(works_between(graph), np.exp(of_rank[edges.dst]), 1.0)
        lag = np.round(edges.lag * grown).astype(np.int64)
        graphs.append(replace(graph, edges=replace(edges, lag=lag)))
    return replace(job, graphs=graphs)


def untold(trace: Trace, graph: TraceGraph) -> NDArray[np.int32]:
    """Return the operators of a trace without a GPU that do work and record no shapes [k]."""
    row = working(graph)
    silent: NDArray[np.int32] = row[(trace.dims.code[row] < 0) & trace.rows.named(_touches)[row]]
    return silent


def _touches(name: str) -> bool:
    """Return whether an operator reads or writes elements of its tensors."""
    return not _VIEWS.match(name)


def _rate(done: NDArray[np.float64], time: NDArray[np.float64]) -> float:
    """Return the rate of all operators together; where nothing was done, nothing bounds it."""
    return float(done.sum() / max(time.sum(), 1e-9)) or float("inf")


def update_layers(trace: Trace, graph: TraceGraph, structure: Structure) -> NDArray[np.int32]:
    """Return the structure's layers, and those of the optimizer's kernels, or operators where they do its work [n].

    An optimizer that goes through the parameters one by one does so in the order of the layers, so what it does and
    the shapes repeat as often as there are layers, and some are of tensors inside layers: tables of a recommender are
    alike as well. One that does the same to all parameters before it does the next goes through the layers each time,
    and where there are several stacks of layers it comes to each. Where nothing repeats so, nothing is changed.
    """
    rows = trace.rows
    layer = structure.layer.copy()
    known = np.unique(layer[layer >= 0])
    row, shape = _updating(trace, graph, structure)
    if len(known) < 2 or not len(row):
        return layer
    _, symbols = np.unique(np.stack((rows.name[row], shape)), axis=1, return_inverse=True)
    symbols = symbols.reshape(-1).astype(np.int32)
    told = _inside(trace, layer, shape)
    turn = dense(packed(rows.step[row], _over_many(trace, row, len(known)))).astype(np.int32)
    bounds, order = forward_star(turn, int(turn.max()) + 1)
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        in_turn = order[low:high]
        left = symbols[in_turn]
        for _ in range(structure.stacks):
            start, period = _repeated(left, told[in_turn], len(known))
            if not period:
                break
            inside = slice(start, start + period * len(known))
            layer[row[in_turn[inside]]] = known[np.arange(period * len(known)) // period]
            left[inside] = NONE
    return layer


def _over_many(trace: Trace, row: NDArray[np.int32], layers: int) -> NDArray[np.int32]:
    """Return the outermost operator that each row is in, if it holds more of them than layers, else NONE [k].

    Args:
        trace: the trace.
        row: operators of the optimizer [k].
        layers: how many there are.
    """
    rows = trace.rows
    called = (rows.parent >= 0) & (rows.kind[rows.parent] == CPU_OP)
    first = np.where((rows.kind == CPU_OP) & ~called, np.arange(len(rows)), NONE).astype(np.int32)
    caller = inherit(first, rows.parent, rows.thread)[row]
    held = np.bincount(caller[caller >= 0], minlength=1)
    return np.where((caller >= 0) & (held[np.maximum(caller, 0)] > layers), caller, NONE).astype(np.int32)


def _updating(trace: Trace, graph: TraceGraph, structure: Structure) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return what the optimizer does, in its order, and the shapes of each, as codes; NONE: not recorded [k]."""
    if runs_here(graph):
        row = working(graph)
        row = row[structure.phase[row] == OPTIMIZER]
        return row, trace.dims.code[row]
    row = structure.kernels.row
    row = row[structure.phase[row] == OPTIMIZER]
    # An operator that launches several kernels goes over many parameters, in parts that know no layers.
    caller = trace.rows.nearest(trace.rows.kind == CPU_OP, row)
    row = row[(caller >= 0) & (np.bincount(caller[caller >= 0], minlength=1)[np.maximum(caller, 0)] == 1)]
    operator = shaped(trace, row)
    return row, np.where(operator >= 0, trace.dims.code[operator], NONE).astype(np.int32)


def _inside(trace: Trace, layer: NDArray[np.int32], shape: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which of some shapes, as codes [k], have a tensor that layers have, too; all, where none has."""

    def of(code: int) -> set[Shape]:
        # A product reads a matrix of parameters transposed.
        return {tuple(sorted(each)) for each in tensors(json.loads(trace.dims.words[code])) if each}

    codes = np.unique(trace.dims.code[layer >= 0])
    layers = set[Shape]().union(*map(of, codes[codes >= 0].tolist()))
    updated, place = np.unique(shape, return_inverse=True)
    told = np.array([code >= 0 and bool(of(code) & layers) for code in updated.tolist()], np.bool_)[place.reshape(-1)]
    return told if told.any() else np.ones(len(shape), np.bool_)


def _repeated(symbols: NDArray[np.int32], told: NDArray[np.bool_], times: int) -> tuple[int, int]:
    """Return where the longest block that comes so many times in a row begins, and its period; (0, 0): nowhere.

    Args:
        symbols: of what is done [n].
        told: which are known to be of layers; a block has some [n].
        times: how many times.
    """
    before = np.append(0, np.cumsum(told))
    for period in range(len(symbols) // times, 0, -1):
        start, end = stretches(symbols, period)
        fits = np.flatnonzero(((end - start) // period == times) & (before[start + period] > before[start]))
        if len(fits):
            return int(start[fits[0]]), period
    return 0, 0


def layer_of_atoms(graph: TraceGraph, structure: Structure) -> NDArray[np.int32]:
    """Return the layer of every atom that does work of a layer on the host, NONE for others."""
    row = graph.atoms.row
    return np.where(works(graph)[row], structure.layer[row], NONE).astype(np.int32)
