"""A GPU that waits for launches: what if the operators of forward and backward passes came as CUDA graphs."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.callers import callers
from lumos_df.advice.kernel_calls import KernelCalls
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules import late_rank
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import calls, typical_values
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import around, inherited
from lumos_df.schema.codes import (
    BACKWARD,
    COMMUNICATION,
    CPU_OP,
    FORWARD,
    KERNEL,
    MEMSET,
    NONE,
    RECOMPUTE,
    RUNTIME,
    SYNC_EDGE,
    THREAD,
)

_PASSES: Final = (FORWARD, BACKWARD, RECOMPUTE)
_NAMED: Final = 2
"""Operators that advice names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launching:
    """Host time of one rank that the replay of a CUDA graph does not take, ns."""

    calls: NDArray[np.int64]
    """Rows of the calls."""
    own: NDArray[np.int64]
    """What each of them takes."""
    launches: int
    """How many of them launch a kernel or clear."""
    lag: NDArray[np.int64]
    """[edges of the rank] host work between the calls."""
    alike: bool
    """Whether two of the steps launch the same, or there is one step."""
    breaks: Counter[str]
    """What waits for the GPU between these calls, and how often: no graph can be captured across it."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to capture what forward and backward passes launch one by one."""
    launching = [_launching(advised, rank) for rank in range(len(advised.graphs))]
    first_row = advised.event_graph.base[:-1]
    calls = np.concatenate([base + part.calls for base, part in zip(first_row, launching, strict=True)])
    own, lag = (np.concatenate([getattr(part, name) for part in launching]) for name in ("own", "lag"))
    launches, steps = sum(part.launches for part in launching), len(advised.steps_ns)
    taken = _taken(advised, own, lag)
    if taken < typical_values.LEAST_PCT / 100 * advised.steps_ns.sum():
        return

    late, excess = advised.once(late_rank.late_ranks)
    apply = partial(_capture, calls=calls, own=own, lag=lag)
    several = len(np.unique(advised.step_number)) > 1
    if several and len(late) and 2 * _gain_ns(advised, excess.take_from) > _gain_ns(advised, apply):
        # Most of it goes once late ranks launch as fast as the others, which needs no graphs. One step tells no chance.
        own, lag = np.maximum(own - excess.own[calls], 0), np.maximum(lag - excess.lag, 0)
        apply = partial(_capture, calls=calls, own=own, lag=lag)
        taken = _taken(advised, own, lag)
    # A graph launches what it was captured with, and nothing in it waits for the GPU.
    breaks = Counter[str]()
    for part in launching:
        breaks += part.breaks
    named = ", ".join(name for name, _ in breaks.most_common(_NAMED)) + (", ..." if len(breaks) > _NAMED else "")
    first = [f"take out {named}, where the host waits and no graph can be captured"] if breaks else []
    first += [] if all(part.alike for part in launching) else ["pad sizes, as no two steps have the same"]
    capture = "; ".join([*first, "then capture" if first else "capture"])
    yield Remedy(
        rule="launch_bound",
        what=f"the host takes {format_ns(taken // steps)} to launch "
        f"{format_count(round(launches / steps), 'kernel')} a step: {capture} forward and backward as "
        f"{advised.words.captures}",
        known=Known.REPLAYED,
        rests_on=f"launches of {format_count(launches, 'kernel')} on {format_count(len(launching), 'rank')}",
        apply=apply,
    )


def _capture(
    changed: ChangedGraph, *, calls: NDArray[np.int64], own: NDArray[np.int64], lag: NDArray[np.int64]
) -> None:
    changed.own[calls] -= np.minimum(own, changed.own[calls])
    changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))


def _taken(advised: AdvisedJob, own: NDArray[np.int64], lag: NDArray[np.int64]) -> int:
    """Return what launching takes without the profiler, ns; `lag`: [edges]."""
    return int(own.sum() + advised.without_profiler(replace(ChangedGraph.of(advised.event_graph), lag=lag)).lag.sum())


def _gain_ns(advised: AdvisedJob, apply: Callable[[ChangedGraph], None]) -> float:
    """Return how much shorter the steps of a changed job are in the mean, ns."""
    changed = ChangedGraph.of(advised.event_graph)
    apply(changed)
    return float((advised.steps_ns - advised.changed_steps_ns(changed))[advised.counted].mean())


