"""Reductions one after another behind the backward pass, as of metrics: what if one did for all of them."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.hooked_collectives import latency_of
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP, NONE

_REDUCES: Final = "c10d::allreduce_"
"""The operator of PyTorch that reduces; what the program calls itself has no operator around it."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that what a step reduces behind its backward pass be reduced at once."""
    waits, graph = advised.waits, advised.event_graph
    node = graph.base[waits.trace] + waits.row
    known = np.flatnonzero((graph.instance[node] != NONE) & waits.whole & (waits.transfer != NONE))
    called = [_called(rows, waits.row[waits.of_trace(place)]) for place, rows in enumerate(advised.ranks)]
    operator = np.concatenate([np.empty(0, np.int64), *called])
    columns = {}
    for name in ("step", "group", "in_bytes", "collective"):
        values = [getattr(rows, name)[waits.row[waits.of_trace(place)]] for place, rows in enumerate(advised.ranks)]
        columns[name] = np.concatenate([np.empty(0, np.int64), *values]).astype(np.int64)
    step, group, moved, kind = (columns[name][known] for name in columns)
    latency = latency_of(packed(waits.trace[known], group, kind), moved, waits.transfer[known])
    mine = np.flatnonzero((operator[known] >= 0) & ~np.isnan(latency))
    # All but the last of a step and group go.
    sequence = packed(waits.trace[known], group, step)[mine]
    goes = mine[:-1][sequence[1:] == sequence[:-1]] if len(mine) else mine
    if not len(goes):
        return
    gone = known[goes]
    parts = [np.ones(len(rows)) for rows in advised.ranks]
    for place, part in enumerate(parts):
        here = gone[waits.trace[gone] == place]
        part[operator[here]] = 0
    removed = less_work(advised, parts)
    instance, first = np.unique(graph.instance[node[gone]], return_index=True)
    # What grows with the bytes stays, as part of the last one.
    stays = np.maximum(graph.transfer[instance] - np.round(latency[goes[first]]).astype(np.int64), 0)

    def apply(changed: ChangedGraph) -> None:
        removed.apply(changed)
        changed.transfer[instance] = np.minimum(stays, graph.transfer[instance])

    steps = len(advised.steps_ns)
    taken = format_ns(round(graph.transfer[graph.instance[node[gone]]].sum() / steps))
    yield Remedy(
        rule="separate_reductions",
        what=f"{round(len(goes) / steps) + 1} reductions one after another behind the backward pass, {taken} a step "
        "but for the last: reduce one tensor of all, or in fewer steps",
        known=Known.REPLAYED,
        rests_on=format_count(len(goes), "reduction"),
        apply=apply,
    )


def _called(rows: Rows, kernel: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the operator by which the program itself reduces, behind the backward pass, or NONE [kernel]."""
    operator = rows.nearest(rows.named(lambda name: name == _REDUCES), kernel.astype(np.int32))
    around = rows.nearest(rows.kind == CPU_OP, operator.astype(np.int32))
    steps = int(rows.step.max(initial=-1)) + 2
    over = np.full(steps, np.iinfo(np.int64).max)
    nodes = np.flatnonzero((rows.step >= 0) & rows.named(lambda name: name.startswith(NODE)))
    over[rows.step[nodes]] = 0
    np.maximum.at(over, rows.step[nodes], rows.end[nodes])
    outside = (operator >= 0) & (around < 0) & (rows.ts[operator] >= over[rows.step[operator]])
    return np.where(outside, operator, NONE)
