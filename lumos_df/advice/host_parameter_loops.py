"""Operators that are called for one parameter after another, behind the backward pass of a step."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import outermost, runs_of
from lumos_df.advice.torch_names import NODE
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

_HAS_FUSED: Final = re.compile(r"Optimizer\.step#(?:AdamW?|SGD|Adagrad)\.step")
"""The optimizers of torch that take `fused=True` on a host."""
_FOR_LISTS: Final = re.compile(
    r"aten::(?:abs|add|addcdiv|addcmul|clamp|clamp_max|clamp_min|clone|copy|div|exp|lerp|linalg_vector_norm|log|maximum|minimum"
    r"|mul|neg|norm|pow|reciprocal|rsqrt|sign|sqrt|sub|zero)_?$"
)
"""The operators of which torch has one for a list of tensors, `torch._foreach_*`, that programs do to parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterLoops:
    """The loops over parameters of a rank."""

    call: NDArray[np.int64]
    """Their operators, in their order [k]."""
    run: NDArray[np.int64]
    """The run of each: what follows one another on a thread [k]."""
    parameters: int
    """How many a step has."""
    between_ns: float
    """What passes between them, of all but one parameter."""
    latency_ns: float
    """What they take by themselves however small the parameter, of all but one."""


def parameter_loops(advised: AdvisedJob, place: int, *, of_optimizer: bool) -> ParameterLoops:
    """Return the loops of a rank: names that a step has behind its backward pass once a gradient, or some times."""
    rows = advised.ranks[place]
    outer = outermost(rows)
    step = rows.step[outer]
    node = rows.named(lambda text: text.startswith(NODE))[outer]
    parameters = _parameters(rows, outer, node)[step]
    named = _HAS_FUSED.match if of_optimizer else lambda text: text.startswith(OPTIMIZER_STEP)
    within = rows.nearest(rows.named(named), outer.astype(np.int32)) >= 0
    free = (rows.ts[outer] > _last(rows, outer[node])[step]) & (within == of_optimizer) & (parameters > 1)
    kind = dense(packed(step, rows.name[outer]))
    count = np.bincount(kind[free], minlength=int(kind.max(initial=0)) + 1)[kind]
    chosen = free & (count % np.maximum(parameters, 1) == 0)
    run = runs_of(packed(rows.thread[outer], step), chosen)
    # What only happens to come as often, such as four metrics of a net of four parameters, is no loop over these.
    for_lists = chosen & rows.named(_FOR_LISTS.match)[outer]
    chosen &= np.isin(run, run[for_lists])
    at = np.flatnonzero(chosen)
    lasts = rows.dur[outer[at]]
    follows = np.append(run[at[1:]] == run[at[:-1]], False)
    gap = np.where(follows, rows.ts[np.append(outer[at[1:]], 0)] - rows.end[outer[at]], 0)
    usual = 1 - 1 / parameters[at]
    return ParameterLoops(
        call=outer[at],
        run=run[at],
        parameters=int(parameters[at].max(initial=0)),
        between_ns=float((usual * least_of_kind(kind[at], gap)).sum()),
        latency_ns=float((usual * least_of_kind(kind[at], lasts)).sum()),
    )


def _parameters(rows: Rows, outer: NDArray[np.int64], node: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many parameters each step's backward pass gives gradients, 0 where its passes differ [steps]."""
    steps = int(rows.step.max(initial=-1)) + 1
    run = runs_of(packed(rows.thread[outer], rows.step[outer]), node)
    _, first = np.unique(run[node], return_index=True)
    passes = np.bincount(rows.step[outer[node]][first], minlength=steps)
    given = (rows.kind == CPU_OP) & (rows.step >= 0) & rows.named(lambda text: text == GRADIENT)
    gradients = np.bincount(rows.step[given], minlength=steps)
    return np.where(gradients % np.maximum(passes, 1) == 0, gradients // np.maximum(passes, 1), 0)


def _last(rows: Rows, node: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when the last node of each step's backward pass begins, by the trace's clock [steps]."""
    begins = np.zeros(int(rows.step.max(initial=-1)) + 1, np.int64)
    np.maximum.at(begins, rows.step[node], rows.ts[node])
    return begins


def least_of_kind(kind: NDArray[np.int64], ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return of each row what a quarter of its kind stay below, ns: the smallest tensors take as long [k].

    Biases and gains of norms are half of the tensors of most models.
    """
    order = np.lexsort((ns, kind))
    _, first, of_row, count = np.unique(kind[order], return_index=True, return_inverse=True, return_counts=True)
    least = np.empty(len(kind))
    least[order] = ns[order][first + count // 4][of_row]
    return np.minimum(least, ns)
