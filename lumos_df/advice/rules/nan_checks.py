"""Tensors that the program itself looks through for NaN or infinities: what if it did not."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import outermost, runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE

_LOOKS: Final = re.compile(r"aten::(?:isnan|isinf|isfinite)$")
_THEN: Final = re.compile(
    r"aten::(?:all|any|_is_all_true|_is_any_true|is_nonzero|item|bitwise_(?:or|and|not)|logical_(?:or|and|not))$"
)
"""What makes one answer of it, and reads that."""
_READS: Final = re.compile(r"aten::(?:is_nonzero|item)$")


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to look only where someone looks for a fault."""
    found = [_checks(rows, advised.elements(place)) for place, rows in enumerate(advised.ranks)]
    checks = sum(len(np.unique(run)) for _, run in found)
    if not checks:
        return
    taken, apply = without_stretches(advised, [call for call, _ in found], [run for _, run in found])
    gpu = "of the GPU " if any(rows.on_gpu.any() for rows in advised.ranks) else ""
    tensors = format_count(checks // len(advised.steps_ns), "tensor")
    lasts = f"{format_ns(round(taken / len(advised.steps_ns)))} {gpu}a step"
    yield Remedy(
        rule="nan_checks",
        what=f"the host looks for NaN in {tensors} a step, {lasts}, and reads each answer: look at the loss alone, or "
        "only in one step of many",
        known=Known.REPLAYED,
        rests_on=format_count(checks, "check"),
        apply=apply,
    )


def _checks(rows: Rows, elements: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return operators that look for NaN and what reads the answer, in their order, and the run of each, both [k].

    Who looks at one number, such as the loss or a norm of all gradients, does what is proposed.
    """
    outer = outermost(rows)
    looks, reads = (rows.named(pattern.match)[outer] for pattern in (_LOOKS, _READS))
    looks &= (elements[outer] == NONE) | (elements[outer] > 1)
    mine = looks | rows.named(_THEN.match)[outer]
    run = runs_of(packed(rows.thread[outer], rows.step[outer]), mine)
    mine &= np.isin(run, np.intersect1d(run[looks], run[reads]))
    return outer[mine], run[mine]
