"""Gradients reduced in every micro-batch of a step: what if they were reduced once, for the optimizer runs once."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import DDP_FORWARD
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.host_collectives import host_collectives, waited
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import ANNOTATION, CPU_OP
from lumos_df.schema.words import OPTIMIZER_STEP


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that DistributedDataParallel reduce gradients behind the last of several passes alone."""
    found = [_unneeded(rows) for rows in advised.ranks]
    if not all(len(row) for row, _ in found):
        return
    part = [np.ones(len(rows)) for rows in advised.ranks]
    lag = []
    for of_rank, rows, host, (row, _) in zip(part, advised.ranks, advised.host_works, found, strict=True):
        issues = rows.nearest(rows.named(_issues) & (rows.kind == CPU_OP), row.astype(np.int32))
        of_rank[row[rows.on_gpu[row]]] = 0
        of_rank[issues[issues >= 0]] = 0
        lag.append(waited(host, row[~rows.on_gpu[row]]))
    kernels, waits = less_work(advised, part), np.concatenate(lag)

    def apply(changed: ChangedGraph) -> None:
        kernels.apply(changed)
        changed.lag[:] -= np.minimum(waits, np.maximum(changed.lag, 0))

    changed, graph = ChangedGraph.of(advised.event_graph), advised.event_graph
    apply(changed)
    less = int(
        (graph.own - changed.own)[graph.order].sum() + (np.maximum(graph.lag, 0) - np.maximum(changed.lag, 0)).sum()
    )
    on_gpu = any(rows.on_gpu.any() for rows in advised.ranks)
    waits_for = "" if on_gpu else f"which takes {format_ns(less // len(advised.steps_ns))}, "
    passes = max(most for _, most in found)
    yield Remedy(
        rule="gradient_accumulation",
        what=f"gradients are reduced {passes} times a step, {waits_for}and the optimizer runs once: model.no_sync() "
        "around all micro-batches but the last",
        known=Known.REPLAYED,
        rests_on=format_count(sum(len(row) for row, _ in found), "reduction") + " that would go",
        view="collective_summary" if on_gpu else "",
        apply=apply,
    )


def _issues(name: str) -> bool:
    return name.startswith("c10d::allreduce")


def _unneeded(rows: Rows) -> tuple[NDArray[np.int64], int]:
    """Return the reductions of a rank that a later pass of the step does again [k], and how many passes do at most.

    A step counts where the optimizer runs once, and all passes that reduce anything reduce as often as many bytes.
    """
    nothing = np.empty(0, np.int64), 0
    forward = np.flatnonzero(
        (rows.kind == ANNOTATION) & rows.named(lambda text: text == DDP_FORWARD) & (rows.thread >= 0)
    )
    optimizer = (
        (rows.kind == ANNOTATION) & rows.named(lambda text: text.startswith(OPTIMIZER_STEP)) & (rows.thread >= 0)
    )
    reduces = rows.of_collective(("all_reduce",))
    on_gpu = np.flatnonzero(reduces & rows.on_gpu)
    row = np.concatenate((on_gpu, host_collectives(rows)))
    row = row[reduces[row] & (rows.step[row] >= 0)]
    if not len(forward) or not len(row):
        return nothing
    forward = forward[np.argsort(rows.ts[forward], kind="stable")]
    issued = rows.ts[np.where(rows.on_gpu[row], rows.parent[row], row)]
    place = np.searchsorted(rows.ts[forward], issued, side="right") - 1
    row, place = row[place >= 0], place[place >= 0]
    # Passes of a step, each with what it reduces.
    step = rows.step[forward]
    count = np.bincount(place, minlength=len(forward))
    moved = np.bincount(place, np.maximum(rows.in_bytes[row], 0), len(forward))
    reducing = np.flatnonzero((count > 0) & (step >= 0))
    _, of_step = np.unique(step[reducing], return_inverse=True)
    last = np.zeros(int(of_step.max(initial=-1)) + 1, np.int64)
    last[of_step] = reducing
    alike = (count[reducing] == count[last[of_step]]) & (moved[reducing] == moved[last[of_step]])
    once = np.bincount(np.maximum(rows.step[optimizer], 0), minlength=int(step.max()) + 1)[step[reducing]] == 1
    passes = np.bincount(of_step)
    whole = np.bincount(of_step, alike & once) == passes
    again = reducing[(whole & (passes > 1))[of_step] & (reducing != last[of_step])]
    return row[np.isin(place, again)], int(passes[whole].max(initial=0))
