"""Optimizers that go through memory once an operation: what if one kernel read and wrote every parameter once."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import MODEL_ERROR, KernelCalls, memory_bytes_per_ns
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
    hardware = advised.hardware
    marks = [_marks(rows) for rows in advised.ranks]
    if hardware is None or not any(of_rank.any() for of_rank in marks):
        return
    rate = memory_bytes_per_ns(advised.kernel_calls, hardware)
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
        fused = np.minimum(_moved_bytes(calls, mark, of_update) / rate, took)
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


def _moved_bytes(calls: KernelCalls, mark: NDArray[np.int64], of_update: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what one kernel would read and write in each step of the optimizer [u]; 0 where nothing tells it.

    Args:
        calls: the kernels of a rank.
        mark: the mark of each [g].
        of_update: the mark of each step of the optimizer, ascending [u].
    """
    # An operator that launches several kernels goes through its tensors once.
    _, at = np.unique(calls.operator, return_index=True)
    at = at[(calls.operator[at] >= 0) & np.isin(mark[at], of_update)]
    marks, place = np.unique(of_update, return_inverse=True)
    moved = np.zeros(len(marks))
    for pattern, reads, tensors in _ONCE:
        read = [call.read_bytes if pattern.match(call.name) else 0 for call in calls.calls]
        of_mark = np.bincount(np.searchsorted(marks, mark[at]), calls.of_calls(read, 0)[at], len(marks))
        moved = np.where(moved > 0, moved, of_mark * tensors / reads)
    return moved[place]
