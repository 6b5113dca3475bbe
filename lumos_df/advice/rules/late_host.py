"""Ranks without GPUs that others wait for in collectives of the host, such as gloo's: what if they were as quick."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice import steady_lateness
from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.late_rank import cause, excess_of, listed, uneven
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.host_collectives import meanwhile, met


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that ranks which make others wait more than their share, step after step, be as quick as the others.

    No graph joins ranks without GPUs, so what the late ones lose no more is taken from the waits of the others.
    """
    ranks = advised.ranks
    if len(ranks) == 1 or any(rows.on_gpu.any() for rows in ranks):
        return
    rank, row, waits, last = met(ranks)
    caused = np.bincount(last, waits, len(ranks))
    if not len(waits):
        return
    step = np.concatenate([rows.step[row[rank == place]] for place, rows in enumerate(ranks)])
    late = np.flatnonzero((caused > caused.mean()) & steady_lateness.of_host_waits(len(ranks), rank, step, waits))
    if not len(late):
        return
    own, lag = _excess(advised, late, rank, row)
    of_late = np.isin(rank, late)
    # Who waits in turn has no more to lose than what the others wait longer, each of them for all that are late.
    others = len(ranks) - len(late)
    most = max(int(waits[~of_late].sum()) / others - int(waits[of_late].sum()) / len(late), 0.0) * len(late)
    lost = int(own.sum() + lag.sum())
    alike = excess_of(advised, late)
    alike = replace(alike, own=np.minimum(alike.own, own), lag=np.minimum(alike.lag, lag), floor=np.zeros_like(own))
    more_work = 2 * (alike.own.sum() + alike.lag.sum()) < lost
    larger, part = uneven(advised, late, alike)
    why = "work that the others do not have" if more_work else larger or cause(advised, late, alike)[1]
    share = min(1.0, most / lost) * (1.0 if more_work else part) if lost else 0.0
    own, lag = (np.round(each * share).astype(np.int64) for each in (own, lag))
    # So much less the others wait.
    taken = share * lost * others / len(late) / max(int(waits[~of_late].sum()), 1)
    lag += np.round(waits_inside(advised, rank, row, np.where(of_late, 0, waits)) * min(taken, 1.0)).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        changed.own[:] -= np.minimum(own, changed.own)
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))

    a_step = round(int(own.sum() + lag.sum()) / len(advised.steps_ns))
    yield Remedy(
        rule="late_host",
        what=f"{listed([ranks[place].rank for place in late.tolist()])} {'is' if len(late) == 1 else 'are'} waited for "
        f"in collectives of the host, {format_ns(a_step)} a step: {why}",
        known=Known.MEASURED,
        rests_on=f"{format_count(len(row), 'row')} of collectives of {format_count(len(ranks), 'rank')}",
        apply=apply,
    )


def _excess(
    advised: AdvisedJob, late: NDArray[np.int64], rank: NDArray[np.int64], row: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what late ranks take longer outside of collectives, ns: of rows, and of the edges between them."""
    graph, excess = advised.event_graph, excess_of(advised, late, joined=False)
    dur = np.concatenate([rows.dur for rows in advised.ranks])[graph.base[rank] + row]
    running = waits_inside(advised, rank, row, dur)
    within = np.concatenate([rows.collective >= 0 for rows in advised.ranks])
    lag = np.minimum(excess.lag, np.maximum(graph.lag - running, 0))
    return np.where(within, 0, excess.own), lag


def waits_inside(
    advised: AdvisedJob, rank: NDArray[np.int64], row: NDArray[np.int64], first_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return what of each edge's lag passes in the first so many ns of its rank's collectives, ns [edges of the job].

    Only stretches as long as what is worth an advice: in shorter ones, between operators, Python goes on meanwhile.
    """
    least = typical_values.LEAST_PCT / 100 * float(advised.steps_ns.mean())
    part = [
        np.where(graph.edges.lag >= least, meanwhile(host, row[rank == place], first_ns[rank == place]), 0)
        for place, (graph, host) in enumerate(zip(advised.graphs, advised.host_works, strict=True))
    ]
    return np.concatenate(part)
