"""How much the collectives of a changed job carry: activations go with tokens, gradients with parameters."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.kernels.placement import members_per_domain
from lumos_df.schema.collective_kinds import UNKNOWN
from lumos_df.schema.dtypes import precision_of
from lumos_df.schema.plan_words import CP, DP, EP, PP, TP
from lumos_df.structure.experts import distinct
from lumos_df.whatif.durations.collective_times import Groups, Links
from lumos_df.whatif.durations.kernel_kind import operation_of
from lumos_df.whatif.durations.kernel_times import shaped
from lumos_df.whatif.durations.operator_times import PlannedChange, collectives, tokens
from lumos_df.whatif.durations.reduced_parameters import gradients
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Sizes, told_precision

_FORWARDS: Final = re.compile(r"(?i)deep_?ep(?!ilogue)|dpsk::ep|hybrid_?ep(?!ilogue)")
"""Kernels that send a token once to a node and forward it there: DeepEP's and HybridEP's."""

_EIGHT_BITS: Final = re.compile(r"(?i)(?:mx)?fp8|e4m3")
"""Kernels that send tokens in 8 bits an element."""


def payload_ratio(
    anchor: RecordedJob, change: PlannedChange, rank: int, row: NDArray[np.int32], degree: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Return by how much the payload of each collective of a rank grows [k].

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: its collectives [k].
        degree: place in `schema.plan_words.DIMENSIONS` of each, NONE where unknown: those stay [k].
    """
    old, new = change.old, change.new
    element = change.runs_on.element_bytes / change.measured_on.element_bytes
    activation = tokens(change) * _ratio(new.hidden, old.hidden) * element
    ratio = np.ones(len(row))
    ratio[np.isin(degree, (TP, EP))] = activation
    ratio[degree == CP] = activation * _ratio(old.tp, new.tp)
    ratio[degree == EP] *= _copies(anchor, change, rank, row[degree == EP])
    ratio[degree == PP] = activation * _parts(old) / _parts(new)
    grown = gradients(anchor, change, rank, row, degree)
    # Gradients that are kept in another type than products have stay. Below 16 bits only products are.
    stored = max(change.runs_on.element_bytes, 2.0) / max(change.measured_on.element_bytes, 2.0)
    typed = np.where(_of_products(anchor, rank, row), stored, 1.0)
    ratio = np.where(degree == DP, grown * typed, ratio)
    return np.where(_of_tables(anchor, rank, row), tokens(change), ratio)


def routed_bytes(
    anchor: RecordedJob, change: PlannedChange, rank: int, row: NDArray[np.int32], degree: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Return what all-to-alls of experts carry, by the shapes of their operators; nan where those do not tell [k].

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: its collectives [k].
        degree: place in `schema.plan_words.DIMENSIONS` of each [k].
    """
    trace, known = anchor.about.ranks[rank].trace, change.old.routing
    carried = np.full(len(row), np.nan)
    if known is None:
        return carried
    operator, rows = shaped(trace, row), trace.rows
    for place in np.flatnonzero((degree == EP) & (operator >= 0)).tolist():
        name = rows.names[rows.name[row[place]]]
        shapes = operation_of(trace, int(operator[place])).shapes
        width = next((shape[1] for shape in shapes if shape and len(shape) == 2 and shape[0] in known.sizes), None)
        if width is not None:
            copies = float(known.top_k or 1)
            if _FORWARDS.search(name):
                copies = distinct(known.experts, _places(change.links[0], change.groups[0]), int(copies))
            element = 1.0 if _EIGHT_BITS.search(name) else change.measured_on.element_bytes
            carried[place] = known.tokens * copies * width * element
    return carried


def sent_bytes(change: PlannedChange) -> float:
    """Return the bytes that a rank of the changed job sends to the next stage, a micro-batch."""
    new = change.new
    activation = float((new.rank_seq or 1) * (new.micro_batch or 1) * (new.hidden or 1) * change.runs_on.element_bytes)
    return activation / _parts(new)


def activation_bytes(change: PlannedChange) -> float:
    """Return the bytes of the tokens of a context-parallel rank in the changed job, 0 where they are not known."""
    new = change.new
    return float((new.rank_seq or 0) * (new.micro_batch or 0) * (new.hidden or 0) * change.runs_on.element_bytes)


def gradient_types(anchor: RecordedJob) -> list[str]:
    """Return the types in which the gradients of a job are reduced, as its trace shows them."""
    types: set[str] = set()
    for rank, about in enumerate(anchor.about.ranks):
        row, degree = collectives(anchor, rank)
        codes = about.trace.dtype.code[row[degree == DP]]
        types |= {about.trace.dtype.words[code] for code in np.unique(codes[codes >= 0]).tolist()}
    return sorted(types)


def _copies(anchor: RecordedJob, change: PlannedChange, rank: int, row: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return by how much the copies of a token grow that all-to-alls of experts carry [k].

    A token goes to each of its experts, with the rows that a capacity leaves free; by kernels that forward it where it
    arrives, once to each node that has any of them, or to each rank where all ranks are of one node.
    """
    before, after = change.old.routing, change.new.routing
    if before is None or after is None:
        return np.ones(len(row))
    rows = anchor.about.ranks[rank].trace.rows
    forwards = rows.named(_FORWARDS.search)[row]
    per_token = [(known.rows or known.tokens) / known.tokens for known in (before, after)]
    sent = [
        distinct(known.experts, _places(links, groups), known.top_k) if known.top_k else 1.0
        for known, links, groups in zip((before, after), change.links, change.groups, strict=True)
    ]
    return np.where(forwards, sent[1] / sent[0], per_token[1] / per_token[0])


def _places(links: Links, groups: Groups) -> int:
    """Return how many nodes the ranks are on that share experts; of one node, how many ranks."""
    size, stride = groups.size[EP], groups.stride[EP]
    return size // int(members_per_domain(size, stride, links.gpus)) if links.crosses(size, stride) else size


def _of_products(anchor: RecordedJob, rank: int, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which collectives carry elements of the type that products have, as far as the trace tells [k]."""
    dtype, precision = anchor.about.ranks[rank].trace.dtype, told_precision(anchor.about)
    of_word = [precision is not None and precision_of(word) == precision for word in dtype.words]
    alike: NDArray[np.bool_] = np.array([*of_word, False])[dtype.code[row]]
    return alike


def _of_tables(anchor: RecordedJob, rank: int, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which collectives carry rows of a recommender's tables, or what is looked up: all but all-reduces [k].

    Tables are cut over the ranks: numbers of rows go to the rank that has them, pooled rows come back, and their
    gradients go the same way.
    """
    about = anchor.about.ranks[rank]
    if about.structure.kind != "recommender":
        return np.zeros(len(row), np.bool_)
    words = [word not in ("all_reduce", UNKNOWN) for word in about.trace.rows.collectives]
    carries: NDArray[np.bool_] = np.array([*words, False])[about.trace.rows.collective[row]]
    return carries


def _parts(sizes: Sizes) -> int:
    """Return in how many parts the ranks of a tensor-parallel group send an activation: one each if they share it."""
    return (sizes.tp or 1) if sizes.sp else 1


def _ratio(new: int | None, old: int | None) -> float:
    return new / old if new and old else 1.0
