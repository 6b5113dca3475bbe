"""The interval of an estimate: what can go wrong, one cause at a time, each run through the graph.

Errors of one cause are one factor: where kernels are slower than thought, all of them are. Causes are independent of
one another, so the squares of their logarithms add up. An error is a factor: what may be three times as long may be a
third, but nothing is shorter than nothing.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host_spread, stalls
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE
from lumos_df.schema.collective_kinds import ALL_REDUCE, COLLECTIVES, REDUCE_SCATTER
from lumos_df.whatif.answer import host_causes
from lumos_df.whatif.answer.cause import Cause, Steps, ends, factor, logarithm
from lumos_df.whatif.answer.settled_steps import lengths, recorded_lengths
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations import host_times, operator_times
from lumos_df.whatif.durations.added_kernels import GRADIENTS, name_of
from lumos_df.whatif.durations.kernel_times import MODELLED
from lumos_df.whatif.durations.unscaled import PICKED

_REDUCTIONS: Final = frozenset(name_of(COLLECTIVES[kind], GRADIENTS) for kind in (ALL_REDUCE, REDUCE_SCATTER))
"""Names of the reductions of a job that ran as one replica."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What holds each step 8 times of 10, and why it is as wide as it is."""

    step: Steps
    """The estimate, ns."""
    causes: tuple[Cause, ...]
    once: Cause | None = None
    """What comes of what may not come again: the causes hold with it as well as without it."""

    def low(self, rank: int) -> NDArray[np.float64]:
        """Return the lower end of each step of a rank, ns."""
        without = self.once.low[rank] / self.step[rank] if self.once else 1.0
        return without * self._end(rank, [cause.low[rank] for cause in self.causes], -1)

    def high(self, rank: int) -> NDArray[np.float64]:
        """Return the upper end of each step of a rank, ns."""
        return self._end(rank, [cause.high[rank] for cause in self.causes], 1)

    def words(self, rank: int, place: int) -> list[str]:
        """Return the causes of a step, the largest first, with what each alone would make of it: `host ±4.1%`."""
        causes = (*self.causes, self.once) if self.once else self.causes
        half = {cause.name: 50 * float(logarithm(cause.high[rank], cause.low[rank])[place]) for cause in causes}
        by_size = sorted(half, key=lambda name: -half[name])
        return [f"{name} ±{half[name]:.1f}%" for name in by_size if round(half[name], 1)]

    def _end(self, rank: int, alone: list[NDArray[np.float64]], sign: int) -> NDArray[np.float64]:
        step = self.step[rank]
        apart = np.sqrt(np.sum([logarithm(end, step) ** 2 for end in alone], axis=0))
        ends: NDArray[np.float64] = step * np.exp(sign * apart)
        return ends


