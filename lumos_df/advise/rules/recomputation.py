"""Activations computed again in the backward pass although memory has room for them: what if they were kept."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df.advise.advised_job import AdvisedJob
from lumos_df.advise.remedy import Known, Remedy
from lumos_df.advise.removed_work import removed_work
from lumos_df.base.units import format_bytes, format_count
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.rows import Rows, about, coded
from lumos_df.schema import PHASES
from lumos_df.schema.codes import RECOMPUTE

_NODE: Final = "autograd::engine::evaluate_function"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What a rank's memory holds and would hold, bytes."""

    reserved: int
    """Most that the allocator had."""
    kept: int
    """What the most recomputations of a step leave for the backward pass: so much would be held at once."""
    total: int
    """The GPU has."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to keep activations where every rank is known to have room for all of a step."""
    if not all(_memory_events(advised, place).is_file() for place in range(len(advised.graphs))):
        return
    marked = [_recomputed(advised, place) for place in range(len(advised.graphs))]
    if not any(of_rank.any() for of_rank in marked):
        return
    found = [_memory(advised, place, of_rank) for place, of_rank in enumerate(marked)]
    known = [memory for memory in found if memory is not None]
    if len(known) < len(found) or any(memory.reserved + memory.kept > memory.total for memory in known):
        return
    fullest = max(known, key=lambda memory: memory.reserved + memory.kept - memory.total)
    kernels = sum(
        int(np.count_nonzero(of_rank & rows.on_gpu)) for of_rank, rows in zip(marked, advised.ranks, strict=True)
    )
    yield Remedy(
        rule="recomputation",
        what=f"activations are computed again although memory has room: keep them, {format_bytes(fullest.kept)} on top "
        f"of {format_bytes(fullest.reserved)}, of {format_bytes(fullest.total)}",
        known=Known.REPLAYED,
        rests_on=f"{format_count(kernels, 'row')} of recomputation on GPUs",
        command="report --view breakdown",
        apply=removed_work(advised, marked).apply,
    )


def _memory_events(advised: AdvisedJob, place: int) -> Path:
    return trace_folder(advised.corpus, advised.ranks[place].trace_id) / "memory_events.parquet"


def _recomputed(advised: AdvisedJob, place: int) -> NDArray[np.bool_]:
    """Return which rows of a rank are recomputation [n]."""
    code, words = coded(advised.columns(place, "phase")["phase"].dictionary_encode())
    return np.array([*(word == PHASES[RECOMPUTE] for word in words), False])[code]


def _memory(advised: AdvisedJob, place: int, recomputed: NDArray[np.bool_]) -> _Memory | None:
    """Return what is known of a rank's memory; None where something is not."""
    rows = advised.ranks[place]
    total = _total_bytes(advised, place)
    events = pq.ParquetFile(_memory_events(advised, place)).read()
    events = events.filter(pc.equal(events["device_type"], "gpu"))
    if total is None or not events.num_rows or events["reserved_bytes"].null_count == events.num_rows:
        return None
    change, at = events["change_bytes"].to_numpy(), events["ts"].to_numpy()
    begin, end, step = _recomputations(rows, recomputed)
    order = np.argsort(at, kind="stable")
    taken = np.append(0, np.cumsum(change[order]))
    left = taken[np.searchsorted(at[order], end)] - taken[np.searchsorted(at[order], begin)]
    _, number = np.unique(step, return_inverse=True)
    kept = int(np.bincount(number, np.maximum(left, 0)).max(initial=0))
    # Recomputation that is seen to leave nothing is none, or its allocations were not recorded.
    return _Memory(reserved=int(pc.max(events["reserved_bytes"]).as_py()), kept=kept, total=total) if kept else None


def _recomputations(
    rows: Rows, recomputed: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Return begin, end and step of what each node of the backward pass computes again [recomputations]."""
    is_node = np.array([*(name.startswith(_NODE) for name in rows.names), False])
    row = np.flatnonzero(recomputed & ~rows.on_gpu).astype(np.int32)
    node = rows.nearest(is_node[rows.name], row)
    row, node = row[node >= 0], node[node >= 0]
    node, number = np.unique(node, return_inverse=True)
    end = rows.ts[node]
    np.maximum.at(end, number, rows.end[row])
    return rows.ts[node], end, rows.step[node]


def _total_bytes(advised: AdvisedJob, place: int) -> int | None:
    """Return the memory of a rank's GPU as its trace states it, else by the GPU's name; None where neither tells."""
    stated = about(advised.corpus, advised.ranks[place].trace_id, "metadata")["metadata"]
    devices = json.loads(stated or "{}").get("deviceProperties", [])
    sizes = [device.get("totalGlobalMem") for device in devices if isinstance(device, dict)]
    known = [int(size) for size in sizes if isinstance(size, (int, float)) and size > 0]
    if known:
        return min(known)
    return None if advised.hardware is None else int(advised.hardware.hbm_bytes)
