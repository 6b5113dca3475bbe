"""How much of an optimizer's work a rank does once replicas share it out otherwise.

A program that shares out whole tensors gives one rank more of them than another. Once nothing is shared out, each does
what those that shared did together. Into how uneven parts a program would cut, no trace tells: even ones.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, KERNEL, OPTIMIZER, RUNTIME, THREAD
from lumos_df.schema.plan_words import SHARD_OPTIMIZER
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Sizes


def of_gpu(anchor: RecordedJob, old: Sizes, new: Sizes, rank: int) -> float:
    """Return how many times as long the optimizer's kernels of a rank take, a place in the job's ranks."""
    return _share(anchor, old, new, rank, [_kernels(*each) for each in _ranks(anchor)])


def of_host(anchor: RecordedJob, old: Sizes, new: Sizes, rank: int) -> float:
    """Return the same of what the host does for them."""
    return _share(anchor, old, new, rank, [_calls(*each) for each in _ranks(anchor)])


def host_work(graph: TraceGraph, rank: DescribedRank) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the edges between which the host updates parameters [m], and its calls that do [n]."""
    rows, edges = graph.rows, graph.edges
    updating = (rank.structure.phase == OPTIMIZER) & (rows.thread >= 0)
    # The host's work is what lies between two moments of a thread.
    between = (edges.kind == THREAD) & updating[edges.src] & updating[edges.dst]
    return between, updating & (rows.kind == RUNTIME)


def _share(anchor: RecordedJob, old: Sizes, new: Sizes, rank: int, spent: list[float]) -> float:
    even = old.copies(SHARD_OPTIMIZER) / new.copies(SHARD_OPTIMIZER)
    if even == 1 or new.copies(SHARD_OPTIMIZER) > 1:
        return even
    tp, of_stage = old.tp or 1, (old.tp or 1) * old.replicas
    numbers = [graph.rows.rank for graph in anchor.job.graphs]
    alike = [
        time
        for time, number in zip(spent, numbers, strict=True)
        if (number % tp, number // of_stage) == (numbers[rank] % tp, numbers[rank] // of_stage)
    ]
    return even * float(np.mean(alike)) / spent[rank] if spent[rank] else even


def _ranks(anchor: RecordedJob) -> list[tuple[TraceGraph, DescribedRank]]:
    return list(zip(anchor.job.graphs, anchor.about.ranks, strict=True))


def _kernels(graph: TraceGraph, rank: DescribedRank) -> float:
    rows = graph.rows
    updating = (rank.structure.phase == OPTIMIZER) & (rows.kind == KERNEL) & (rows.family != COMMUNICATION)
    return float(graph.own[updating].sum())


def _calls(graph: TraceGraph, rank: DescribedRank) -> float:
    between, calls = host_work(graph, rank)
    return float(graph.edges.lag[between].sum() + graph.own[calls].sum())
