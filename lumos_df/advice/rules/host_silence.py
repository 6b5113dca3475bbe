"""Hosts that do nothing recorded: what if they had gone on at once."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values

_MOST: Final = 3
"""Kinds of silence that are proposed: those that take most time."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the hosts go on at once, for the kinds of silence that all ranks have in most steps."""
    silences = advised.silences
    kinds, kind, edge, ns, step = silences.kinds, silences.kind, silences.edge, silences.ns, silences.step
    steps = len(advised.steps_ns)
    spent = np.bincount(kind * steps + step, ns, len(kinds) * steps).reshape(len(kinds), steps)
    # What one rank or one step has alone is no habit of the job.
    bounds = np.cumsum([len(replay.low) for replay in advised.played.replays])[:-1]
    by_rank = [np.percentile(part, 50, axis=1, method="lower") for part in np.split(spent, bounds, axis=1)]
    habit = np.min(by_rank, axis=0)
    least = typical_values.LEAST_PCT / 100 * float(advised.steps_ns.mean())
    for place in np.argsort(-habit)[:_MOST].tolist():
        if habit[place] < least:
            return
        mine = kind == place
        part = np.minimum(1, habit[place] / spent[place, step[mine]])
        yield _remedy(advised, kinds[place], edge[mine], (ns[mine] * part).astype(np.int64))


def _remedy(advised: AdvisedJob, kind: tuple[bool, str], edge: NDArray[np.int64], ns: NDArray[np.int64]) -> Remedy:
    nothing, name = kind
    look = (
        "Python code, a lock, garbage collection, logging, files? record Python stacks"
        if advised.words.torch
        else "the program's code, a lock, files, other programs? record the host's call stacks"
    )
    held, place = np.unique(edge, return_inverse=True)
    less = np.bincount(place.reshape(-1), ns).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        changed.lag[held] -= np.minimum(less, np.maximum(changed.lag[held], 0))

    # A mean over all steps, as the gain is: the last one's silence may be ended by no row.
    lasts = format_ns(round(int(less.sum()) / len(advised.steps_ns)))
    return Remedy(
        rule="host_silence",
        what=f"nothing recorded for {lasts} a step {name}: {look}"
        if nothing
        else f"{lasts} a step in {name}, which runs no operator",
        known=Known.REPLAYED,
        rests_on=format_count(len(ns), "silence") + " of the host",
        apply=apply,
    )
