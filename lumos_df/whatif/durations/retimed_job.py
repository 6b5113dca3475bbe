"""A job whose collectives take what they take after a change."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.job import Job
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE
from lumos_df.schema.collective_kinds import COLLECTIVES
from lumos_df.whatif.durations import moved_law, operator_times, transfers
from lumos_df.whatif.durations.kernel_times import RESCALED
from lumos_df.whatif.job.recorded_job import RecordedJob


def retimed(
    anchor: RecordedJob, change: operator_times.PlannedChange, job: Job, times: list[operator_times.Times]
) -> tuple[Job, NDArray[np.float64], list[transfers.Retimed], list[str], str | None]:
    """Return the job with its new durations, the error of each collective, the collectives, and what to say of them.

    Last comes the GPU that stands in for its links, where one does.
    """
    instances = job.instances
    transfer = instances.transfer.copy() if instances else np.empty(0, np.int64)
    error = np.full(len(transfer), moved_law.KEPT_ERROR)
    each, warnings, stand_in = transfers.retimed(anchor, change, job) if change.moves_transfers else ([], [], None)
    for rank, (time, after) in enumerate(zip(times, each, strict=False)):
        touched = after.row[after.delta != 0]
        time.own[after.row] = np.where(after.gone, 0, np.maximum(time.own[after.row] + after.delta, 0))
        time.provenance[touched] = RESCALED
        time.error[after.row] = _of_whole(after, time.own[after.row])
        if instances:
            of_row = np.zeros((2, len(time.own)))
            of_row[:, after.row] = after.delta, np.arange(len(after.row))
            mine = np.flatnonzero((instances.trace == rank) & np.isin(instances.row, after.row))
            of, (delta, place) = instances.instance[mine], of_row[:, instances.row[mine]].astype(np.int64)
            transfer[of] = np.maximum(instances.transfer[of] + delta, 0)
            lasts = np.zeros(len(after.row), np.int64)
            lasts[place] = transfer[of]
            error[of] = _of_whole(after, lasts)[place]
    graphs = [
        graph if time.own is graph.own or np.array_equal(time.own, graph.own) else replace(graph, own=time.own)
        for graph, time in zip(job.graphs, times, strict=True)
    ]
    for rank, after in enumerate(each):
        graphs[rank] = _renamed(graphs[rank], after)
    if instances and any(after.gone.any() for after in each):
        instances, left = _without(instances, each)
        transfer, error = transfer[left], error[left]
    same = all(new is old for new, old in zip(graphs, job.graphs, strict=True))
    if same and (instances is None or np.array_equal(transfer, instances.transfer)):
        return job, error, each, warnings, stand_in
    instances = replace(instances, transfer=transfer) if instances else None
    return Job(graphs, instances, job.event_graph), error, each, warnings, stand_in


def _of_whole(after: transfers.Retimed, lasts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the relative errors of what lasts so many ns: the rest of a kernel is waiting, which stays [k].

    Where nothing tells both apart, all may move.
    """
    moving = np.where(after.unscaled, 1.0, np.clip(after.transfer / np.maximum(lasts, 1), 0.0, 1.0))
    part = after.error * moving
    return np.where(part < 0, part, np.maximum(part, moved_law.KEPT_ERROR))


def _without(instances: Instances, each: list[transfers.Retimed]) -> tuple[Instances, NDArray[np.int64]]:
    """Return the collectives without members that run no more, and which of them are left."""
    kept = np.ones(len(instances.row), np.bool_)
    for rank, after in enumerate(each):
        kept &= (instances.trace != rank) | ~np.isin(instances.row, after.row[after.gone])
    left, number = np.unique(instances.instance[kept], return_inverse=True)
    shorter = of_members(instances, np.flatnonzero(kept))
    return replace(
        shorter, instance=number.reshape(-1).astype(np.int32), transfer=instances.transfer[left]
    ), left.astype(np.int64)


def _renamed(graph: TraceGraph, after: transfers.Retimed) -> TraceGraph:
    """Return a graph whose collectives are of the kinds that they become, and those that run no more of none."""
    use = np.flatnonzero((after.kind != NONE) & ~after.gone)
    if not len(use) and not after.gone.any():
        return graph
    rows = graph.rows
    kinds, which = np.unique(after.kind[use], return_inverse=True)
    words = [COLLECTIVES[kind] for kind in kinds.tolist()]
    collective, name = rows.collective.copy(), rows.name.copy()
    collective[after.row[use]] = len(rows.collectives) + which
    name[after.row[use]] = len(rows.names) + which
    collective[after.row[after.gone]] = NONE
    return replace(
        graph,
        rows=replace(
            rows,
            collective=collective,
            name=name,
            collectives=[*rows.collectives, *words],
            names=[*rows.names, *(f"{word} (rescaled)" for word in words)],
        ),
    )


def of_members(instances: Instances, member: NDArray[np.int64]) -> Instances:
    """Return the collectives with some of their members alone [k]."""
    return replace(
        instances, instance=instances.instance[member], trace=instances.trace[member], row=instances.row[member]
    )
