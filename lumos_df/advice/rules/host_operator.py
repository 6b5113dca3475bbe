"""Operators that work long on the host and give the GPU nothing: what if their results had been there."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_calls import without_calls
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.distinct_texts import distinct
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import around, inherited
from lumos_df.schema.codes import CPU_OP, RUNTIME

_MOST: Final = 3
"""Operators that are proposed: those that take most time."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose for each of some operators that the host have nothing to do for its long calls."""
    if not all(rows.on_gpu.any() for rows in advised.ranks):
        # Without a GPU that is the work itself.
        return
    calls = [_long(rows, shape) for rows, shape in zip(advised.ranks, advised.shapes, strict=True)]
    names, called = distinct(name for rows in advised.ranks for name in rows.names)
    first = np.cumsum([0, *(len(rows.names) for rows in advised.ranks[:-1])])
    of_ranks = list(zip(advised.ranks, calls, first, strict=True))
    kind = np.concatenate([called[low + rows.name[call]] for rows, call, low in of_ranks])
    dur = np.concatenate([rows.dur[call] for rows, call, _ in of_ranks])
    step = np.concatenate([rows.step[call] for rows, call, _ in of_ranks])
    steps, least = len(np.unique(advised.step_number)), typical_values.LEAST_PCT / 100 * advised.steps_ns.sum()
    total = np.bincount(kind, dur, len(names))
    for place in np.argsort(-total)[:_MOST].tolist():
        mine = kind == place
        # What comes in few steps, or in one call, is a stall.
        if total[place] < least or 2 * len(np.unique(step[mine])) < steps or 2 * dur[mine].max() > total[place]:
            continue
        parts = np.split(mine, np.cumsum([len(call) for call in calls])[:-1])
        taken, apply = without_calls(advised, [call[part] for call, part in zip(calls, parts, strict=True)])
        lasts = format_ns(taken // len(advised.steps_ns))
        yield Remedy(
            rule="host_operator",
            what=f"{names[place]} works on the host for {lasts} a step and launches nothing: do it ahead of the "
            "step, on the GPU, or in fewer calls",
            known=Known.REPLAYED,
            rests_on=f"{format_count(int(mine.sum()), 'call')} on {format_count(len(advised.graphs), 'rank')}",
            apply=apply,
        )


def _long(rows: Rows, shape: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the operators of PyTorch that launch nothing and last far longer than most that launch nothing [k].

    So does at least half of their name and shapes that call as many rows: else they are short, and the host was slow
    just then.

    Args:
        rows: the rows of a rank.
        shape: code of the shapes of each row's inputs, NONE where none were recorded [n].
    """
    works = (rows.kind == CPU_OP) & rows.named(lambda text: text.startswith("aten::"))
    works &= ~around((rows.kind == RUNTIME) | rows.on_gpu, rows.parent) & ~inherited(loader_rows(rows), rows.parent)
    outer = np.flatnonzero(works & ~np.append(works, False)[rows.parent])
    if len(outer) < typical_values.FEW:
        return outer[:0]
    long = rows.dur[outer] > typical_values.highest_usual(rows.dur[outer])
    within = np.bincount(rows.parent[rows.parent >= 0], minlength=len(rows))
    alike = dense(packed(rows.name[outer], shape[outer], within[outer]))
    usual = 2 * np.bincount(alike, long) >= np.bincount(alike)
    found: NDArray[np.int64] = outer[long & usual[alike]]
    return found
