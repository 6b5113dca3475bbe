"""Convolutions that try algorithms out in each step: what if they took the one that they end with at once."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import calls
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME, SYNC_EDGE

_CONVOLVES: Final = re.compile(r"aten::(?:(?:cudnn|miopen)_convolution\w*|convolution_backward)$")
"""Operators that call libraries of convolutions; these wait for nothing but what they measure."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that convolutions do nothing of what they do before they last wait for the GPU."""
    found = [_trials(rows) for rows in advised.ranks]
    steps = len(np.unique(advised.step_number))
    in_steps = np.unique(
        np.concatenate([rows.step[call] for rows, (call, _) in zip(advised.ranks, found, strict=True)])
    )
    # What one step has, or few have, comes no more once the sizes are known.
    if len(in_steps) < 2 or 2 * len(in_steps) < steps:
        return
    graph = advised.event_graph
    part = [np.ones(len(rows)) for rows in advised.ranks]
    for of_rank, (call, _) in zip(part, found, strict=True):
        of_rank[call] = 0
    without = less_work(advised, part)
    gone = np.concatenate(part) == 0
    kind = np.concatenate([each.edges.kind for each in advised.graphs])
    within = np.concatenate([_within(rows, operator) for rows, (_, operator) in zip(advised.ranks, found, strict=True)])
    between = gone[graph.src] & gone[graph.dst] & (within[graph.src] == within[graph.dst]) & (graph.lag > 0)
    waits = (kind == SYNC_EDGE) & gone[graph.dst]

    def apply(changed: ChangedGraph) -> None:
        without.apply(changed)
        changed.own[gone] = 0
        changed.lag[between] = 0
        changed.wait_no_more(waits)

    changed = ChangedGraph.of(graph)
    apply(changed)
    on_gpu = np.concatenate([rows.on_gpu for rows in advised.ranks]) & advised.simulated
    tried = format_ns(int((graph.own - changed.own)[on_gpu].sum()) // len(advised.steps_ns))
    yield Remedy(
        rule="algorithm_search",
        what=f"convolutions try algorithms out, {tried} of the GPU a step, and the host waits for each: pad sizes so "
        "that they come again, or leave torch.backends.cudnn.benchmark off",
        known=Known.REPLAYED,
        rests_on=format_count(sum(len(operator) for _, operator in found), "convolution"),
        apply=apply,
    )


def _trials(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the calls that convolutions of the steps make up to the last that waits [k], and which do so [c]."""
    convolves = (rows.kind == CPU_OP) & rows.named(_CONVOLVES.match)
    call = np.flatnonzero(rows.of_kind(RUNTIME) & (rows.step >= 0) & convolves.any())
    operator = rows.nearest(convolves, call.astype(np.int32))
    call, operator = call[operator != NONE], operator[operator != NONE]
    waits = np.isin(calls.roles(rows.kind, rows.name, rows.names)[call], calls.SYNCHRONISES)
    last = np.full(len(rows), np.iinfo(np.int64).min)
    np.maximum.at(last, operator[waits], rows.ts[call[waits]])
    return call[rows.ts[call] <= last[operator]], np.unique(operator[waits])


def _within(rows: Rows, operator: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the nearest of some operators above each row, or NONE [n]."""
    held = np.zeros(len(rows), np.bool_)
    held[operator] = True
    return rows.nearest(held, np.arange(len(rows), dtype=np.int32))
