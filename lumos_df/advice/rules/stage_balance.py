"""Stages of a pipeline that compute longer than others: what if all of them took the mean."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.pipelines import pipelines
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.late_rank import listed
from lumos_df.base.units import format_count, format_ns

WHOLE_LAYERS: Final = 0.5
"""Threshold, share of the gain. It may be so much less or more. Evidence: a judgement; only whole layers move, and how
long one takes, as a share of what is uneven, is not known."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the work of a pipeline be spread evenly over its stages."""
    of_rank = pipelines(advised)
    stages = np.bincount(of_rank, minlength=len(of_rank))[of_rank]
    if not (stages > 1).any():
        return
    graph = advised.event_graph
    computes = np.concatenate([rows.on_gpu for rows in advised.ranks])
    computes[graph.base[advised.waits.trace] + advised.waits.row] = False
    node = graph.order[computes[graph.order]]
    rank = np.searchsorted(graph.base, node, side="right") - 1
    works = np.bincount(rank, graph.own[node], len(of_rank))
    mean = (np.bincount(of_rank, works, len(of_rank)) / np.maximum(np.bincount(of_rank, minlength=len(of_rank)), 1))[
        of_rank
    ]
    evenly = np.round(graph.own[node] * (mean / np.maximum(works, 1))[rank]).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] = evenly

    most = np.zeros(len(of_rank))
    np.maximum.at(most, of_rank, works)
    longest = np.flatnonzero((works == most[of_rank]) & (stages > 1))
    numbers = [advised.ranks[place].rank for place in longest.tolist()]
    steps = len(advised.steps_ns) / len(of_rank)
    yield Remedy(
        rule="stage_balance",
        what=f"stages of the pipeline compute for {format_ns(round(works.mean() / steps))} a step on average, "
        f"{listed(numbers)} for {format_ns(round(works[longest].max() / steps))}: move layers to the others",
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(node), 'row')} of GPUs of {format_count(int((stages > 1).sum()), 'stage')}",
        apply=apply,
        uncertainty=WHOLE_LAYERS,
    )
