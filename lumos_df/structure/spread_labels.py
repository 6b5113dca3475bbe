"""Layers and micro-batches of every operator, from those of the compute kernels, and from what traces name."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import (
    BACKWARD,
    BY_ANNOTATION,
    BY_LINK,
    BY_MODULE,
    BY_REPETITION,
    COMMUNICATION_PHASE,
    FORWARD,
    MEMCPY,
    MEMSET,
    NONE,
    NOT_KNOWN,
    RECOMPUTE,
    RUNTIME,
)
from lumos_df.schema.collective_kinds import POINT_TO_POINT
from lumos_df.structure import annotations
from lumos_df.structure.compute_stream import ComputeKernels, is_collective, issued
from lumos_df.structure.kernels.spread import UNKNOWN, fill_launched, inherit, spread
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.passes import Passes


def of_micro_batches(
    trace: Trace,
    kernels: ComputeKernels,
    phase: NDArray[np.int8],
    batch: NDArray[np.int32],
    *,
    repeats: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the micro-batch of every operator, and where it is known from [n].

    Args:
        trace: the operators.
        kernels: its compute kernels.
        phase: of every operator [n].
        batch: of every compute kernel, NONE outside passes [k].
        repeats: whether layers were found by repetition.
    """
    value = _to_all(trace, kernels, phase, batch)
    evidence = np.where(value >= 0, BY_REPETITION if repeats else BY_ANNOTATION, NOT_KNOWN).astype(np.int8)
    stated = annotations.of_rows(trace, "micro_batch")
    value = np.where(stated >= 0, stated, value)
    evidence[stated >= 0] = BY_ANNOTATION
    return np.maximum(value, NONE).astype(np.int32), evidence


def of_layers(
    trace: Trace, kernels: ComputeKernels, phase: NDArray[np.int8], ways: list[tuple[Passes, Passes]]
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the layer of every operator, and where it is known from [n].

    Args:
        trace: the operators.
        kernels: its compute kernels.
        phase: of every operator [n].
        ways: forward and backward passes among the kernels through each stack of layers.
    """
    rows = trace.rows
    stated = annotations.of_rows(trace, "layer")
    named = np.where(stated >= 0, stated, trace.layer)
    layer = np.full(len(kernels), NONE, np.int32)
    for forward, backward in ways:
        layer[forward.place] = forward.layer
        # A backward of other length than the forward (a layer split in two, say) is not told apart by repetition.
        if backward.layers == forward.layers:
            layer[backward.place] = backward.layer
    of_kernel = named[kernels.row]
    also_found = (of_kernel >= 0) & (layer >= 0)
    if also_found.any():
        # Modules count from another number where layers came before those of this trace.
        layer[layer >= 0] += int(np.round(np.median(of_kernel[also_found] - layer[also_found])))
    value = np.full(len(rows), NONE, np.int32)
    if ways[0][0].layers:
        # What goes from stage to stage is part of no layer.
        value = _to_all(trace, kernels, phase, layer, without=POINT_TO_POINT)
    evidence = np.where(value >= 0, BY_REPETITION, NOT_KNOWN).astype(np.int8)
    value = np.maximum(np.where(named >= 0, named, value), NONE)
    evidence[named >= 0] = np.where(stated >= 0, BY_ANNOTATION, BY_MODULE)[named >= 0]
    link = np.where((rows.forward >= 0) & (named < 0), value[rows.forward], NONE).astype(np.int32)
    linked = inherit(link, rows.parent, rows.thread)
    use = (linked >= 0) & (evidence != BY_ANNOTATION) & np.isin(phase, (BACKWARD, RECOMPUTE)) & (named < 0)
    value = np.where(use, linked, value)
    evidence[use] = BY_LINK
    return value.astype(np.int32), evidence


def _to_all(
    trace: Trace,
    kernels: ComputeKernels,
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
    fill_launched(value, order, ahead)
    launches = np.zeros(len(rows), np.bool_)
    call = rows.parent[gpu]
    launches[call[call >= 0]] = True
    launches &= rows.kind == RUNTIME
    if not len(gpu):
        launches[kernels.row] = True
    spread(value, rows.parent, rows.thread, launches)
    return value
