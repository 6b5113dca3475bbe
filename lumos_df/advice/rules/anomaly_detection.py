"""A backward pass that looks for NaN in all that it computes, as detect_anomaly makes it: what if it did not."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP

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
    node, kept = _stacks(advised)

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] -= np.minimum(kept, changed.own[node])
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
    """Return the forward operators of the job that keep a stack, and how long each does, ns [k].

    They have a node of the backward pass each, and take at least what the shortest quarter of them takes by itself:
    views, which do nothing else.
    """
    node, kept = [], []
    for place, rows in enumerate(advised.ranks):
        made = np.unique(rows.forward[rows.forward >= 0])
        below = np.flatnonzero((rows.kind == CPU_OP) & (rows.parent >= 0))
        alone = (rows.dur - np.bincount(rows.parent[below], rows.dur[below], len(rows)))[made]
        node.append(advised.event_graph.base[place] + made)
        kept.append(np.full(len(made), int(np.percentile(alone, 25)) if len(made) else 0))
    return np.concatenate(node).astype(np.int64), np.concatenate(kept).astype(np.int64)
