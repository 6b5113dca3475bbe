"""Collectives that hooks of DDP and FSDP call, of gradients and parameters: what they move, how long, and when."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE
from lumos_df.schema.dtypes import element_type
from lumos_df.schema.words import OPTIMIZER_STEP

BUCKET_BYTES: Final = 25 << 20
"""Gradients that go together: a convention, that of torch's DistributedDataParallel (`bucket_cap_mb`)."""
_KINDS: Final = ("all_reduce", "reduce_scatter")
_HOOK: Final = re.compile(r".*AccumulateGrad|FullyShardedDataParallel\._post_backward|FSDP::post_backward")
"""Around the call that reduces gradients, in DDP and FSDP."""
_GATHERS: Final = re.compile(
    r"FSDP::all_gather\b|FullyShardedDataParallel\._(?:(?:root_)?pre_(?:for|back)ward|post_backward_prefetch)"
)
"""Around the call that gathers parameters, in both versions of FSDP; `FullyShardedDataParallel.forward` is wider."""
_UPDATES: Final = re.compile(rf"{_GATHERS.pattern}|{re.escape(OPTIMIZER_STEP)}")
"""The same, and around what gives all ranks the parameters that each has updated."""
_SIZES: Final = 2
"""It takes so many sizes to tell latency from bandwidth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedCollectives:
    """c collectives, sequence by sequence, by their starts; those of several ranks are one; times ns."""

    instance: NDArray[np.int64]
    """[c] collective of the event graph, or NONE of a kernel by itself."""
    node: NDArray[np.int64]
    """[c] the kernel of the job, of several ranks' the one that started last."""
    member: NDArray[np.int64]
    """[k] all kernels, numbered as nodes of the job."""
    of_member: NDArray[np.int64]
    """[k] collective of each of them."""
    sequence: NDArray[np.int64]
    """[c] one step of one process group, numbered from 0."""
    moved: NDArray[np.int64]
    """[c] bytes that a rank gives to it."""
    element: NDArray[np.int64]
    """[c] size of its elements, bytes; of an unknown type 0."""
    start: NDArray[np.int64]
    """[c] when the last rank came, in the replay, job time."""
    transfer: NDArray[np.int64]
    """[c] from then on to its end."""
    latency: NDArray[np.float64]
    """[c] part of the transfer that does not grow with the bytes, by like ones of the job; NaN where unknown."""

    def __len__(self) -> int:
        """Return c."""
        return len(self.node)

    @property
    def end(self) -> NDArray[np.int64]:
        """When each is over, ns [c]."""
        return self.start + self.transfer

    def of_kernels(self, advised: AdvisedJob) -> NDArray[np.bool_]:
        """Return which communication kernels of the job's waits are of these collectives [kernels]."""
        waits = advised.waits
        return np.isin(advised.event_graph.base[waits.trace] + waits.row, self.member)

    def left(self, changed: ChangedGraph) -> NDArray[np.int64]:
        """Return what the transfers of a changed job take, ns [c]; of a kernel by itself with what it waits."""
        return np.where(self.instance >= 0, np.append(changed.transfer, 0)[self.instance], changed.own[self.node])

    def add(self, changed: ChangedGraph, more: NDArray[np.int64]) -> None:
        """Lengthen the transfers of a changed job by ns [c]; what is below 0 shortens them, at most to nothing."""
        time = np.maximum(self.left(changed) + more, 0)
        matched = self.instance >= 0
        changed.transfer[self.instance[matched]] = time[matched]
        changed.own[self.node[~matched]] = time[~matched]


def gradient_reductions(advised: AdvisedJob) -> HookedCollectives:
    """Find the reductions of gradients: those that the hooks of DDP and FSDP called, with known bytes and transfers."""
    return _called_by(advised, _KINDS, _HOOK)


def parameter_gathers(advised: AdvisedJob) -> HookedCollectives:
    """Find what gathers parameters: what FSDP called for it, with known bytes and transfers."""
    return _called_by(advised, ("all_gather",), _GATHERS)