def interval(changed: ChangedJob) -> Interval:
    """Return the interval of a changed job."""
    step = lengths(changed, changed.job.event_graph)
    kinds = _Kinds.of(changed)
    causes = [_replay(changed, step), host_causes.host(changed, step), host_causes.another_run(changed, step)]
    links = f"links as of {changed.stand_in}" if changed.stand_in else "links"
    for name, own, transfer in (
        (host_causes.KERNELS, kinds.computes, None),
        (links, kinds.communicates & ~kinds.modelled, ~kinds.modelled_transfer),
        ("modelled", kinds.modelled, kinds.modelled_transfer),
    ):
        if own.any() or (transfer is not None and transfer.any()):
            causes.append(_scaled(changed, step, name, own, transfer))
    more = [each(changed, step) for each in (_gaps, _waits, _came_once, _unscaled, _hidden, _at_once)]
    causes += [*_stand_in(changed, step, kinds), *host_causes.together(changed, step, causes, kinds.computes)]
    return Interval(step, (*causes, *chain.from_iterable(more)), _once(changed, step))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Which rows of all ranks one behind the other err together [n], and which collectives [c]."""

    computes: NDArray[np.bool_]
    communicates: NDArray[np.bool_]
    modelled: NDArray[np.bool_]
    modelled_transfer: NDArray[np.bool_]

    @classmethod
    def of(cls, changed: ChangedJob) -> "_Kinds":
        graphs, net = changed.job.graphs, changed.job.event_graph
        works = np.concatenate([graph.rows.on_gpu | host_times.works(graph) for graph in graphs])
        communicates = np.concatenate(
            [(graph.rows.kind == KERNEL) & (graph.rows.family == COMMUNICATION) for graph in graphs]
        )
        modelled = np.concatenate([time.provenance for time in changed.times]) == MODELLED
        joint = np.zeros(len(net.transfer), np.bool_)
        joint[net.instance[modelled & (net.instance != NONE)]] = True
        return cls(works & ~communicates & ~modelled, communicates, modelled, joint)


def _replay(changed: ChangedJob, step: Steps) -> Cause:
    """Return what the replay of the recorded steps misses, and what no edge of them explains, in proportion."""
    low, high = [], []
    for rank, lasts in zip(changed.ranks, step, strict=True):
        replay = changed.played.replays[rank]
        recorded = np.maximum(replay.steps.high - replay.steps.low, 1)
        missed = (np.abs(replay.high - replay.low - recorded) + replay.unexplained) / recorded
        low.append(lasts / (1 + missed))
        high.append(lasts * (1 + missed))
    return Cause("replay", low, high)


def _came_once(changed: ChangedJob, step: Steps) -> list[Cause]:
    """Return by how much longer 8 of 10 recorded steps are with what came once: where one had it, another may.

    To load code, or to try algorithms, takes as long in a changed job, so that is added. No step is shorter for it.
    One step tells nothing of how often it comes: there it is named, and is in no interval.
    """
    more = []
    for rank in changed.ranks:
        with_it, usual = recorded_lengths(changed.played.replays[rank]), host_causes.usual_lengths(changed, rank)
        longer = float(np.percentile(with_it, 90) - np.percentile(usual, 90)) if len(with_it) > 1 else 0.0
        more.append(max(longer, 0.0))
    if not any(more):
        return []
    return [Cause("what came once", [*step], [lasts + ns for lasts, ns in zip(step, more, strict=True)])]


def _gaps(changed: ChangedJob, step: Steps) -> list[Cause]:
    """Return what comes of gaps between operators that grow not at all with what these touch, or twice as much."""
    net = changed.job.event_graph
    if not any(time.gaps.any() for time in changed.times):
        return []
    grown = [
        np.where(host_spread.works_between(graph), time.gaps[graph.edges.dst], 0.0)
        for graph, time in zip(changed.job.graphs, changed.times, strict=True)
    ]
    lags = [np.round(net.lag * np.exp(sign * np.concatenate(grown))).astype(np.int64) for sign in (-1, 1)]
    return [Cause("gaps between operators", *ends(step, *(lengths(changed, replace(net, lag=lag)) for lag in lags)))]


def _waits(changed: ChangedJob, step: Steps) -> list[Cause]:
    """Return what comes of collectives of the host that take as long as recorded, or grow in all they take."""
    net = changed.job.event_graph
    if not any(time.waits.any() for time in changed.times):
        return []
    played = []
    for end in (0, 1):
        factor = np.concatenate(
            [time.waits[graph.edges.dst, end] for graph, time in zip(changed.job.graphs, changed.times, strict=True)]
        )
        played.append(lengths(changed, replace(net, lag=np.round(net.lag * np.exp(factor)).astype(np.int64))))
    return [Cause("collectives of the host", *ends(step, *played))]


def _once(changed: ChangedJob, step: Steps) -> Cause | None:
    """Return what comes of what may not come again, and nothing in one step tells: without it, the step is shorter.

    The few stretches of host work far longer than all others. Of several recorded steps those are stalls, or in each.
    """
    net, lags = changed.job.event_graph, []
    for graph, rank in zip(changed.job.graphs, changed.ranks, strict=True):
        lag = graph.edges.lag.copy()
        if len(changed.played.replays[rank].steps.low) == 1:
            edge = np.flatnonzero(host_spread.works_between(graph) & (lag > 0))
            longest = stalls.longest_usual(graph.rows.thread[graph.edges.dst[edge]].astype(np.int64), lag[edge])
            lag[edge] = np.where(longest == NONE, lag[edge], longest)
        lags.append(lag)
    lag = np.concatenate(lags)
    if np.array_equal(lag, net.lag):
        return None
    return Cause("what may come once", *ends(step, lengths(changed, replace(net, lag=lag))))


def _scaled(
    changed: ChangedJob, step: Steps, name: str, own: NDArray[np.bool_], transfer: NDArray[np.bool_] | None
) -> Cause:
    """Return what some rows and collectives make, longer or shorter by their errors; below 0 only shorter."""
    net = changed.job.event_graph
    error = np.where(own, np.concatenate([time.error for time in changed.times]), 0.0)
    joint = np.where(transfer, changed.transfer_error, 0.0) if transfer is not None else np.zeros(len(net.transfer))
    played = [
        lengths(
            changed,
            replace(
                net,
                own=np.round(net.own * factor(error, sign)).astype(np.int64),
                transfer=np.round(net.transfer * factor(joint, sign)).astype(np.int64),
            ),
        )
        for sign in (-1, 1)
    ]
    return Cause(name, *ends(step, *played))


def _stand_in(changed: ChangedJob, step: Steps, kinds: _Kinds) -> list[Cause]:
    """Return what comes of a GPU that another stands in for, as much faster or slower as that one may be.

    It is in the ratio of every kernel that shall run on another GPU, and in the time of every modelled one.
    """
    gpu = changed.anchor.gpu
    rows = kinds.computes if changed.plan.settings.hardware else kinds.modelled & ~kinds.communicates
    rows = rows & np.concatenate([graph.rows.on_gpu for graph in changed.job.graphs])
    if gpu.known or not rows.any():
        return []
    net = changed.job.event_graph
    factor = np.where(rows, 1 + gpu.error, 1.0)
    played = [lengths(changed, replace(net, own=np.round(net.own * factor**sign).astype(np.int64))) for sign in (-1, 1)]
    return [Cause(f"the GPU that ran, taken for {gpu.hardware.name},", *ends(step, *played))]


def _unscaled(changed: ChangedJob, step: Steps) -> list[Cause]:
    """Return what comes of rows that could not be rescaled: as measured, or changed as much as they may be."""
    net, measured, guessed, grown = changed.job.event_graph, *_guesses(changed)
    if not guessed.any():
        return []
    bounds = np.stack((net.own, measured, measured * grown))
    played = [
        lengths(changed, replace(net, own=np.where(guessed, np.round(end), net.own).astype(np.int64)))
        for end in (bounds.min(axis=0), bounds.max(axis=0))
    ]
    return [Cause("unscaled", *ends(step, *played))]


def _hidden(changed: ChangedJob, step: Steps) -> list[Cause]:
    """Return what comes of a program that hides less of the reductions that the job did not have, down to nothing."""
    high = []
    for graph, after, lasts in zip(changed.job.graphs, changed.after.replays, step, strict=True):
        rows, number = graph.rows, after.steps.number
        adds = np.flatnonzero(rows.named(lambda name: name in _REDUCTIONS))
        place = np.searchsorted(number, rows.step[adds])
        inside = place < len(number)
        reduced = np.bincount(place[inside], graph.own[adds[inside]], len(number))
        high.append(lasts + np.minimum(reduced, after.replayed.overlapped))
    if all(np.array_equal(end, lasts) for end, lasts in zip(high, step, strict=True)):
        return []
    return [Cause("overlap of what is modelled", step, high)]


def _at_once(changed: ChangedJob, step: Steps) -> list[Cause]:
    """Return what comes of compute that is slower beside communication, up to as much as it hides."""
    if not any(slowed.any() for slowed in changed.slowed):
        return []
    net = changed.job.event_graph
    own = np.round(net.own * (1 + np.concatenate(changed.slowed))).astype(np.int64)
    return [Cause("passes at once", *ends(step, lengths(changed, replace(net, own=own))))]


def _guesses(changed: ChangedJob) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Return what rows took as measured, ns; which could not be rescaled, and by how much these may grow [n].

    Rows that data picks may grow as the tokens do, others as all that could be rescaled.
    """
    measured, guessed, picked = [], [], []
    for time, source, makers in zip(changed.times, changed.sources, changed.makers, strict=True):
        before = np.concatenate([changed.played.replays[rank].graph.own for rank in makers])
        reason = np.concatenate([changed.unscaled[rank] for rank in makers])
        known = source >= 0
        measured.append(np.where(known, before[source], time.own))
        guessed.append(known & (reason[source] >= 0))
        picked.append(known & np.isin(reason[source], PICKED))
    was, not_scaled = np.concatenate(measured).astype(np.float64), np.concatenate(guessed)
    works = _Kinds.of(changed).computes & ~not_scaled
    now = np.concatenate([time.own for time in changed.times])
    ratio = float(now[works].sum() / was[works].sum()) if was[works].sum() else 1.0
    return was, not_scaled, np.where(np.concatenate(picked), operator_times.tokens(changed.plan), ratio)
