"""Hosts that do nothing recorded in some steps, not in most: what if these steps were as the others.

Garbage is collected wherever the program is just then, so silences of several kinds may have one cause.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_silences import StepSilences
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.late_host import waits_inside
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.host_collectives import met


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that some steps have no longer silences than most: garbage is collected, checkpoints are saved, by turns.

    What one step has is a stall.
    """
    silences = advised.silences
    steps = len(advised.steps_ns)
    nothing = np.array([nothing for nothing, _ in silences.kinds], np.bool_)
    spent = np.zeros((len(silences.kinds), steps), np.int64)
    np.add.at(spent, (silences.kind, silences.step), silences.ns)
    spent = np.concatenate((spent, spent[nothing].sum(axis=0, keepdims=True)))
    bounds = np.cumsum([len(replay.low) for replay in advised.played.replays])
    usual = np.concatenate(
        [
            np.repeat(np.percentile(part, 50, axis=1, method="lower")[:, None], part.shape[1], axis=1)
            for part in np.split(spent, bounds[:-1], axis=1)
        ],
        axis=1,
    )
    over = np.where(spent > 2 * usual, spent - usual, 0)
    rank = np.repeat(np.arange(len(bounds)), np.diff(bounds, prepend=0))
    _, number = np.unique(advised.step_number, return_inverse=True)
    most = over.sum(axis=1)
    kind = int(np.argmax(most[:-1])) if len(silences.kinds) else len(silences.kinds)
    if 2 * most[kind] <= most[-1]:
        kind = len(silences.kinds)
    held = np.flatnonzero(over[kind])
    of_steps = len(np.unique(number[held]))
    if most[kind] < typical_values.LEAST_PCT / 100 * advised.steps_ns.sum():
        return
    # Where operators are as late in most steps, whatever took the core took it from silences, too.
    if most[kind] <= advised.operator_delays.usual_ns[held].sum():
        return
    if of_steps > 1:
        in_turn = of_steps > np.bincount(rank[held]).max()
        one = kind < len(silences.kinds)
        alike = silences.kind == kind if one else nothing[silences.kind]
        said = silences.kinds[kind] if one else (True, "at varying places")
        yield _remedy(advised, silences, alike, said, over[kind], in_turn=in_turn)


def _remedy(  # each says one thing of the silences
    advised: AdvisedJob,
    silences: StepSilences,
    alike: NDArray[np.bool_],
    said: tuple[bool, str],
    over: NDArray[np.int64],
    *,
    in_turn: bool,
) -> Remedy:
    """Return a job without what some silences take too long.

    Args:
        advised, silences: the job, and its silences [k].
        alike: which of them these are [k].
        said: whether nothing was recorded, and where; else the Python function that ran.
        over: how much longer they are than usual, ns [steps].
        in_turn: whether ranks have them by turns.
    """
    nothing, where = said
    mine = np.flatnonzero(alike & (over[silences.step] > 0))
    spent = np.bincount(silences.step[mine], silences.ns[mine], len(over))
    part = over[silences.step[mine]] / spent[silences.step[mine]]
    less = np.bincount(silences.edge[mine], silences.ns[mine] * part, len(advised.event_graph.lag)).astype(np.int64)
    lag = less + _waits(advised, over)

    def apply(changed: ChangedGraph) -> None:
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))

    what = f"nothing recorded for {format_ns(round(less.sum() / len(over)))} a step {where}"
    if not nothing:
        what = f"{format_ns(round(less.sum() / len(over)))} a step in {where}, which runs no operator"
    ranks = np.repeat([rows.rank for rows in advised.ranks], [len(each.low) for each in advised.played.replays])
    of_ranks = np.unique(ranks[over > 0])
    where = f" on rank {of_ranks[0]}" if len(of_ranks) == 1 else " of all ranks"
    steps = np.count_nonzero(ranks == of_ranks[0]) if len(of_ranks) == 1 else len(over)
    of = f"in {np.count_nonzero(over)} of {steps} steps{where if len(advised.graphs) > 1 else ''}"
    look = "look for garbage collection, checkpoints, logging, other programs"
    return Remedy(
        rule="occasional_silence",
        what=f"{what}, {of}: {look}{'; let all ranks do it in the same step' if in_turn else ''}",
        known=Known.REPLAYED,
        rests_on=format_count(len(mine), "silence") + " of the host",
        apply=apply,
    )


def _waits(advised: AdvisedJob, over: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how long other ranks wait in collectives of the host for such silences, ns [edges of the job].

    No graph joins ranks without a GPU. `over`: how much longer a step is for them [steps].
    """
    rank, row, waits, last = met(advised.ranks)
    numbers, number = np.unique(advised.step_number, return_inverse=True)
    of_step = np.repeat(np.arange(len(advised.ranks)), [len(replay.low) for replay in advised.played.replays])
    longer = np.zeros((len(advised.ranks), len(numbers)), np.int64)
    longer[of_step, number] = over
    step = np.concatenate([rows.step[row[rank == place]] for place, rows in enumerate(advised.ranks)])
    place = np.minimum(np.searchsorted(numbers, step), len(numbers) - 1)
    return waits_inside(advised, rank, row, np.minimum(waits, longer[last, place]))
