"""Operators that prepare for the sizes of each step anew: what if these had come before."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_calls import less_lag
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import longest
from lumos_df.schema.codes import CPU_OP, NONE

_TWICE: Final = 2
"""Threshold, times. The first call takes over so much as long as all that follow. Evidence: as of stalls."""
_NAMED: Final = 2
"""Operators that are named."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the first call of an operator with the sizes of a step take what those that follow it take."""
    steps = len(np.unique(advised.step_number))
    found = [_first_calls(rows, shape) for rows, shape in zip(advised.ranks, advised.shapes, strict=True)]
    in_steps = np.unique(np.concatenate([rows.step[row] for rows, (row, _) in zip(advised.ranks, found, strict=True)]))
    # What one step has, or few have, comes no more once the sizes are known.
    if len(in_steps) < 2 or 2 * len(in_steps) < steps:
        return
    lag = np.concatenate([less_lag(work, *each) for work, each in zip(advised.host_works, found, strict=True)])

    def apply(changed: ChangedGraph) -> None:
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))

    taken = Counter[str]()
    for rows, (row, over) in zip(advised.ranks, found, strict=True):
        for name in np.unique(rows.name[row]).tolist():
            taken[rows.names[name]] += int(over[rows.name[row] == name].sum())
    named = ", ".join(name for name, _ in taken.most_common(_NAMED)) + (", ..." if len(taken) > _NAMED else "")
    yield Remedy(
        rule="new_sizes",
        what=f"{named} prepare for the sizes of each step anew, {format_ns(int(lag.sum()) // len(advised.steps_ns))} "
        "of the host a step: pad sizes to a few, which come again",
        known=Known.MEASURED,
        rests_on=format_count(sum(len(row) for row, _ in found), "call"),
        apply=apply,
    )


def _first_calls(rows: Rows, shape: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the first calls with sizes that one step alone has, and by how much each is longer, ns [k].

    Calls of the same operator with the same sizes follow each of them in its step.

    Args:
        rows: the rows of a rank.
        shape: number of the shapes of each row's inputs, NONE where none were recorded [n].
    """
    inside = np.flatnonzero((rows.kind == CPU_OP) & (rows.parent >= 0))
    alone = rows.dur - np.bincount(rows.parent[inside], rows.dur[inside], len(rows)).astype(np.int64)
    row = np.flatnonzero((rows.kind == CPU_OP) & (rows.step >= 0) & (shape != NONE))
    row = row[np.argsort(rows.ts[row], kind="stable")]
    sizes = packed(rows.name[row], shape[row])
    _, first, kind = np.unique(sizes, return_index=True, return_inverse=True)
    same_step = np.ones(len(first), np.bool_)
    np.logical_and.at(same_step, kind, rows.step[row] == rows.step[row[first[kind]]])
    later = np.ones(len(row), np.bool_)
    later[first] = False
    usual = longest(sizes[later], alone[row[later]], sizes[first])
    took = alone[row[first]]
    chosen = same_step & (usual >= 0) & (took > _TWICE * usual)
    return row[first[chosen]], (took - usual)[chosen].astype(np.float64)
