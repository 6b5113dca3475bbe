"""Which recorded collectives another plan has no more, or has of another kind.

Gradients that all ranks update are all-reduced; those that one rank updates are scattered to it, which then has
parameters to give to the others. Likewise activations of which each rank goes on with its part of the tokens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
from lumos_df.schema.collective_kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVES, REDUCE_SCATTER
from lumos_df.schema.plan_words import DP, EP, TP
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.job.recorded_job import RecordedJob


@dataclass(frozen=True, slots=True)
class Replacement:
    """What becomes of the collectives of a rank [k]."""

    kind: NDArray[np.int64]
    """Place in `COLLECTIVES` of what each becomes, NONE where it stays what it is."""
    gone: NDArray[np.bool_]
    """Whether it runs no more: nobody waits for another there."""


def replacement(
    anchor: RecordedJob, change: PlannedChange, rank: int, row: NDArray[np.int32], degree: NDArray[np.int8]
) -> Replacement:
    """Return what becomes of collectives.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: its collectives [k].
        degree: place in `schema.plan_words.DIMENSIONS` of each, NONE where unknown [k].
    """
    rows, (old, new) = anchor.about.ranks[rank].trace.rows, change.groups
    kind = np.array([*map(COLLECTIVES.index, rows.collectives), NONE], np.int64)[rows.collective[row]]
    become = np.full(len(row), NONE, np.int64)
    gone = np.zeros(len(row), np.bool_)
    for place in (TP, EP, DP):
        if new.size[place] == 1 < old.size[place]:
            # What nothing tells of is taken for data parallelism's.
            gone |= (degree == place) | ((place == DP) & (degree == NONE))
    before, after = change.old, change.new
    for place, shared, shares in ((DP, bool(before.zero), bool(after.zero)), (TP, before.sp, after.sp)):
        mine = (degree == place) & ~gone
        if shared != shares:
            first, then = (REDUCE_SCATTER, ALL_REDUCE) if shared else (ALL_REDUCE, REDUCE_SCATTER)
            large = _as_large_as_any(anchor, rank, row, mine) if place == TP else mine
            become[large & (kind == first)] = then
        if shared and (not shares or (place == DP and gathers_differ(change))):
            gone |= mine & (kind == ALL_GATHER)
    return Replacement(become, gone)


def gathers_differ(change: PlannedChange) -> bool:
    """Return whether parameters are gathered for each layer, and were after the step, or the other way round."""
    return change.old.gathers_layers != change.new.gathers_layers


def _as_large_as_any(
    anchor: RecordedJob, rank: int, row: NDArray[np.int32], mine: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which collectives carry as much as any of these that runs inside layers: activations [k]."""
    about = anchor.about.ranks[rank]
    moved = about.trace.rows.in_bytes[row]
    large: NDArray[np.bool_] = mine & np.isin(moved, moved[mine & (about.structure.layer[row] >= 0)])
    return large
