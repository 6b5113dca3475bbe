"""Buffers that DistributedDataParallel sends to all ranks before each forward pass: what if it did not."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import DDP_FORWARD
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import ANNOTATION, CPU_OP

_SENDS: Final = "c10d::broadcast_"
_PACKS: Final = ("aten::flatten_dense_tensors", "record_param_comms", "aten::unflatten_dense_tensors", "aten::copy_")
"""What puts buffers together before, waits for NCCL, and takes them apart after it."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that each rank keep its own buffers."""
    found = [_sends(rows) for rows in advised.ranks]
    sent = sum(
        int(np.count_nonzero(rows.named(lambda text: text == _SENDS)[row]))
        for rows, (row, _) in zip(advised.ranks, found, strict=True)
    )
    if not sent:
        return
    on_gpu = any(rows.on_gpu.any() for rows in advised.ranks)
    taken, apply = without_stretches(advised, [row for row, _ in found], [run for _, run in found])
    takes = "" if on_gpu else f", which takes {format_ns(taken // len(advised.steps_ns))} a step"
    yield Remedy(
        rule="buffer_broadcast",
        what=f"buffers go to all ranks before each forward pass{takes}: broadcast_buffers=False, where ranks may keep "
        "statistics of their own, or nothing changes them",
        known=Known.REPLAYED,
        rests_on=format_count(sent, "broadcast"),
        view="collective_summary" if on_gpu else "",
        apply=apply,
    )


def _sends(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the operators that send buffers, in their order, and the run of each, both [k].

    A forward pass begins with them. What is broadcast behind other operators is the program's own.
    """
    forward = (rows.kind == ANNOTATION) & rows.named(lambda text: text == DDP_FORWARD) & (rows.thread >= 0)
    operator = rows.kind == CPU_OP
    row = np.flatnonzero(operator & ~np.append(operator, False)[rows.parent])
    # Python functions lie between, where stacks were recorded.
    around = rows.nearest(forward, row.astype(np.int32))
    order = np.lexsort((rows.ts[row], around))
    row, around = row[order][around[order] >= 0], around[order][around[order] >= 0]
    run = runs_of(around, rows.named(lambda text: text in {_SENDS, *_PACKS})[row])
    sends = rows.named(lambda text: text == _SENDS)[row] & (run >= 0)
    first = np.ones(len(row), np.bool_)
    first[1:] = around[1:] != around[:-1]
    chosen = np.isin(run, np.intersect1d(run[sends], run[first]))
    return row[chosen], run[chosen]
