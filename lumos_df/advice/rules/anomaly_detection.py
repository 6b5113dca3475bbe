"""A backward pass that looks for NaN in all that it computes, as detect_anomaly makes it: what if it did not."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_calls import less_lag
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import usual
from lumos_df.schema.codes import CPU_OP, RUNTIME

_LOOKS: Final = "aten::isnan"
_THEN: Final = ("aten::_is_any_true", "aten::any", "aten::is_nonzero", "aten::item")
"""What follows it in each node of the backward pass, by torch's version."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that torch look for NaN only where someone looks for a fault."""
    found = [_checks(rows) for rows in advised.ranks]
    looks = sum(
        int(np.count_nonzero(rows.named(lambda text: text == _LOOKS)[row]))
        for rows, row in zip(advised.ranks, found, strict=True)
    )
    if not looks:
        return
    _, checks = without_stretches(advised, found, [np.arange(len(row)) for row in found])
    own, lag = _stacks(advised)

    def apply(changed: ChangedGraph) -> None:
        changed.own[:] -= np.minimum(own, changed.own)
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))
        checks(changed)

    a_step = looks // len(advised.steps_ns)
    yield Remedy(
        rule="anomaly_detection",
        what=f"the backward pass looks for NaN {a_step:,} times a step, and the forward pass keeps stacks for it: "
        "leave torch.autograd.set_detect_anomaly off",
        known=Known.REPLAYED,
        rests_on=format_count(sum(map(len, found)), "call"),
        view="operator_summary",
        apply=apply,
    )


def _checks(rows: Rows) -> NDArray[np.int64]:
    """Return the operators of a rank that look for NaN [k]; none where less than half of the nodes do."""
    node = rows.named(lambda text: text.startswith(NODE) and "AccumulateGrad" not in text)
    inside = (rows.kind == CPU_OP) & np.append(node, False)[rows.parent]
    looks = inside & rows.named(lambda text: text == _LOOKS)
    checked = np.zeros(len(rows) + 1, np.bool_)
    checked[rows.parent[looks]] = True
    if 2 * np.count_nonzero(checked) < np.count_nonzero(node):
        return np.empty(0, np.int64)
    then = inside & rows.named(lambda text: text in _THEN) & checked[rows.parent]
    return np.flatnonzero(looks | then)


def _stacks(advised: AdvisedJob) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what forward operators take to keep a stack, ns: of the job's nodes [N], and of the lags of its edges.

    They have a node of the backward pass each. Without a GPU they take at least what the shortest quarter of them takes
    by itself: views, which do nothing else. On a host of a GPU an operator launches, and the rest is as long as in
    operators of its name that have no node.
    """
    own = np.zeros(len(advised.event_graph.own), np.int64)
    lag = np.zeros(len(advised.event_graph.lag), np.int64)
    for place, (rows, work) in enumerate(zip(advised.ranks, advised.host_works, strict=True)):
        made = np.unique(rows.forward[rows.forward >= 0]).astype(np.int64)
        if not len(made):
            continue
        called = np.flatnonzero(rows.of_kind(CPU_OP, RUNTIME) & (rows.parent >= 0))
        alone = rows.dur - np.bincount(rows.parent[called], rows.dur[called], len(rows)).astype(np.int64)
        if not rows.on_gpu.any():
            own[advised.event_graph.base[place] + made] = int(np.percentile(alone[made], 25))
            continue
        kept = np.maximum(alone[made] - _without_node(rows, made, alone), 0.0)
        lag[advised.edge_base[place] : advised.edge_base[place + 1]] = less_lag(work, made, kept)
    return own, lag


def _without_node(rows: Rows, made: NDArray[np.int64], alone: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what each of some operators takes by itself where it keeps no stack, ns [k].

    Args:
        rows: the rows of a rank.
        made: the operators that have a node of the backward pass [k].
        alone: what each row takes by itself, ns [n].
    """
    other = rows.kind == CPU_OP
    other[made] = False
    of_name = usual(rows.name[other].astype(np.int64), alone[other], rows.name[made].astype(np.int64))
    known = of_name >= 0
    return np.where(known, of_name, np.median(of_name[known]) if known.any() else 0.0)
