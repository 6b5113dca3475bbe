"""Copies of all parameters that a host makes in each step, as of a model's state: what if it did so in fewer."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import runs_of, without_stretches
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import CPU_OP
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

_COPIES: Final = re.compile(r"aten::(?:clone|copy_)$")
"""What copies a tensor."""
_MAKES: Final = re.compile(r"aten::(?:clone|copy_|detach|empty|empty_like|empty_strided|new_empty|set_)$|detach$")
"""What is called to copy one: what makes room, and views."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that a host without a GPU copy all parameters in fewer steps: without what copies them."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_copies(rows, advised.elements(place)) for place, rows in enumerate(advised.ranks)]
    if not any(len(call) for call, _ in found):
        return
    taken, apply = without_stretches(advised, [call for call, _ in found], [run for _, run in found])
    lasts = format_ns(round(taken / len(advised.steps_ns)))
    yield Remedy(
        rule="state_copies",
        what=f"as much as all parameters is copied behind the backward pass, {lasts} a step: if that is the model's "
        "state, copy it in fewer steps, or average weights in place",
        known=Known.REPLAYED,
        rests_on=format_count(sum(len(call) for call, _ in found), "operator"),
        apply=apply,
    )


def _copies(rows: Rows, elements: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what copies as many elements as the gradients of a step have, and the run of each operator, both [k].

    It stands behind the last node of the backward pass and outside of the optimizer, in at least half of the steps that
    have one.

    Args:
        rows: the rows of a rank.
        elements: of the inputs of each row, NONE where no shapes were recorded [n].
    """
    operator = (rows.kind == CPU_OP) & (rows.step >= 0)
    steps = int(rows.step.max(initial=-1)) + 1
    ends = np.full(steps + 1, np.iinfo(np.int64).max)
    node = np.flatnonzero(operator & rows.named(lambda text: text.startswith(NODE)))
    ends[rows.step[node]] = 0
    np.maximum.at(ends, rows.step[node], rows.end[node])
    apart = rows.named(lambda text: text.startswith(OPTIMIZER_STEP)) | loader_rows(rows)
    outer = operator & ~np.append(operator, False)[rows.parent] & ~inherited(apart, rows.parent)
    outer &= rows.ts >= ends[rows.step]
    row = np.flatnonzero(outer)
    row = row[np.lexsort((rows.ts[row], rows.thread[row]))]
    run = runs_of(packed(rows.thread[row], rows.step[row]), rows.named(_MAKES.match)[row])
    copies = rows.named(_COPIES.match)[row] & (run >= 0)
    # A copy has its target, too, as an input.
    of_row = np.where(rows.named(lambda text: text == "aten::copy_"), elements // 2, elements)[row]
    copied = np.bincount(rows.step[row[copies]], of_row[copies], steps)
    given = operator & rows.named(lambda text: text == GRADIENT) & (elements > 0)
    # A gradient that several passes add to counts once a pass.
    parameters = np.bincount(rows.step[given], elements[given], steps)
    whole = (copied >= parameters) & (parameters > 0)
    if 2 * np.count_nonzero(whole) < np.count_nonzero(parameters):
        return row[:0], row[:0]
    chosen = np.isin(run, run[copies]) & (run >= 0) & whole[rows.step[row]]
    return row[chosen], run[chosen]
