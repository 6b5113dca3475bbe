"""A rank's host does one task after the other, whichever of its threads does which.

A trace tells that of the tasks it has: the thread that ran the backward pass hands over to the one that goes on. Copies
of a task follow another task than the recorded one did, so here they are told to.
"""

from dataclasses import replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.schema.codes import HANDOFF, NONE
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.rewrite.forward_edges import ordered
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten


def host_turns(made: Rewritten, task: NDArray[np.int64]) -> Edges:
    """Return what makes a rank's host do one task after the other.

    Each thread that launches work, or does it where there is no GPU, begins a task when all of them have ended the one
    before, and wakes up in the median time in which the trace's threads do.

    Args:
        made: the rank.
        task: task of each block of its sequence, NONE outside of tasks [p].
    """
    graph = made.graph
    atoms, calls = graph.atoms, graph.gpu.call
    works = np.zeros(len(atoms.bounds), np.bool_)
    works[atoms.thread[calls[calls >= 0]]] = True
    works[atoms.thread[host_times.works(graph)[atoms.row]]] = True
    task_of_atom = task[made.position[atoms.row]]
    use = np.flatnonzero((task_of_atom >= 0) & works[atoms.thread])
    # First and last moment of every task on every thread.
    known, number = np.unique(task_of_atom[use], return_inverse=True)
    first, last = (np.full((len(known), len(works)), NONE, np.int32) for _ in range(2))
    last[number, atoms.thread[use]] = atoms.row[use]
    first[number[::-1], atoms.thread[use[::-1]]] = atoms.row[use[::-1]]
    pairs = list(permutations(np.flatnonzero(works).tolist(), 2))
    none = np.empty(0, np.int32)
    source = np.concatenate([none, *(last[:-1, a] for a, _ in pairs)])
    target = np.concatenate([none, *(first[1:, b] for _, b in pairs)])
    lags = graph.edges.lag[graph.edges.kind == HANDOFF]
    return edges(source, target, HANDOFF, int(np.median(lags)) if len(lags) else 0, False)


def in_turn(made: Rewritten, task: NDArray[np.int64]) -> Rewritten:
    """Return a rank whose host does one task after the other; arguments as for `host_turns`."""
    graph = made.graph
    turns = host_turns(made, task)
    every = join([graph.edges, turns])
    itself = np.append(graph.order_target != graph.edges.dst, np.zeros(len(turns), np.bool_))
    every, order, target, dropped = ordered(graph.rows, graph.atoms, graph.gpu, every, itself)
    return replace(
        made,
        graph=replace(graph, edges=every, order=order, order_target=target, dropped=graph.dropped + dropped),
    )
