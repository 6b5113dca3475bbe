"""Work on float64, which PyTorch does where numbers of NumPy or of Python came in: what if it were float32."""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.switches import multiplied
from lumos_df.schema.codes import CPU_OP, NONE
from lumos_df.schema.dtypes import ElementType, element_type

_HALF: Final = 0.5
"""What float32 takes of the time of float64: half of the bytes, and processors do twice as many of its operations."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose float32 for what works on float64: kernels, or operators of a job without a GPU."""
    on_gpu = any(rows.on_gpu.any() for rows in advised.ranks)
    double = [_double(advised, place) for place in range(len(advised.ranks))]
    if not any(mask.any() for mask in double):
        return
    ranks = list(zip(advised.ranks, double, strict=True))
    works = [
        mask & (rows.on_gpu & (rows.collective == NONE) if on_gpu else rows.kind == CPU_OP) for rows, mask in ranks
    ]
    graph = advised.event_graph
    node = np.flatnonzero(np.concatenate(works) & advised.simulated)
    share = [host.share(mask) for host, mask in zip(advised.host_works, works, strict=True)]
    lag = np.round(np.maximum(graph.lag, 0) * (0 if on_gpu else np.concatenate(share))).astype(np.int64)
    in_step = np.concatenate([rows.step >= 0 for rows in advised.ranks])[node] | (advised.step_number[0] == NONE)
    taken = int(graph.own[node][in_step].sum() + lag.sum())
    if taken < typical_values.LEAST_PCT / 100 * advised.steps_ns.sum():
        return
    kernels = less_work(
        advised, [np.where(mask & rows.on_gpu, _HALF, 1.0) for (rows, _), mask in zip(ranks, works, strict=True)]
    )

    def apply(changed: ChangedGraph) -> None:
        if on_gpu:
            kernels.apply(changed)
            return
        changed.own[node] = multiplied(changed.own[node], np.full(len(node), _HALF))
        changed.lag[:] -= np.minimum((lag * _HALF).astype(np.int64), np.maximum(changed.lag, 0))

    lasts = format_ns(taken // len(advised.steps_ns))
    yield Remedy(
        rule="double_precision",
        what=f"work on float64 takes {lasts} a step: make tensors float32 where they come from NumPy, and look for "
        "torch.float64",
        known=Known.MODELLED,
        rests_on=format_count(len(node), "kernel" if on_gpu else "operator"),
        apply=apply,
    )


def _double(advised: AdvisedJob, rank: int) -> NDArray[np.bool_]:
    """Return which rows of a rank are, or lie in, an operator whose first tensor has elements of float64 [n]."""
    rows = advised.ranks[rank]
    code, words = advised.input_types(rank)
    first = [_first(json.loads(word)) for word in words]
    if not any(kind is not None and kind.name == "float64" for kind in first):
        return np.zeros(len(rows), np.bool_)
    typed = np.array([*(kind is not None for kind in first), False])[code] & (advised.elements(rank) > 0)
    double = np.array([*(kind is not None and kind.name == "float64" for kind in first), False])[code] & typed
    every = np.arange(len(rows), dtype=np.int32)
    at = np.where(typed, every, rows.nearest(typed, every))
    found: NDArray[np.bool_] = np.append(double, False)[at]
    return found


def _first(types: Any) -> ElementType | None:
    """Return the type of the first tensor of some inputs, lists of them among these."""
    if isinstance(types, list):
        return next((kind for kind in map(_first, types) if kind is not None), None)
    return element_type(types) if isinstance(types, str) else None