def _launching(advised: AdvisedJob, rank: int) -> _Launching:
    graph, host = advised.graphs[rank], advised.host_works[rank]
    rows, edges = graph.rows, graph.edges
    # Gradients are accumulated, and collectives of them begun, outside of what frameworks capture.
    outside = inherited(rows.named(lambda name: "AccumulateGrad" in name) | loader_rows(rows), rows.parent)
    phase = np.isin(advised.phase(rank), _PASSES)
    inside = phase & ~outside & (rows.nearest(rows.kind == CPU_OP, np.arange(len(rows), dtype=np.int32)) >= 0)
    role = calls.roles(rows.kind, rows.name, rows.names)
    waits = np.zeros(len(rows), np.bool_)
    waits[edges.dst[edges.kind == SYNC_EDGE]] = True
    launched = graph.gpu.row[graph.gpu.launched]
    work = np.isin(rows.kind[launched], (KERNEL, MEMSET)) & (rows.family[launched] != COMMUNICATION)
    launch, other = np.zeros((2, len(rows)), np.bool_)
    launch[rows.parent[launched[work]]] = True
    other[rows.parent[launched[~work]]] = True
    other |= waits | (role == calls.GRAPH_LAUNCH) | (role == calls.RELEASE)
    launch &= inside & ~other
    captured = (rows.kind == CPU_OP) & ~outside & around(launch, rows.parent) & ~around(other, rows.parent)
    # What operators call besides launching goes with them.
    call = (rows.kind == RUNTIME) & inside & ~other & (launch | inherited(captured, rows.parent))
    between = call[edges.src] & call[edges.dst] & (edges.kind == THREAD)
    share = np.where(between, 1 - host.share(outside), host.share(captured))
    lag = np.round(np.maximum(edges.lag, 0) * share).astype(np.int64)
    rows_of_calls = np.flatnonzero(call)
    # A captured allocator has a pool of its own, and gives nothing back.
    waiting = np.flatnonzero((waits & (role != calls.RELEASE) | np.isin(role, calls.SYNCHRONISES)) & inside)
    made_by = rows.name[callers(rows, waiting[_between(rows, waiting, np.flatnonzero(launch))])]
    return _Launching(
        calls=rows_of_calls,
        own=_usual(graph.own[rows_of_calls]),
        launches=int(np.count_nonzero(launch)),
        lag=_usual(lag),
        alike=_alike(advised.kernel_calls[rank], launch),
        breaks=Counter(rows.names[name] for name in made_by.tolist()),
    )


def _between(rows: Rows, row: NDArray[np.int64], launch: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows come after the first launch of their step, and before its last [rows]."""
    steps = int(rows.step.max(initial=NONE)) + 2
    begin, end = np.full(steps, np.iinfo(np.int64).max), np.full(steps, np.iinfo(np.int64).min)
    np.minimum.at(begin, rows.step[launch] + 1, rows.ts[launch])
    np.maximum.at(end, rows.step[launch] + 1, rows.ts[launch])
    of_step = rows.step[row] + 1
    between: NDArray[np.bool_] = (begin[of_step] < rows.ts[row]) & (rows.ts[row] < end[of_step])
    return between


def _alike(kernels: KernelCalls, launch: NDArray[np.bool_]) -> bool:
    """Return whether two steps of a rank, or all where there is one, make these launches with the same shapes."""
    rows = kernels.trace.rows
    call = rows.parent[kernels.row]
    chosen = (call >= 0) & launch[call] & (rows.step[call] >= 0)
    # A number for every call; that the sums of two other steps are the same is as unlikely as it is harmless.
    number = np.random.default_rng(0).integers(1 << 62, size=len(kernels.calls) + 1)
    _, step = np.unique(rows.step[call[chosen]], return_inverse=True)
    total = np.zeros(int(step.max(initial=-1)) + 1, np.int64)
    np.add.at(total, step, number[kernels.call[chosen]])
    return len(total) <= 1 or len(np.unique(total)) < len(total)


def _usual(ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return times of which each that takes far longer than most is cut to what others take.

    It did something else besides launching: it loaded code, tried algorithms out, slept.
    """
    taken = ns[ns > 0]
    if len(taken) < typical_values.FEW:
        return np.zeros(len(ns), np.int64)
    return np.minimum(ns, round(typical_values.highest_usual(taken)))
