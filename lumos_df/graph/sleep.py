"""Silences of one rank's threads against what the other ranks have before the same row: what is longer, it slept."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host import silences
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import ordinals, usual
from lumos_df.graph.simulate.threads import reached
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE, THREAD


def awake(graph: TraceGraph, lag: NDArray[np.int64], graphs: list[TraceGraph]) -> NDArray[np.int64]:
    """Return the lags of a rank's edges if it had slept no longer than others before the same row, ns [m].

    Others are the other ranks in the same step; of a rank by itself, its other steps. Where no other has the row, the
    silence stays.

    Args:
        graph: the rank.
        lag: of its edges, ns.
        graphs: all ranks of the job.
    """
    others = [other for other in graphs if other is not graph]
    names = {name: place for place, name in enumerate(sorted({name for each in graphs for name in each.rows.names}))}
    columns = [_host_rows(each, names) for each in (graph, *others)]
    step, ordinal, name, thread, silent = (np.concatenate(column) for column in zip(*columns, strict=True))
    mine = len(columns[0][0])
    # Across steps where there is nobody else: the row itself is then one of those that it is held against.
    same = packed(step, ordinal, name, thread) if others else packed(ordinal, name, thread)
    witness = slice(mine, None) if others else slice(None)
    slept = np.flatnonzero(silent[:mine] > 0)
    of_others = usual(same[witness], silent[witness], same[slept], 1 if others else 2)
    over = np.where(of_others == NONE, 0, np.maximum(silent[slept] - of_others, 0))
    less = _before_atoms(graph, np.flatnonzero(graph.rows.thread >= 0)[slept], over)
    thread_edge = graph.edges.kind == THREAD
    return np.where(thread_edge, np.maximum(lag - less[graph.edges.dst], np.minimum(lag, 0)), lag)


def _host_rows(graph: TraceGraph, names: dict[str, int]) -> tuple[NDArray[np.int64], ...]:
    """Return of each row of a thread its step, its place among its like, its name, its thread, ns of silence before.

    Its like are the rows of its step, name and thread. A thread goes by its place among those that have rows of that
    name, in the order of their first rows: numbers of threads differ where a rank has one more.
    """
    rows = graph.rows
    row = np.flatnonzero(rows.thread >= 0)
    silent = np.zeros(len(rows), np.int64)
    ended, lasted = silences(rows, graph.handoffs, 1)
    silent[ended] = lasted
    name = np.array([*(names[text] for text in rows.names), NONE], np.int64)[rows.name[row]]
    of_name = packed(name, rows.thread[row])
    used, first = np.unique(of_name, return_index=True)
    before = np.searchsorted(name[first], name[first])
    thread = np.searchsorted(used, of_name)
    thread -= before[thread]
    return rows.step[row].astype(np.int64), ordinals(packed(name, thread, rows.step[row])), name, thread, silent[row]


def _before_atoms(graph: TraceGraph, row: NDArray[np.int64], over: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ns that go before each row of the graph [n]: a silence is part of the work before the next atom."""
    atoms, rows = graph.atoms, graph.rows
    less = np.zeros(len(rows), np.int64)
    thread = rows.thread[row]
    place = reached(thread, rows.ts[row] - 1, atoms.bounds, atoms.ts[atoms.by_thread])
    inside = place < atoms.bounds[thread + 1]
    np.add.at(less, atoms.row[atoms.by_thread[place[inside]]], over[inside])
    return less
