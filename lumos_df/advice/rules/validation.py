"""Forward passes behind the optimizer's step, with no backward pass, in each step: what if there were none."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import OPTIMIZER_STEP, PRODUCT
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import ANNOTATION, BACKWARD, CPU_OP, FORWARD, OTHER_PHASE


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that what validates in each step do so less often."""
    found = [_passes(rows, advised.phase(place)) for place, rows in enumerate(advised.ranks)]
    if not all(len(row) for row, _, _ in found):
        return
    on_gpu = any(rows.on_gpu.any() for rows in advised.ranks)
    taken, apply = without_stretches(advised, [row for row, _, _ in found], [step for _, step, _ in found])
    lasts = f"{format_ns(taken // len(advised.steps_ns))} {'of the GPU ' if on_gpu else ''}a step"
    yield Remedy(
        rule="validation",
        what=f"forward passes behind the optimizer's step, with no backward pass, take {lasts}: if they validate, "
        "let them do so in fewer steps",
        known=Known.REPLAYED,
        rests_on=format_count(sum(products for _, _, products in found), "product") + " behind the optimizer's step",
        apply=apply,
    )


def _passes(rows: Rows, phase: NDArray[np.int8]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the outermost operators of such passes [k], the step of each [k], and how many products are in them.

    A pass multiplies as often as the step's forward pass. Steps count that have a backward pass, of which half have to
    have such a pass: else it stands in few steps already. What comes before the optimizer's step may be of use for it,
    as a teacher's pass is.

    Args:
        rows: the rows of a rank.
        phase: phase of each row [n].
    """
    nothing = np.empty(0, np.int64)
    steps = int(rows.step.max(initial=-1)) + 1
    optimizer = np.flatnonzero((rows.kind == ANNOTATION) & rows.named(lambda text: text.startswith(OPTIMIZER_STEP)))
    optimizer = optimizer[(rows.step[optimizer] >= 0) & (rows.thread[optimizer] >= 0)]
    if not len(optimizer):
        return nothing, nothing, 0
    behind = np.full(steps + 1, np.iinfo(np.int64).max)
    thread = np.full(steps + 1, -1)
    last = optimizer[np.argsort(rows.end[optimizer], kind="stable")]
    behind[rows.step[last]] = rows.end[last]
    thread[rows.step[last]] = rows.thread[last]
    operator = (rows.kind == CPU_OP) & (rows.step >= 0)
    late = operator & (phase == OTHER_PHASE) & (rows.ts >= behind[rows.step]) & (rows.thread == thread[rows.step])
    multiplies = operator & rows.named(PRODUCT.match)
    again, once = (np.bincount(rows.step[multiplies & chosen], minlength=steps) for chosen in (late, phase == FORWARD))
    trains = np.bincount(rows.step[operator & (phase == BACKWARD)], minlength=steps) > 0
    whole = trains & (once > 0) & (again >= once)
    if 2 * np.count_nonzero(whole) < np.count_nonzero(trains) or not whole.any():
        return nothing, nothing, 0
    outer = np.flatnonzero(late & ~np.append(late, False)[rows.parent] & np.append(whole, False)[rows.step])
    # From the first to the last that the forward pass has, too.
    of_pass = np.isin(rows.name, np.unique(rows.name[operator & (phase == FORWARD)]))[outer]
    low, high = np.full(steps, np.iinfo(np.int64).max), np.full(steps, -1)
    np.minimum.at(low, rows.step[outer[of_pass]], rows.ts[outer[of_pass]])
    np.maximum.at(high, rows.step[outer[of_pass]], rows.ts[outer[of_pass]])
    outer = outer[(rows.ts[outer] >= low[rows.step[outer]]) & (rows.ts[outer] <= high[rows.step[outer]])]
    outer = outer[np.lexsort((rows.ts[outer], rows.step[outer]))]
    return outer, rows.step[outer].astype(np.int64), int(again[whole].sum())
