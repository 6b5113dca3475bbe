"""Gradients that are set to zero and added to, in place of being made anew: what if they were dropped."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import ordinals
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import CPU_OP
from lumos_df.schema.words import GRADIENT

_CLEARING: Final = "Optimizer.zero_grad#"
"""What clears the gradients, up to the optimizer's name."""
_CLEARS: Final = ("aten::zero_", "aten::_foreach_zero_")
"""What sets one gradient, or all, to zero."""
_ADDS: Final = "aten::add_"
"""What adds to a gradient that is there already."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that no gradient be set to zero, and that what a step first adds to one be the gradient itself."""
    found = [_rows(rows) for rows in advised.ranks]
    if not any(len(row) for row in found):
        return
    taken, apply = without_stretches(advised, found, [np.arange(len(row)) for row in found])
    gpu = "of the GPU " if any(rows.on_gpu.any() for rows in advised.ranks) else ""
    lasts = f"{format_ns(round(taken / len(advised.steps_ns)))} {gpu}a step"
    yield Remedy(
        rule="cleared_gradients",
        what=f"gradients are set to zero and added to, {lasts}: drop them, by set_to_none=True of zero_grad",
        known=Known.REPLAYED,
        rests_on=format_count(sum(map(len, found)), "operator"),
        apply=apply,
    )


def _rows(rows: Rows) -> NDArray[np.int64]:
    """Return what sets gradients to zero, and of each step as many first additions to them, in their order [k]."""
    operator = (rows.kind == CPU_OP) & (rows.step >= 0)
    clears = operator & rows.named(lambda text: text in _CLEARS)
    clears &= inherited(rows.named(lambda text: text.startswith(_CLEARING)), rows.parent)
    outer = clears & ~np.append(inherited(clears, rows.parent), False)[rows.parent]
    steps = int(rows.step.max(initial=-1)) + 1
    # On a host one call for all has one within it for each; a kernel for all has none.
    single = np.flatnonzero(clears & rows.named(lambda text: text == _CLEARS[0]))
    cleared = np.bincount(rows.step[single], minlength=steps)
    adds = operator & rows.named(lambda text: text == _ADDS)
    adds &= inherited(rows.named(lambda text: text == GRADIENT), rows.parent)
    add = np.flatnonzero(adds)
    add = add[np.lexsort((rows.ts[add], rows.step[add]))]
    first = add[ordinals(packed(rows.step[add])) < cleared[rows.step[add]]]
    row = np.union1d(np.flatnonzero(outer), first)
    return row[np.lexsort((rows.ts[row], rows.thread[row]))].astype(np.int64)
