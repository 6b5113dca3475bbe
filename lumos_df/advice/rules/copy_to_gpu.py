"""Copies to the GPU that kernels or the host wait for: what if they ran ahead of their use, from pinned memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count
from lumos_df.graph import calls
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, FORWARD, KERNEL, MEMCPY, NONE, OTHER_PHASE, RUNTIME, SYNC_EDGE

_TO_GPU: Final = re.compile(r"HtoD|HostToDevice")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    """Copies of one rank, or of all; numbers are those of the job's nodes and edges."""

    copy: NDArray[np.int64]
    """[k]"""
    moved: NDArray[np.int64]
    """[k] bytes, 0 where they are not known."""
    pageable: NDArray[np.bool_]
    """[k] whether from pageable memory."""
    kept: NDArray[np.float64]
    """[k] share of its time for which the step has no room."""
    call: NDArray[np.int64]
    """[c] calls that issued them."""
    call_ns: NDArray[np.int64]
    """[c] what a call takes that waits for nothing, ns."""
    wait: NDArray[np.int64]
    """Edges by which the host waits for the copies."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to copy ahead, from pinned memory, what is copied to the GPU."""
    parts = [_copies(advised, place) for place in range(len(advised.graphs))]
    copies = _Copies(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _Copies.__slots__})
    if not len(copies.copy):
        return

    def apply(changed: ChangedGraph) -> None:
        changed.wait_no_more(copies.wait)
        changed.own[copies.copy] = np.round(changed.own[copies.copy] * copies.kept).astype(np.int64)
        changed.own[copies.call] = np.minimum(changed.own[copies.call], copies.call_ns)

    words, moved = advised.words, int(copies.moved.sum()) // len(advised.steps_ns)
    what = f"{format_bytes(moved)} a step" if moved else "each batch"
    took = advised.event_graph.own[copies.copy]
    if 2 * took[copies.pageable].sum() > took.sum():
        what += (
            f" copied to the GPU from pageable memory, for which the host waits: pin it ({words.pins}) and copy it "
            f"ahead, with {words.copies_ahead} on a stream of its own"
        )
    else:
        what += " copied to the GPU while kernels wait: copy it ahead, on a stream of its own"
    yield Remedy(
        rule="copy_to_gpu",
        what=what,
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(copies.copy), 'row')} of copies",
        apply=apply,
    )


def _copies(advised: AdvisedJob, place: int) -> _Copies:
    graph = advised.graphs[place]
    rows, gpu = graph.rows, graph.gpu
    pageable = rows.named(lambda name: "HtoD (Pageable" in name)
    # What comes after the forward pass may be of this step, and nobody has it sooner.
    batch = np.isin(advised.phase(place), (FORWARD, OTHER_PHASE)) & rows.named(_TO_GPU.search)
    chosen = pageable[gpu.row] | (batch[gpu.row] & beside_kernels(graph))
    copy = gpu.row[chosen & gpu.launched & (rows.kind[gpu.row] == MEMCPY)]
    call = np.unique(rows.parent[copy])
    kept = share_without_room(advised, place, copy)
    base = int(advised.event_graph.base[place])
    return _Copies(
        copy=base + copy.astype(np.int64),
        pageable=pageable[copy],
        moved=np.where(rows.in_bytes[copy] == rows.null, 0, rows.in_bytes[copy]),
        kept=np.full(len(copy), kept),
        call=base + call.astype(np.int64),
        call_ns=np.full(len(call), _launch_ns(graph)),
        wait=int(advised.edge_base[place]) + _waits(graph, copy, call),
    )


def beside_kernels(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return which rows of the GPU are on streams that run kernels, too [rows of the GPU]."""
    rows, gpu = graph.rows, graph.gpu
    computes = (rows.kind[gpu.row] == KERNEL) & (rows.family[gpu.row] != COMMUNICATION)
    return np.isin(rows.stream[gpu.row], np.unique(rows.stream[gpu.row[computes]]))


def share_without_room(advised: AdvisedJob, place: int, copy: NDArray[np.int32]) -> float:
    """Return the share of some copies' time that a stream of their own has no room for beside the rest of the steps.

    From or to pinned memory a copy takes no longer than the link to the host does.
    """
    rows, replay, hardware = advised.ranks[place], advised.played.replays[place], advised.hardware
    copied, steps = int(rows.dur[copy].sum()), int((replay.high - replay.low).sum())
    lasts = rows.dur[copy].astype(np.float64)
    if hardware is not None:
        pageable = rows.named(lambda name: "Pageable" in name)[copy] & (rows.in_bytes[copy] != rows.null)
        pinned = 1e9 * rows.in_bytes[copy] / hardware.pcie_bandwidth
        lasts = np.where(pageable, np.minimum(lasts, pinned), lasts)
    return max(0.0, float(lasts.sum()) + copied - steps) / max(copied, 1)


def _launch_ns(graph: TraceGraph) -> int:
    """Return what a call takes that only issues: the median of those that launch kernels, ns."""
    rows = graph.rows
    call = rows.parent[(rows.kind == KERNEL) & (rows.parent >= 0)]
    call = call[rows.kind[call] == RUNTIME]
    return int(np.median(rows.dur[call])) if len(call) else 0


def _waits(graph: TraceGraph, copy: NDArray[np.int32], call: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the edges by which calls wait for copies: those that issued them, and what follows in the operator.

    A copy that blocks ends with a synchronisation of its stream, which waits for whatever that was sent before.
    """
    rows, atoms, edges = graph.rows, graph.atoms, graph.edges
    edge = np.flatnonzero(edges.kind == SYNC_EDGE)
    waiting = atoms.of_row[edges.dst[edge]]
    before = np.where(waiting >= 0, atoms.before[waiting], NONE)
    previous = np.where(before >= 0, atoms.row[before], NONE)
    follows = np.isin(previous, call)
    follows &= calls.in_one_operator(rows.kind, rows.parent, np.maximum(previous, 0), edges.dst[edge])
    return edge[follows | np.isin(edges.src[edge], copy) & np.isin(edges.dst[edge], call)]
