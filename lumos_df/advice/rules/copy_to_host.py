"""Copies to the host that kernels wait for: what if they had a stream of their own."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.copy_to_gpu import beside_kernels, share_without_room
from lumos_df.base.units import format_bytes, format_count
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import MEMCPY


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose a stream of their own for copies to the host on streams of kernels; who waits for them still does."""
    copies = [_copies(graph) for graph in advised.graphs]
    if not any(map(len, copies)):
        return
    kept = np.concatenate(
        [np.full(len(copy), share_without_room(advised, place, copy)) for place, copy in enumerate(copies)]
    )
    node = np.concatenate([base + copy for base, copy in zip(advised.event_graph.base[:-1], copies, strict=True)])
    moved = sum(
        int(np.where(rows.in_bytes[copy] == rows.null, 0, rows.in_bytes[copy]).sum())
        for copy, rows in zip(copies, advised.ranks, strict=True)
    )

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] = np.round(changed.own[node] * kept).astype(np.int64)

    yield Remedy(
        rule="copy_to_host",
        what=f"{format_bytes(moved // len(advised.steps_ns))} a step are copied to the host while kernels wait: copy "
        f"on a stream of its own into pinned memory, with {advised.words.copies_ahead}",
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(node), 'row')} of copies",
        apply=apply,
    )


def _copies(graph: TraceGraph) -> NDArray[np.int32]:
    """Return the copies to the host on streams that run kernels, too."""
    rows, gpu = graph.rows, graph.gpu
    named = rows.named(lambda name: "DtoH" in name or "DeviceToHost" in name)[gpu.row]
    chosen = named & beside_kernels(graph) & gpu.launched & (rows.kind[gpu.row] == MEMCPY)
    copies: NDArray[np.int32] = gpu.row[chosen]
    return copies
