"""What comes of a host that is slower or faster than recorded: as steps differ, as runs do, with kernels at once."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host_spread
from lumos_df.whatif.answer.cause import Cause, Steps, ends, factor, logarithm
from lumos_df.whatif.answer.settled_steps import lengths, recorded_lengths, settled
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations import host_times

HOST: Final = "host"
OTHER_RUN: Final = "another run's host"
KERNELS: Final = "kernels"


def host(changed: ChangedJob, step: Steps) -> Cause:
    """Return what all of the host makes, faster or slower: no less than the recorded steps of the rank differ.

    What came once, and is left out of the changed job, is a cause of its own.
    """
    recorded = [usual_lengths(changed, rank) for rank in changed.ranks]
    spreads = [host_spread.of_steps(of_rank) if len(of_rank) > 1 else 0.0 for of_rank in recorded]
    low, high = _hosts(changed, step, _of_steps(changed))
    return Cause(
        HOST,
        [np.minimum(end, lasts * np.exp(-spread)) for end, lasts, spread in zip(low, step, spreads, strict=True)],
        [np.maximum(end, lasts * np.exp(spread)) for end, lasts, spread in zip(high, step, spreads, strict=True)],
    )


def _host_spread(changed: ChangedJob, rank: int) -> float:
    """Return by how much the host's time of a recorded rank differs between two steps of two runs, as a logarithm."""
    shape = changed.anchor.about.ranks[rank].trace.dims.code
    return host_spread.spread(changed.usual.replays[rank].graph, shape, usual_lengths(changed, rank))


def another_run(changed: ChangedJob, step: Steps) -> Cause:
    """Return what comes of another run's host, whose calls are as much slower or faster as `host_speed` says.

    What steps of one run differ by is in how runs of so many steps differ, and a cause of its own, so it is taken out.
    What an operator computes on the host errs as kernels do, which were held against other runs.
    """
    return Cause(OTHER_RUN, *_hosts(changed, step, _of_runs(changed)))


def together(changed: ChangedJob, step: Steps, causes: list[Cause], computes: NDArray[np.bool_]) -> list[Cause]:
    """Return by how much shorter a step is than each cause alone says where host and kernels are faster at once.

    Where both take about as long, the one that stays holds the step up. Each goes as far as makes both together as
    likely as either is alone: where their effects add up, squares of the causes hold that already, and nothing is left.
    """
    net, part = changed.job.event_graph, float(np.sqrt(0.5))
    (own, lag), (own_of_runs, lag_of_runs) = _of_steps(changed), _of_runs(changed)
    error = np.where(computes, np.concatenate([time.error for time in changed.times]), 0.0)
    # Both causes of the host go as far as each has a part in what they make together.
    far = part * np.array([own.max(), own_of_runs.max()]) / max(float(np.hypot(own.max(), own_of_runs.max())), 1e-12)
    faster = np.exp(-far[0] * own - far[1] * own_of_runs) * factor(error, -1) ** part
    sooner = np.where(net.lag > 0, net.lag * np.exp(-far[0] * lag - far[1] * lag_of_runs), net.lag)
    both = replace(net, own=np.round(net.own * faster).astype(np.int64), lag=np.round(sooner).astype(np.int64))
    alone = [cause.low for cause in causes if cause.name in (HOST, OTHER_RUN, KERNELS)]
    low = []
    for rank, (lasts, shorter) in enumerate(zip(step, lengths(changed, both), strict=True)):
        squares = np.sum([logarithm(each[rank], lasts) ** 2 for each in alone], axis=0)
        more = np.maximum(logarithm(np.minimum(shorter, lasts), lasts) ** 2 - squares, 0.0)
        low.append(lasts * np.exp(-np.sqrt(more)))
    if all(np.array_equal(end, lasts) for end, lasts in zip(low, step, strict=True)):
        return []
    return [Cause("host and kernels at once", low, [*step])]


def _of_steps(changed: ChangedJob) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return by how much rows [n] and edges [m] of all ranks differ as steps do, as logarithms: all of the host."""
    on_host = [~graph.rows.on_gpu for graph in changed.job.graphs]
    return _of_hosts(changed, on_host, [_host_spread(changed, rank) for rank in changed.ranks])


def _of_runs(changed: ChangedJob) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return by how much rows [n] and edges [m] differ as runs do: the host's calls, and what lies between them."""
    apart = []
    for rank in changed.ranks:
        of_steps = _host_spread(changed, rank) ** 2 / len(changed.played.replays[rank].steps.low)
        apart.append(float(np.sqrt(max(changed.between_runs**2 - of_steps, 0.0))))
    return _of_hosts(changed, [~graph.rows.on_gpu & ~host_times.works(graph) for graph in changed.job.graphs], apart)


def _of_hosts(
    changed: ChangedJob, rows: list[NDArray[np.bool_]], factors: list[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return factors of rows [n], and of edges that are work of the host [m], as logarithms; 0 for all others.

    Args:
        changed: the job.
        rows: which rows of each rank.
        factors: by how much, as logarithms, one a rank.
    """
    of_own, of_lag = [], []
    for graph, chosen, apart in zip(changed.job.graphs, rows, factors, strict=True):
        of_own.append(np.where(chosen, apart, 0.0))
        # A GPU that is idle for what nobody recorded waits for a host, too.
        idle = graph.unknown[graph.edges.dst] > 0
        of_lag.append(np.where(host_spread.works_between(graph) | idle, apart, 0.0))
    return np.concatenate(of_own), np.concatenate(of_lag)


def _hosts(
    changed: ChangedJob, step: Steps, factors: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> tuple[Steps, Steps]:
    """Return the steps when rows and edges of the host are faster by their `factors`, and when they are slower."""
    net = changed.job.event_graph
    own, lag = net.own.astype(np.float64), net.lag.astype(np.float64)
    of_own, of_lag = factors
    played = []
    for sign in (-1, 1):
        slower = replace(
            net,
            own=np.round(own * np.exp(sign * of_own)).astype(np.int64),
            lag=np.where(lag > 0, np.round(lag * np.exp(sign * of_lag)), lag).astype(np.int64),
        )
        played.append(lengths(changed, slower))
    return ends(step, *played)


def usual_lengths(changed: ChangedJob, rank: int) -> NDArray[np.int64]:
    """Return how long the recorded steps of a rank are without what came once, ns [s]."""
    played = changed.played.replays[rank]
    with_stalls, usual = (settled(replay, played) for replay in (played, changed.usual.replays[rank]))
    left = (usual.high - usual.low) / np.maximum(with_stalls.high - with_stalls.low, 1)
    lengths: NDArray[np.int64] = np.round(recorded_lengths(played) * left).astype(np.int64)
    return lengths
