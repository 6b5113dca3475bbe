"""Activations computed again in the backward pass although memory has room for them: what if they were kept."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.gpu_memory import GpuMemory, gpu_memory
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_bytes, format_count, format_ns
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP, NONE, RECOMPUTE


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to keep activations where every rank is known to have room for all of a step.

    Of hosts without a GPU no trace tells the room: the advice says so.
    """
    if not any(rows.on_gpu.any() for rows in advised.ranks):
        yield from _on_hosts(advised)
        return
    memory = gpu_memory(advised)
    if not memory:
        return
    marked = [advised.phase(place) == RECOMPUTE for place in range(len(advised.graphs))]
    kept = [_kept(*of_rank) for of_rank in zip(memory, advised.ranks, marked, strict=True)]
    # Recomputation that is seen to leave nothing is none, or its allocations were not recorded.
    if not all(kept) or any(of.reserved + more > of.total for of, more in zip(memory, kept, strict=True)):
        return
    most = int(np.argmax(kept))
    again = np.concatenate([of_rank & rows.on_gpu for of_rank, rows in zip(marked, advised.ranks, strict=True)])
    takes = format_ns(round(advised.event_graph.own[again].sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="recomputation",
        what=f"activations are computed again, {takes} a step, although memory has room: keep "
        f"{format_bytes(kept[most])} of them beside {format_bytes(memory[most].reserved)}, of "
        f"{format_bytes(memory[most].total)}",
        known=Known.REPLAYED,
        rests_on=f"{format_count(int(np.count_nonzero(again)), 'row')} of recomputation on GPUs",
        apply=less_work(advised, [np.where(of_rank, 0.0, 1.0) for of_rank in marked]).apply,
    )


def _on_hosts(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose the same to a job without a GPU, if its memory has room."""
    call, run = [], []
    for place, rows in enumerate(advised.ranks):
        again = (advised.phase(place) == RECOMPUTE) & (rows.kind == CPU_OP)
        row = np.flatnonzero(again & ~np.append(again, False)[rows.parent])
        row = row[np.lexsort((rows.ts[row], rows.thread[row]))]
        # All that runs within a node of the backward pass is one stretch.
        node = rows.nearest(rows.named(lambda name: name.startswith(NODE)), row.astype(np.int32))
        call.append(row)
        run.append(np.cumsum(np.diff(node, prepend=NONE) != 0))
    count = sum(map(len, call))
    if not count:
        return
    taken, apply = without_stretches(advised, call, run)
    yield Remedy(
        rule="recomputation",
        what=f"activations are computed again, {format_ns(round(taken / len(advised.steps_ns)))} a step: keep them, if "
        "the host's memory has room",
        known=Known.REPLAYED,
        rests_on=f"{format_count(count, 'operator')} of recomputation",
        apply=apply,
    )


def _kept(memory: GpuMemory, rows: Rows, recomputed: NDArray[np.bool_]) -> int:
    """Return what the recomputations of a step leave for the backward pass: so much would be held at once, bytes."""
    is_node = rows.named(lambda name: name.startswith(NODE))
    row = np.flatnonzero(recomputed & ~rows.on_gpu).astype(np.int32)
    node = rows.nearest(is_node, row)
    row, node = row[node >= 0], node[node >= 0]
    node, number = np.unique(node, return_inverse=True)
    end = rows.ts[node]
    np.maximum.at(end, number, rows.end[row])
    left = memory.taken(end) - memory.taken(rows.ts[node])
    _, step = np.unique(rows.step[node], return_inverse=True)
    return int(np.bincount(step, np.maximum(left, 0)).max(initial=0))
