"""Optimizers that go through memory once an operation: what if one kernel read and wrote every parameter once."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import MODEL_ERROR, KernelCalls
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.rows import Rows

_STEP: Final = re.compile(r"Optimizer\.step#(AdamW?|SGD)\.step")
"""Marks of the optimizers that torch has in one kernel."""

_ONCE: Final = (
    (re.compile(r"aten::(?:_foreach_)?addcdiv_$"), 3, 7),
    (re.compile(r"aten::(?:_foreach_)?mul_$"), 1, 5),
    (re.compile(r"aten::(?:_foreach_)?add_$"), 2, 3),
)
"""The operation that every parameter goes through once: of Adam the step, of SGD the decay of its momentum, without one
the step. With it tensors that it reads a parameter, and those that one kernel reads and writes: of Adam the parameter,
its gradient and two moments are read and all but the gradient written, of SGD one moment or none."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose the fused kernel of the optimizer."""
    marks = [_marks(rows) for rows in advised.ranks]
    if not any(of_rank.any() for of_rank in marks):
        return
    parts, before, after, count, names = [], 0.0, 0.0, 0, set()
    for calls, of_rank in zip(advised.kernel_calls, marks, strict=True):
        rows = calls.trace.rows
        mark = rows.nearest(of_rank, calls.told)
        at = np.flatnonzero((mark >= 0) & calls.bound_by_memory)
        at = at[np.lexsort((-calls.dur[at], calls.repeat[at], mark[at]))]
        # A step of before the recording is one more of the mark that tells of it.
        updates = np.stack((mark[at], calls.repeat[at]))
        (of_update, repeat), first, kernels = np.unique(updates, axis=1, return_index=True, return_counts=True)
        took = np.add.reduceat(calls.dur[at], first) if len(at) else np.empty(0)
        fused = np.minimum(_fused_ns(calls, at, first), took)
        spread = (fused > 0) & (kernels > 1)
        part = np.ones(len(rows))
        part[calls.row[at[np.repeat(spread, kernels)]]] = 0
        # The longest kernel stays for the one that does it all.
        part[calls.row[at[first[spread]]]] = fused[spread] / np.maximum(calls.dur[at[first[spread]]], 1)
        parts.append(part)
        spread &= repeat == 0
        before, after = before + took[spread].sum(), after + fused[spread].sum()
        count += int(kernels[spread].sum())
        names |= {rows.names[name] for name in np.unique(rows.name[of_update[spread]]).tolist()}
    if not count:
        return
    optimizers = sorted({found[1] for name in names if (found := _STEP.match(name))})
    steps = len(advised.steps_ns)
    yield Remedy(
        rule="unfused_optimizer",
        what=f"{' and '.join(optimizers)} takes {format_ns(round(before / steps))} in "
        f"{format_count(round(count / steps), 'kernel')} a step: pass fused=True",
        known=Known.MODELLED,
        rests_on=format_count(count, "kernel"),
        apply=less_work(advised, parts).apply,
        uncertainty=MODEL_ERROR * after / max(before - after, after),
    )


def _marks(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows mark a step of an optimizer [n]."""
    return rows.named(_STEP.match) & (rows.thread >= 0)


def _fused_ns(calls: KernelCalls, at: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what one kernel would take in each step of the optimizer, ns [u]; 0 where nothing tells it.

    It takes as long a tensor as the operation that every parameter goes through once: no shapes are needed, of which
    torch records none where a list has more than 30 tensors, and no types, of which it records none of a list.

    Args:
        calls: the kernels of a rank.
        at: places of the kernels of the optimizer, step by step [k].
        first: where each step begins [u].
    """
    fused = np.zeros(len(first))
    for pattern, reads, tensors in _ONCE:
        mine = calls.of_calls([bool(pattern.match(call.name)) for call in calls.calls], False)[at].astype(np.bool_)
        taken = np.add.reduceat(np.where(mine, calls.dur[at], 0), first) if len(at) else np.empty(0)
        fused = np.where(fused > 0, fused, taken * tensors / (reads + 1))
    return fused
