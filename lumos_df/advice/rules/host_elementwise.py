"""Operators of a host that compute one element after another, in a row: what if one went through them once."""

import json
import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import outermost, runs_of, with_backward, without_stretches
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules import fused_elementwise
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import NONE
from lumos_df.schema.words import OPTIMIZER_STEP

_COMPUTES: Final = re.compile(
    r"aten::(?:abs|add|bernoulli|clamp|clamp_max|clamp_min|cos|div|dropout|erf|exp|log|log1p|masked_fill|maximum|mean|minimum"
    r"|mul|neg|pow|reciprocal|rsqrt|rsub|sigmoid|sin|softmax|softplus|sqrt|square|std|sub|sum|tanh|var|where)_?$"
)
"""What computes one element, or what is left of a row of them, after another."""
_VIEWS: Final = re.compile(
    r"aten::(?:bitwise_not|detach|expand|permute|select|slice|squeeze|transpose|unsqueeze|view)$"
)
"""What may come between them."""
_NAMED: Final = 4
"""Operators of a chain that are named."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that one operator do what several of a host without a GPU do to as many elements, one after another."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_chains(advised, place) for place in range(len(advised.ranks))]
    computes, again = sum(each[2] for each in found), sum(each[3] for each in found)
    if not again:
        return
    call, run = [each[0] for each in found], [each[1] for each in found]
    taken, _ = without_stretches(advised, call, run)
    part = again / computes
    _, apply = without_stretches(advised, call, run, part=part)
    yield Remedy(
        rule="host_elementwise",
        what=f"operators such as {found[0][4]} go through the same elements one after another, "
        f"{format_ns(round(part * taken / len(advised.steps_ns)))} a step more than one that does it all: "
        "torch.compile, or an operator such as layer_norm, gelu, scaled_dot_product_attention",
        known=Known.MODELLED,
        rests_on=format_count(sum(map(len, call)), "operator"),
        uncertainty=fused_elementwise.INDEPENDENT,
        apply=apply,
    )


def _chains(advised: AdvisedJob, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int, str]:
    """Return the chains of a rank, outside of optimizers, up to the last node of a step's backward pass.

    Returns:
        (their operators and nodes of the backward pass [k], the run of each [k], what the operators of forward passes
        take, ns, what they take but for the longest of each chain, and the names of the longest chain's).
    """
    rows = advised.ranks[place]
    outer = outermost(rows)
    apart = rows.named(lambda text: text.startswith(OPTIMIZER_STEP)) | loader_rows(rows)
    node = rows.named(lambda text: text.startswith(NODE)) & (rows.step >= 0)
    ends = np.full(int(rows.step.max(initial=-1)) + 2, np.iinfo(np.int64).max)
    ends[rows.step[node]] = 0
    np.maximum.at(ends, rows.step[node], rows.ts[node])
    elements = _elements(advised, place)[outer]
    computes = rows.named(_COMPUTES.match)[outer] & (elements > 0)
    computes &= ~inherited(apart, rows.parent)[outer] & (rows.ts[outer] < ends[rows.step[outer]])
    sequence = packed(rows.thread[outer], rows.step[outer])
    run = runs_of(sequence, computes | rows.named(_VIEWS.match)[outer])
    at = np.flatnonzero(computes)
    chain, dur = dense(packed(run[at], elements[at])), rows.dur[outer[at]]
    several = (np.bincount(chain) > 1)[chain]
    at, chain, dur = at[several], dense(chain[several]), dur[several]
    chosen = np.zeros(len(outer), np.bool_)
    chosen[at] = True
    longest = np.zeros(int(chain.max(initial=-1)) + 1, np.int64)
    np.maximum.at(longest, chain, dur)
    chosen = with_backward(rows, outer, chosen)
    took = np.bincount(chain, dur)
    most = outer[at[chain == np.argmax(took - longest)]] if len(took) else at
    names = [rows.names[name] for name in rows.name[most[:_NAMED]].tolist()]
    of_run = runs_of(sequence, chosen)[chosen]
    return outer[chosen], of_run, int(dur.sum()), int(dur.sum() - longest.sum()), ", ".join(dict.fromkeys(names))


def _elements(advised: AdvisedJob, place: int) -> NDArray[np.int64]:
    """Return how many elements the result has of an operator that computes each by itself, NONE where unknown [n]."""
    code, words = advised.texts(place, "input_dims")
    return np.array([*(_result(json.loads(word)) for word in words), NONE], np.int64)[code]


def _result(dims: Any) -> int:
    """Return the elements of what tensors of some shapes make; 0 of lists of tensors, or shapes that do not fit."""
    tensors = [tuple(each) for each in dims if isinstance(each, list) and all(isinstance(size, int) for size in each)]
    try:
        return prod(np.broadcast_shapes(*tensors)) if any(tensors) else 0
    except ValueError:
        return 0
