"""Work of a job that takes a part of its time or goes away, with what the host did for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import around, inherited
from lumos_df.graph.switches import multiplied
from lumos_df.graph.typical_values import highest_usual
from lumos_df.schema.codes import CPU_OP, RUNTIME


@dataclass(frozen=True, slots=True, kw_only=True)
class LessWork:
    """By what the times of some nodes and edges of a job are multiplied."""

    node: NDArray[np.int64]
    """[k] nodes of the job."""
    node_part: NDArray[np.float64]
    """[k]"""
    edge: NDArray[np.int64]
    """[j] edges of the job."""
    edge_part: NDArray[np.float64]
    """[j]"""
    collective: NDArray[np.int64]
    """[i] those without any member left."""

    def apply(self, changed: ChangedGraph) -> None:
        """Make the change."""
        changed.own[self.node] = multiplied(changed.own[self.node], self.node_part)
        lag = changed.lag[self.edge]
        changed.lag[self.edge] = np.where(lag > 0, multiplied(lag, self.edge_part), lag)
        changed.transfer[self.collective] = 0


def less_work(advised: AdvisedJob, part: Sequence[NDArray[np.float64]]) -> LessWork:
    """Return what becomes of a job when some rows take a part of their time, or go away.

    A row of the host goes with all that it called and launched. A row of the GPU is not launched either: calls and
    operators that launched nothing else go with it.

    Args:
        advised: the job.
        part: [n] a rank, by what each row's time is multiplied; of the host 1, or 0 of what goes away.
    """
    nodes, node_parts, edges, edge_parts = [], [], [], []
    for place, (graph, of_row) in enumerate(zip(advised.graphs, part, strict=True)):
        rows = graph.rows
        called = (of_row == 0) & ~rows.on_gpu
        gone = rows.on_gpu & ((of_row == 0) | inherited(called, rows.parent))
        of_node = np.where(rows.on_gpu, np.where(gone, 0.0, of_row), 1.0)
        of_edge = np.ones(len(graph.edges))
        if called.any() or gone.any():
            work = inherited(called | _only_for(rows, gone), rows.parent) & ~rows.on_gpu
            call = rows.of_kind(RUNTIME)
            of_node[work & ~(call & _one_off(graph.own[call], graph.own.astype(np.float64)))] = 0
            of_edge = np.where(gone[graph.edges.dst], 0.0, 1 - advised.host_works[place].share(work))
            of_edge[_one_off(graph.edges.lag, graph.edges.lag * (1 - of_edge))] = 1
        node, edge = np.flatnonzero(of_node != 1), np.flatnonzero(of_edge != 1)
        nodes.append(node + advised.event_graph.base[place])
        node_parts.append(of_node[node])
        edges.append(edge + advised.edge_base[place])
        edge_parts.append(of_edge[edge])
    node, node_part = np.concatenate(nodes), np.concatenate(node_parts)
    return LessWork(
        node=node,
        node_part=node_part,
        edge=np.concatenate(edges),
        edge_part=np.concatenate(edge_parts),
        collective=_without_members(advised, node[node_part == 0]),
    )


def _without_members(advised: AdvisedJob, gone: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the collectives of which all members are among some nodes."""
    instance = advised.event_graph.instance
    lost = np.unique(instance[gone])
    stays = instance >= 0
    stays[gone] = False
    return np.setdiff1d(lost[lost >= 0], instance[stays]).astype(np.int64)


def _one_off(usual: NDArray[np.int64], less: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which times would lose far more than is usual: the host loaded code there, and would do so elsewhere."""
    taken = usual[usual > 0]
    return less > highest_usual(taken) if len(taken) else np.zeros(len(less), np.bool_)


def _only_for(rows: Rows, gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the operators and calls that launched some of these GPU rows, and no other [n]."""
    only: NDArray[np.bool_] = around(gone, rows.parent) & ~around(rows.on_gpu & ~gone, rows.parent)
    return only & rows.of_kind(CPU_OP, RUNTIME)
