"""Ranks whose tensors differ in size from step to step: what if each had the mean of the work on them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.pipelines import pipelines
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.steady_lateness import sums_by_step
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import dense
from lumos_df.graph.same_rows import same_rows
from lumos_df.schema.codes import COMMUNICATION, NONE


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to even out what ranks work on, where the same operators of a step have tensors of other sizes."""
    graph, ranks = advised.event_graph, advised.ranks
    if len(ranks) == 1 or len(np.unique(pipelines(advised))) < len(ranks):
        return
    node = _uneven(advised)
    if not len(node):
        return
    rank, step = (each[node] for each in _ranks_and_steps(advised))
    works = sums_by_step(len(ranks), rank, step, graph.own[node])
    part = works.mean(axis=0) / np.maximum(works, 1)
    evenly = np.round(graph.own[node] * part[rank, dense(step)]).astype(np.int64)

    def apply(changed: ChangedGraph) -> None:
        changed.own[node] = evenly

    mean, longest = (round(float(each.mean())) for each in (works, works.max(axis=0)))
    yield Remedy(
        rule="uneven_batches",
        what=f"GPUs work for {format_ns(mean)} a step on tensors whose sizes differ by rank and step, the one with "
        f"most for {format_ns(longest)}: even out samples, or tokens, between the ranks of each step",
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(node), 'row')} of GPUs of {format_count(len(ranks), 'rank')}",
        apply=apply,
    )


def _uneven(advised: AdvisedJob) -> NDArray[np.int64]:
    """Return the rows of GPUs, as nodes of the job, whose operators have tensors of other sizes on other ranks.

    The sizes have to differ from step to step, too: else ranks have other parts of the model.
    """
    graph, ranks = advised.event_graph, advised.ranks
    same = dense(same_rows(ranks)[0])
    elements = np.concatenate([advised.elements(place) for place in range(len(ranks))])
    rank, step = _ranks_and_steps(advised)
    known = np.flatnonzero((elements != NONE) & (step >= 0))
    least, most = np.full(len(same), np.iinfo(np.int64).max), np.full(len(same), NONE)
    np.minimum.at(least, same[known], elements[known])
    np.maximum.at(most, same[known], elements[known])
    sizes = known[most[same[known]] > least[same[known]]]
    of_step = sums_by_step(len(ranks), rank[sizes], step[sizes], elements[sizes])
    if (of_step == of_step[:, :1]).all():
        return sizes[:0]
    shaped, differs = elements != NONE, np.zeros(len(same) + 1, np.bool_)
    differs[sizes] = True
    nodes = []
    for base, rows in zip(graph.base.tolist(), ranks, strict=False):
        row = np.flatnonzero(rows.on_gpu & (rows.family != COMMUNICATION)).astype(np.int32)
        operator = rows.nearest(shaped[base : base + len(rows)], row)
        nodes.append(base + row[(operator >= 0) & differs[base + operator]])
    return np.concatenate(nodes).astype(np.int64)


def _ranks_and_steps(advised: AdvisedJob) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rank of every node of the job, by its place, and its step [N]."""
    rank = np.repeat(np.arange(len(advised.ranks)), np.diff(advised.event_graph.base))
    return rank, np.concatenate([rows.step for rows in advised.ranks]).astype(np.int64)
