"""Hosts that do nothing recorded: what if they had gone on at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_silences import long_silences
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.schema import STEP_MARK

_MOST: Final = 3
"""Kinds of silence that are proposed: those that take most time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Silences:
    """k silences of some ranks that lie in a step."""

    edge: NDArray[np.int64]
    """Edge of the job."""
    ns: NDArray[np.int64]
    """How long each is."""
    kind: list[tuple[bool, str]]
    """Whether nothing was recorded, and before what; else the Python function that ran."""
    step: NDArray[np.int64]
    """Place of its step among those of the job."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the hosts go on at once, for the kinds of silence that all ranks have in most steps."""
    of_ranks = [_silences(advised, rank) for rank in range(len(advised.graphs))]
    kinds = sorted({kind for silences in of_ranks for kind in silences.kind})
    edge, ns, step = (np.concatenate([getattr(each, name) for each in of_ranks]) for name in ("edge", "ns", "step"))
    kind = np.array([kinds.index(each) for silences in of_ranks for each in silences.kind], np.int64)
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
        yield _remedy(advised, kinds[place], habit[place], edge[mine], (ns[mine] * part).astype(np.int64))


def _silences(advised: AdvisedJob, rank: int) -> _Silences:
    rows, silences = advised.ranks[rank], long_silences(advised, rank)
    steps = advised.played.replays[rank].steps
    at = rows.ts[silences.row]
    place = np.searchsorted(steps.low, at, side="right") - 1
    inside = (place >= 0) & (at <= steps.high[place])
    first_step = sum(len(replay.low) for replay in advised.played.replays[:rank])
    names = ["the next step" if STEP_MARK.match(name) else name for name in rows.names]
    return _Silences(
        edge=silences.edge[inside] + advised.edge_base[rank],
        ns=silences.ns[inside],
        kind=[
            (nothing, names[name])
            for nothing, name in zip(
                silences.nothing[inside].tolist(), rows.name[silences.row[inside]].tolist(), strict=True
            )
        ],
        step=place[inside] + first_step,
    )


def _remedy(
    advised: AdvisedJob, kind: tuple[bool, str], habit: float, edge: NDArray[np.int64], ns: NDArray[np.int64]
) -> Remedy:
    nothing, name = kind
    look = (
        "record Python stacks, look for a lock, garbage collection, logging, files"
        if advised.words.torch
        else "record the host's call stacks, look for a lock, files, other programs"
    )
    held, place = np.unique(edge, return_inverse=True)
    less = np.bincount(place.reshape(-1), ns).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        changed.lag[held] -= np.minimum(less, np.maximum(changed.lag[held], 0))

    lasts = format_ns(round(habit))
    return Remedy(
        rule="host_silence",
        what=f"nothing recorded for {lasts} a step before {name}: {look}"
        if nothing
        else f"{lasts} a step in {name}, which runs no operator",
        known=Known.REPLAYED,
        rests_on=format_count(len(ns), "silence") + " of the host",
        apply=apply,
    )
