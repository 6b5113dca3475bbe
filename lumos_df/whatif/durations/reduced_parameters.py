"""Of which parameters the data-parallel collectives of a changed job carry gradients, and which they gather."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.name_mask import name_mask
from lumos_df.schema.collective_kinds import GROWS
from lumos_df.schema.dtypes import precision_of
from lumos_df.schema.plan_words import DP
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.whatif.durations.added_gradients import added_up
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Sizes, parameters
from lumos_df.whatif.rewrite.block_sequence import taken

_MOST: Final = 0.9
"""Threshold, share. Collectives that carry less of the layers' parameters than this carry something else.
Evidence: a judgement; buckets hold all of them, or as much as a program freezes less."""


def gradients(
    anchor: RecordedJob, change: PlannedChange, rank: int, row: NDArray[np.int32], degree: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Return by how much the parameters grow that each data-parallel collective of a rank carries [k].

    One inside a layer carries a layer's, or a bucket of several. What no layer reduces by itself is left for those
    outside of layers, with the tables of the vocabulary. Collectives of layers are copied and left out with these, so
    those outside make up for what copies carry more or less than the layers have.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: its collectives [k].
        degree: place in `schema.plan_words.DIMENSIONS` of each [k].
    """
    trace, structure = anchor.about.ranks[rank].trace, anchor.about.ranks[rank].structure
    layer, kind = structure.layer[row], trace.rows.collective[row]
    grown = np.full(len(row), _growth_of_layer(change))
    was = _weights_of_experts(change)[0]
    # The gradients that are added up are also those of experts, which are not reduced with the others.
    of_layer = _parameters_of_layer(trace, structure) if was else _layer(change.old, was)
    for which in np.unique(kind[degree == DP]).tolist():
        of_kind = (kind == which) & (degree == DP)
        outside, inside = of_kind & (layer < 0), of_kind & (layer >= 0)
        inner, outer = _of_kind(anchor, change, rank, (row[inside], row[outside]), of_layer)
        grown[inside] *= inner
        grown[outside] = outer
    return grown


def _of_kind(
    anchor: RecordedJob,
    change: PlannedChange,
    rank: int,
    rows: tuple[NDArray[np.int32], NDArray[np.int32]],
    elements: float | None,
) -> tuple[float, float]:
    """Return by how much the collectives of one kind grow: those in layers besides as layers do, and those outside.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        rows: those in layers, and those outside.
        elements: parameters of a layer as the trace shows them, None where it does not.
    """
    old, new, about = change.old, change.new, anchor.about.ranks[rank]
    known = np.unique(about.structure.layer[about.structure.layer >= 0])
    both = np.concatenate(rows)
    steps = max(len(np.unique(about.trace.rows.step[both])), 1)
    in_layers, outside = (_payload(about.trace, of) / steps for of in rows)
    left, of_layer = float(outside.sum()), np.zeros(len(known))
    np.add.at(of_layer, np.searchsorted(known, about.structure.layer[rows[0]]), in_layers)
    whole = _of_one_layer(anchor, change, rank, both, of_layer, elements) if len(known) else 0.0
    was, becomes = _weights_of_experts(change)
    everything = parameters(new, experts=becomes) / parameters(old, experts=was)
    if not left or not whole or left + of_layer.sum() < _MOST * len(known) * whole:
        return 1.0, everything
    copied = taken(len(known), max(1, round(len(known) * _layers_of_rank(new) / _layers_of_rank(old))))
    layers = _growth_of_layer(change)
    tables = _ratio(new.vocab, old.vocab) * _ratio(new.hidden, old.hidden) / _ratio(new.tp, old.tp)
    of_tables = max(float(of_layer.sum()) + left - len(known) * whole, 0.0)
    total, copies = len(copied) * whole * layers + of_tables * tables, float(of_layer[copied].sum()) * layers
    return min(total / copies, 1.0) if copies else 1.0, max(total - copies, 0.0) / left


def _payload(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the bytes of parameters, or their gradients, that collectives carry, 0 where nothing tells [k]."""
    rows = trace.rows
    gathers = name_mask(rows.collectives, lambda word: GROWS.get(word, 0) > 0)[rows.collective[row]]
    ranks = np.where(gathers, np.maximum(rows.group_size[row], 1), 1)
    return np.maximum(rows.in_bytes[row], 0).astype(np.float64) * ranks


def _of_one_layer(
    anchor: RecordedJob,
    change: PlannedChange,
    rank: int,
    row: NDArray[np.int32],
    of_layer: NDArray[np.float64],
    elements: float | None,
) -> float:
    """Return the bytes that collectives of one kind carry of one layer in a step; 0 where nothing tells.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: its collectives of the kind.
        of_layer: bytes of those in each layer, a step [layers].
        elements: parameters of a layer as the trace shows them, None where it does not.
    """
    between = of_layer[1:-1] if len(of_layer) > 2 else of_layer
    if elements is None:
        return float(between.mean()) if between.all() else 0.0
    trace = anchor.about.ranks[rank].trace
    code = int(trace.dtype.code[row[0]])
    told = precision_of(trace.dtype.words[code]) if code >= 0 else None
    once = elements * (told.bytes if told else change.measured_on.element_bytes)
    # Parameters are gathered for each pass, gradients may be reduced in each micro-batch.
    gathers = GROWS.get(trace.rows.collectives[int(trace.rows.collective[row[0]])], 0) > 0
    batches = anchor.about.ranks[rank].structure.micro_batch[row]
    times = float(between.mean()) / once if gathers else len(np.unique(batches[batches >= 0]))
    return once * max(round(times), 1)


def _parameters_of_layer(trace: Trace, structure: Structure) -> float | None:
    """Return the parameters of a layer of a rank by the gradients that are added up; None where no shapes tell."""
    row, elements, passes = added_up(trace, structure)
    inside = structure.layer[row] >= 0
    layers = len(np.unique(structure.layer[row[inside]]))
    return float(elements[inside].sum()) / passes / layers if layers else None


def _layers_of_rank(sizes: Sizes) -> float:
    return (sizes.layers or 1) / (sizes.pp or 1)


def _growth_of_layer(change: PlannedChange) -> float:
    was, becomes = _weights_of_experts(change)
    return _layer(change.new, becomes) / _layer(change.old, was)


def _layer(sizes: Sizes, experts: float) -> float:
    """Return the parameters of a layer, of a rank, an expert's counted as `experts`."""
    return parameters(replace(sizes, layers=1, pp=1), tables=0, experts=experts)


def _weights_of_experts(change: PlannedChange) -> tuple[float, float]:
    """Return what an expert's parameters count for among those that are reduced, before and after.

    Nothing, where no other rank has the expert. Where others come to have it, a ring of these few sends less of its
    gradient than one of all data-parallel ranks does. Where others had it, they reduce it in a group of their own.
    """
    was, becomes = (max((of.dp or 1) * (of.tp or 1) / (of.ep or 1), 1.0) for of in (change.old, change.new))
    if was > 1 or change.old.routing is None:
        return 1.0, 1.0
    replicas = change.new.dp or 1
    return 0.0, (1 - 1 / becomes) / (1 - 1 / replicas) if replicas > 1 else float(becomes > 1)


def _ratio(new: int | None, old: int | None) -> float:
    return new / old if new and old else 1.0
