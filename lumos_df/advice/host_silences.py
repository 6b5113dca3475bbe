"""Silences of the hosts that are long enough to be advice by themselves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.loader_rows import loader_rows
from lumos_df.graph import host, typical_values
from lumos_df.graph.host_collectives import waited
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.replay import Replay
from lumos_df.schema.codes import PYTHON


@dataclass(frozen=True, slots=True, kw_only=True)
class Silences:
    """k stretches of time in which the host of a rank ran no operator and made no call."""

    edge: NDArray[np.int64]
    """Edge of the rank whose lag holds it."""
    ns: NDArray[np.int64]
    """How long it is."""
    row: NDArray[np.int32]
    """The row that ends it; of a Python function that ran, this one."""
    label: NDArray[np.int32]
    """Name of the annotation that lasts through it, or NONE."""
    nothing: NDArray[np.bool_]
    """Whether nothing at all was recorded; otherwise a Python function ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSilences:
    """k long silences of all ranks of a job that lie in a step."""

    edge: NDArray[np.int64]
    """Edge of the job."""
    ns: NDArray[np.int64]
    """How long each is."""
    kind: NDArray[np.int64]
    """Its place in `kinds`."""
    kinds: list[tuple[bool, str]]
    """Whether nothing was recorded, and where; else the Python function that ran."""
    step: NDArray[np.int64]
    """Place of its step among those of all ranks."""


def of_job(works: Sequence[HostWork], replays: Sequence[Replay]) -> StepSilences:
    """Return the silences of all ranks that last as long as what is worth an advice takes of a step of the job.

    Args:
        works, replays: the host work and the replay of each rank.
    """
    mean_ns = np.concatenate([replay.high - replay.low for replay in replays]).mean()
    least = max(host.IDLE_NS, typical_values.LEAST_PCT / 100 * float(mean_ns))
    edge, ns, step, said = [], [], [], list[tuple[bool, str]]()
    first_edge = first_step = 0
    for work, replay in zip(works, replays, strict=True):
        rows, silences, steps = work.graph.rows, _long(work, least), replay.steps
        at = rows.ts[silences.row]
        place = np.searchsorted(steps.low, at, side="right") - 1
        inside = (place >= 0) & (at <= steps.high[place])
        edge.append(silences.edge[inside] + first_edge)
        ns.append(silences.ns[inside])
        step.append(place[inside] + first_step)
        columns = silences.nothing[inside], silences.label[inside], rows.name[silences.row[inside]]
        said += [
            (nothing, work.said(label, name) if nothing else rows.names[name])
            for nothing, label, name in zip(*(column.tolist() for column in columns), strict=True)
        ]
        first_edge += len(work.graph.edges)
        first_step += len(replay.low)
    kinds = sorted(set(said))
    number = {kind: place for place, kind in enumerate(kinds)}
    return StepSilences(
        edge=np.concatenate(edge),
        ns=np.concatenate(ns),
        kind=np.array([number[each] for each in said], np.int64),
        kinds=kinds,
        step=np.concatenate(step),
    )


def _long(work: HostWork, least: float) -> Silences:
    """Return the silences of a rank that last for `least` ns.

    Shorter ones are Python between operators. Time in which a data loader is asked for a batch, or a
    thread of the host does a collective, is none.
    """
    graph = work.graph
    rows, lag = graph.rows, graph.edges.lag[work.edge]
    column = np.flatnonzero(lag >= least)
    of, dur, row, silent = work.parts(
        work.thread[:, column], work.at[:, column], lag[column], graph.edges.dst[work.edge[column]]
    )
    edge = work.edge[column][of]
    loading = work.share(loader_rows(rows))[edge] * graph.edges.lag[edge]
    waiting = waited(work)[edge]
    ns = dur - np.round(np.where(silent, loading + waiting, 0)).astype(np.int64)
    kept = (ns >= least) & (row >= 0) & (silent | (rows.kind[row] == PYTHON) & (loading + waiting < dur / 2))
    column = column[of[kept]]
    label = work.labels(work.thread[:, column], work.at[:, column], lag[column])
    return Silences(edge=edge[kept], ns=ns[kept], row=row[kept], label=label, nothing=silent[kept])
