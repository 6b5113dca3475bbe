"""Stages of a pipeline that wait for the first and last micro-batches: what if these were half as large."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.pipelines import SENT, multiplies_first, pipelines
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules import stage_balance
from lumos_df.base.units import format_count
from lumos_df.graph.simulate.forward import inherited
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, EVENT, FORWARD, NONE
from lumos_df.schema.words import GRADIENT

_RECEIVES: Final = SENT - {"send"}


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose parts of stages that take turns, or smaller micro-batches: stages wait half as long for the first."""
    graph, of_rank = advised.event_graph, pipelines(advised)
    leads = np.array([multiplies_first(rows) for rows in advised.ranks])
    staged = np.isin(of_rank, np.intersect1d(of_rank[leads], of_rank[~leads]))
    found = [_exchanges(each, advised.phase(place)) for place, each in enumerate(advised.graphs)]
    edge = np.concatenate([edge + base for (edge, _, _), base in zip(found, advised.edge_base[:-1], strict=True)])
    behind, ahead = (np.concatenate([each[column] for each in found]) for column in (1, 2))
    rank = np.searchsorted(graph.base, graph.dst[edge], side="right") - 1
    # Of an exchange with a rank that was not recorded nobody knows when that was ready.
    edge = edge[staged[rank] & (graph.instance[graph.dst[edge]] != NONE)]
    if not len(edge):
        return
    node = graph.dst[edge]
    instance = np.unique(graph.instance[node])
    # Who has got one half still has half of its own work to do when the other one is there.
    gets = np.flatnonzero((graph.instance != NONE) & (ahead > 0))
    left = np.full(len(graph.transfer) + 1, np.iinfo(np.int64).max)
    np.minimum.at(left, graph.instance[gets], ahead[gets])
    sooner = np.minimum(behind, left[graph.instance])[node]
    # Smaller micro-batches add as much to gradients, each.
    adds = np.concatenate([_adds(each) for each in advised.graphs])

    def apply(changed: ChangedGraph) -> None:
        # Who is held up by an exchange is so by each half of it.
        held = np.zeros(len(changed.own), np.int64)
        np.maximum.at(held, graph.src[edge], np.append(changed.transfer, 0)[graph.instance[node]])
        changed.own[adds] += changed.own[adds] // 2
        changed.own[:] += held
        changed.lag[edge] -= sooner + held[graph.src[edge]]
        changed.transfer[instance] //= 2

    stages = np.bincount(of_rank[staged]).max()
    steps = len(advised.steps_ns) // len(advised.ranks)
    sent = [
        int(np.count_nonzero(rows.of_collective(("send", "send_recv")) & rows.on_gpu))
        for rows, holds in zip(advised.ranks, staged.tolist(), strict=True)
        if holds
    ]
    yield Remedy(
        rule="more_micro_batches",
        what=f"{stages} stages of the pipeline wait for the first and the last of {round(min(sent) / steps)} "
        "micro-batches: let two parts of the model take turns on each (virtual stages), or make micro-batches smaller",
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(instance), 'exchange')} between stages",
        view="collective_summary",
        apply=apply,
        uncertainty=stage_balance.WHOLE_LAYERS,
    )


def _exchanges(
    graph: TraceGraph, phase: NDArray[np.int8]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges from work of a rank's GPU to its exchanges with other stages [k], and halves of passes, ns [n].

    Of each exchange half of the pass before it, and half of the pass that waits for what it brings, 0 where there is
    none. A pass begins behind what was received, and a forward pass behind a backward one.
    """
    rows, edges = graph.rows, graph.edges
    sends, receives = (rows.of_collective(kinds) & rows.on_gpu for kinds in (SENT, _RECEIVES))
    work = rows.on_gpu & (rows.family != COMMUNICATION)
    into = np.flatnonzero((edges.kind == EVENT) & sends[edges.dst] & work[edges.src])
    out = np.flatnonzero((edges.kind == EVENT) & receives[edges.src] & work[edges.dst])
    behind, ahead = np.zeros((2, len(rows)), np.int64)
    row = np.flatnonzero(work)
    row = row[np.argsort(rows.ts[row], kind="stable")]
    begins = np.isin(row, edges.dst[out])
    # What is of neither pass, such as a copy of samples, goes on with the one before.
    passing = np.isin(phase[row], (FORWARD, BACKWARD))
    back = phase[row[np.maximum.accumulate(np.where(passing, np.arange(len(row)), 0))]] == BACKWARD
    begins[1:] |= back[:-1] & ~back[1:]
    number = np.zeros(len(rows), np.int64)
    number[row] = np.cumsum(begins)
    done = np.zeros(len(rows), np.int64)
    done[row] = np.cumsum(graph.own[row])
    last = np.zeros(int(number.max(initial=0)) + 1, np.int64)
    np.maximum.at(last, number[row], done[row])
    first = np.append(0, last[:-1])
    np.maximum.at(behind, edges.dst[into], (done - first[number])[edges.src[into]] // 2)
    np.maximum.at(ahead, edges.src[out], (last - first)[number[edges.dst[out]]] // 2)
    return into, behind, ahead


def _adds(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return which rows of a rank's GPU add to gradients [n]."""
    rows = graph.rows
    computes = rows.on_gpu & (rows.family != COMMUNICATION)
    adds: NDArray[np.bool_] = inherited(rows.named(lambda name: name == GRADIENT), rows.parent) & computes
    return adds
