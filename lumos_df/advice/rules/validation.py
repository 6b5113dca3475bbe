"""Forward passes of which nothing learns, such as validation, in each step: what if there were none."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import learns, outermost, runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import PRODUCT, READS
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import ANNOTATION, BACKWARD, CPU_OP, FORWARD, NONE, OTHER_PHASE
from lumos_df.schema.words import OPTIMIZER_STEP

_AGAIN: Final = 2
"""It takes so many times to tell that something comes again."""


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
        what=f"forward passes of which nothing learns take {lasts}: if they validate, let them do so in fewer "
        "steps; of samples of the step, take what its own pass put out",
        known=Known.REPLAYED,
        rests_on=format_count(sum(products for _, _, products in found), "product") + " of which nothing learns",
        apply=apply,
    )


def _passes(rows: Rows, phase: NDArray[np.int8]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the outermost operators of such passes [k], the run of each [k], and how many products are in them.

    They stand behind the optimizer's step; or a number is read of them before anything learns: what else comes before
    that step may be of use for it, as a teacher's pass is. They multiply as often as the step's forward pass. Steps
    count that have a backward pass, of which two have to have such passes: what one has may never come again.

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
    outer = outermost(rows)
    sequence = packed(rows.thread[outer], rows.step[outer])
    late = rows.ts[outer] >= behind[rows.step[outer]]
    unlearnt = (phase[outer] == FORWARD) & ~learns(rows)[outer]
    free = ((phase[outer] == OTHER_PHASE) | unlearnt) & (rows.thread[outer] == thread[rows.step[outer]])
    run = runs_of(packed(sequence, late), free)
    multiply = np.flatnonzero((rows.kind == CPU_OP) & (rows.step >= 0) & rows.named(PRODUCT.match))
    held = np.zeros(len(rows), np.bool_)
    held[outer] = True
    around = np.where(held[multiply], multiply, rows.nearest(held, multiply.astype(np.int32)))
    products = np.bincount(around[around >= 0], minlength=len(rows))[outer]
    # The last product of each run, and the last number that is read of one; the last run is of what is in none.
    runs = int(run.max(initial=-1)) + 2
    multiplied, read = np.full(runs, NONE), np.full(runs, NONE)
    reads = rows.named(lambda text: text == READS)[outer]
    for ends, hit in ((multiplied, products > 0), (read, reads)):
        hits = np.flatnonzero(hit & free)
        np.maximum.at(ends, run[hits], hits)
    passes = free & (late | ((read > multiplied) & (multiplied >= 0))[run])
    forward = (phase[outer] == FORWARD) & ~passes
    again, once = (np.bincount(rows.step[outer[mine]], products[mine], steps) for mine in (passes, forward))
    trains = np.bincount(rows.step[outer[phase[outer] == BACKWARD]], minlength=steps) > 0
    whole = trains & (once > 0) & (again >= once)
    if np.count_nonzero(whole) < min(_AGAIN, max(int(np.count_nonzero(trains)), 1)):
        return nothing, nothing, 0
    passes &= whole[rows.step[outer]]
    # From the first to the last that the forward pass has, too.
    of_pass = passes & np.isin(rows.name, np.unique(rows.name[outer[forward]]))[outer]
    low, high = np.full(runs, len(outer)), np.full(runs, NONE)
    np.minimum.at(low, run[of_pass], np.flatnonzero(of_pass))
    np.maximum.at(high, run[of_pass], np.flatnonzero(of_pass))
    passes &= (np.arange(len(outer)) >= low[run]) & (np.arange(len(outer)) <= high[run])
    return outer[passes], run[passes], int(again[whole].sum())