def parameters_given(advised: AdvisedJob) -> HookedCollectives:
    """Find what gathers parameters, and what gives all ranks those that each has updated (ZeRO), as above."""
    return _called_by(advised, ("all_gather",), _UPDATES)


def _called_by(advised: AdvisedJob, kinds: tuple[str, ...], hook: re.Pattern[str]) -> HookedCollectives:
    waits, graph = advised.waits, advised.event_graph
    of_ranks = (_called(rows, waits.row[waits.of_trace(k)], kinds, hook) for k, rows in enumerate(advised.ranks))
    chosen = np.concatenate([np.empty(0, np.bool_), *of_ranks])
    kernel = np.flatnonzero(chosen & (waits.transfer != NONE))
    trace, row = waits.trace[kernel], waits.row[kernel]
    moved, group, step, kind = (
        np.concatenate([getattr(rows, name)[row[trace == k]] for k, rows in enumerate(advised.ranks)]).astype(np.int64)
        for name in ("in_bytes", "group", "step", "collective")
    )
    element = np.concatenate([element_bytes(advised, k, row[trace == k]) for k in range(len(advised.ranks))])
    node = graph.base[trace] + row
    instance = graph.instance[node].astype(np.int64)
    unit = dense(np.where(instance >= 0, instance, len(graph.members) + np.arange(len(node))))
    start = advised.played.run.start[node]
    _, first = np.unique(unit, return_index=True)
    by_start = np.argsort(start, kind="stable")
    last = np.empty(len(first), np.int64)
    last[unit[by_start]] = by_start
    transfer = np.where(instance >= 0, np.append(graph.transfer, 0)[instance], waits.transfer[kernel])[last]
    like = packed(trace, group, kind)[first]
    sequence = dense(packed(trace, group, step)[first])
    order = np.lexsort((start[last], sequence))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return HookedCollectives(
        instance=instance[last][order],
        node=node[last][order],
        member=node,
        of_member=place[unit],
        sequence=sequence[order],
        moved=moved[last][order],
        element=element[last][order],
        start=start[last][order],
        transfer=transfer[order],
        latency=latency_of(like, moved[last], transfer)[order],
    )


def _called(rows: Rows, kernel: NDArray[np.int64], kinds: tuple[str, ...], hook: re.Pattern[str]) -> NDArray[np.bool_]:
    """Return which communication kernels of a rank are of these kinds, with known bytes, and called by such hooks."""
    kind = rows.of_collective(kinds)[kernel]
    hooks = rows.named(hook.match)
    if not kind.any() or not hooks.any():
        return np.zeros(len(kernel), np.bool_)
    called: NDArray[np.bool_] = kind & (rows.in_bytes[kernel] > 0)
    called[called] = rows.nearest(hooks, kernel[called].astype(np.int32)) >= 0
    return called


def element_bytes(advised: AdvisedJob, place: int, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the size of the elements that some rows of a rank communicate, bytes; of an unknown type 0 [rows]."""
    if not len(row):
        return np.empty(0, np.int64)
    code, words = advised.texts(place, "dtype", row)
    types = [element_type(word) for word in words]
    return np.array([*(kind.bytes if kind else 0 for kind in types), 0], np.int64)[code]


def latency_of(like: NDArray[np.int64], moved: NDArray[np.int64], transfer: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what transfers of no bytes would take, by those that are alike, ns [c]; NaN of a single size."""
    latency = np.full(len(like), np.nan)
    for which in np.unique(like):
        alike = like == which
        sizes = np.unique(moved[alike])
        if len(sizes) < _SIZES:
            continue
        usual = np.array([np.median(transfer[alike & (moved == size)]) for size in sizes])
        # Errors of a measurement grow with the time: each counts by its share.
        per_byte, fixed = np.polyfit(sizes, usual, 1, w=1 / np.maximum(usual, 1))
        latency[alike] = max(fixed, 0.0) if per_byte > 0 else usual.min()
    return latency
