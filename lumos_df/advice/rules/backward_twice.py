"""Graphs of autograd that are gone back through again for another loss: what if the losses had been added up."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose one backward pass where a step evaluates nodes of the graph again, as `retain_graph=True` allows."""
    found = [_again(rows) for rows in advised.ranks]
    count = sum(len(call) for call, _ in found)
    if not count:
        return
    taken, apply = without_stretches(advised, [call for call, _ in found], [run for _, run in found])
    lasts = format_ns(round(taken / len(advised.steps_ns)))
    yield Remedy(
        rule="backward_twice",
        what=f"the backward pass goes again through the same operators, {lasts} a step: add the losses up, and call "
        "backward once, if nothing needs the gradients of each",
        known=Known.REPLAYED,
        rests_on=f"{format_count(count, 'node')} of autograd",
        apply=apply,
    )


def _again(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes of a rank that are not evaluated for the first time in their step, and the run of each [k].

    A node of an operator stands for it once in each pass. What gives a parameter its gradient has none, and goes with
    what was evaluated before it. Steps that go back through what a node did are left out.
    """
    nodes = rows.named(lambda text: text.startswith(NODE)) & (rows.kind == CPU_OP)
    node = np.flatnonzero(nodes & (rows.step >= 0))
    node = node[np.lexsort((rows.ts[node], rows.thread[node]))]
    forward = rows.forward[node].astype(np.int64)
    # A gradient of a gradient, as a penalty on its length is, needs both passes.
    of_node = (forward >= 0) & (rows.nearest(nodes, rows.forward[node]) >= 0)
    kept = ~np.isin(rows.step[node], rows.step[node[of_node]])
    node, forward = node[kept], forward[kept]
    known = np.flatnonzero(forward >= 0)
    if not len(known):
        return known, known
    same = packed(rows.thread[node[known]], rows.step[node[known]], forward[known])
    again = np.ones(len(known), np.bool_)
    again[np.unique(same, return_index=True)[1]] = False
    # The place of the last node that has an operator.
    last = np.searchsorted(known, np.arange(len(node)), side="right") - 1
    chosen = (last >= 0) & again[last]
    return node[chosen], runs_of(packed(rows.thread[node], rows.step[node]), chosen)[chosen]
