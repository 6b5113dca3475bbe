"""A host that hardly keeps up with the GPU, whose memory has room: what if each step took twice the samples.

The same calls then launch kernels that take at most twice as long, and one reduction of the gradients and one update of
the parameters is for twice the samples. Time is that of as many samples as before: what is fixed takes half.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.gpu_memory import GpuMemory, gpu_memory
from lumos_df.advice.hooked_collectives import gradient_reductions
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_ns
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import COMMUNICATION, HANDOFF, OPTIMIZER, OTHER_PHASE, THREAD

_ACCUMULATES: Final = "AccumulateGrad"


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose twice the samples where that spares time of the host, and memory has room on every rank."""
    memory = gpu_memory(advised)
    if not memory:
        return
    more = [_activations(*of_rank) for of_rank in zip(memory, advised.played.replays, strict=True)]
    if not all(more) or any(of.reserved + rise > of.total for of, rise in zip(memory, more, strict=True)):
        return
    graph, ranks = advised.event_graph, range(len(advised.graphs))
    gpu = np.concatenate([rows.on_gpu for rows in advised.ranks])
    own = np.concatenate([_host_rows(advised, place) for place in ranks])
    lag = np.concatenate([_lags(advised, place) for place in ranks])

    def host(changed: ChangedGraph) -> None:
        changed.own[own] -= changed.own[own] // 2
        changed.lag[:] -= np.round(np.maximum(changed.lag, 0) * lag / 2).astype(np.int64)

    update = np.concatenate([_of_parameters(advised, place) for place in ranks])
    reductions = gradient_reductions(advised)

    def apply(changed: ChangedGraph) -> None:
        host(changed)
        changed.own[update] -= changed.own[update] // 2
        reductions.add(changed, -(reductions.left(changed) // 2))

    # What is fixed on the GPU speaks for larger batches in any job: the host has to be most of it.
    if _gain(advised, host) <= _gain(advised, apply) / 2:
        return
    most = int(np.argmax(more))
    works, to_host = np.flatnonzero(own & advised.simulated), ~gpu[graph.dst]
    spared = (graph.own[works] // 2).sum() + np.round(np.maximum(graph.lag, 0) * lag / 2)[to_host].sum()
    yield Remedy(
        rule="larger_micro_batch",
        what="the GPU waits for the host: take twice the samples a micro-batch, for which it works once, not twice, "
        f"{format_ns(round(spared / len(advised.steps_ns)))} a step less of its work for as many samples; "
        f"memory has room, {format_bytes(more[most])} beside {format_bytes(memory[most].reserved)}",
        known=Known.REPLAYED,
        rests_on=f"{np.count_nonzero(own):,} rows of the host",
        apply=apply,
    )


def _gain(advised: AdvisedJob, change: Callable[[ChangedGraph], None]) -> float:
    changed = ChangedGraph.of(advised.event_graph)
    change(changed)
    return float((advised.steps_ns - advised.changed_steps_ns(changed)).mean())


def _activations(memory: GpuMemory, replay: Replay) -> int:
    """Return what a step takes on top of what it begins with, at most, bytes."""
    steps = replay.steps
    step = np.searchsorted(steps.low, memory.at, side="right") - 1
    inside = (step >= 0) & (memory.at < steps.high[step])
    rise = memory.taken(memory.at[inside] + 1) - memory.taken(steps.low)[step[inside]]
    return int(rise.max(initial=0))


def _host_rows(advised: AdvisedJob, place: int) -> NDArray[np.bool_]:
    """Return which rows of a rank's host are the model's work, whatever the samples [n]."""
    rows, phase = advised.ranks[place], advised.phase(place)
    works: NDArray[np.bool_] = ~rows.on_gpu & (phase >= 0) & (phase != OTHER_PHASE)
    return works


def _of_parameters(advised: AdvisedJob, place: int) -> NDArray[np.bool_]:
    """Return which GPU rows of a rank work on parameters or gradients, as long for any samples [n].

    They are the optimizer's, and those of hooks that take a gradient into its bucket.
    """
    rows = advised.ranks[place]
    accumulates = rows.named(lambda name: _ACCUMULATES in name)
    hook = inherited(accumulates, rows.parent) & (rows.family != COMMUNICATION)
    works: NDArray[np.bool_] = rows.on_gpu & (hook | (advised.phase(place) == OPTIMIZER))
    return works


def _lags(advised: AdvisedJob, place: int) -> NDArray[np.float64]:
    """Return the share of each edge's lag that is such work, or goes with every launch [m]."""
    kind = advised.graphs[place].edges.kind
    share = advised.host_works[place].share(_host_rows(advised, place))
    return np.where(np.isin(kind, (THREAD, HANDOFF)), share, 1.0)
