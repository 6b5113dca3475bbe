"""By how much the host's time differs from one time to the next, as a trace shows it."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import usual
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import HANDOFF, NONE, THREAD

_STRETCHES: Final = 10
"""Threshold, stretches of a step. Their spread stands for that of steps. Evidence: percentiles that leave out a tenth
need as many; where several steps were recorded, the steps differ by less."""
_UNTOLD: Final = 0.1
"""Threshold, share. The host's work is taken to differ by so much where too little of it repeats to tell. Evidence: a
judgement; what repeats differs by 0.02 from stretch to stretch, and calls of two runs by up to four times as much."""
_LEAST: Final = 0.03
"""Threshold, share. The host's time differs by no less. Evidence: like launches of every job of both sets of recorded
traces do."""
_PERCENTILES: Final = (10, 90)
"""Percentiles between which 8 times of 10 lie."""


def spread(graph: TraceGraph, shape: NDArray[np.int32], lengths: NDArray[np.int64]) -> float:
    """Return by how much the host's time of a rank differs between two runs, as a logarithm: 8 times of 10 by no more.

    As its steps do; where there is one, as its stretches do: what makes a call slow, a clock or a busy machine, makes
    its neighbours slow. The run that was recorded differs by that, and the one that is asked for does, too.

    Args:
        graph: the rank's graph.
        shape: number of the shapes of each row's inputs, NONE where none were recorded [n].
        lengths: of its recorded steps, ns [s].
    """
    return of_two_runs(of_steps(lengths) if len(lengths) > 1 else of_stretches(graph, shape))


def of_two_runs(alone: float) -> float:
    """Return by how much two runs differ of which each differs by `alone` from what is usual, as a logarithm."""
    return max(float(np.sqrt(2)) * alone, _LEAST)


def host_time(graph: TraceGraph) -> NDArray[np.float64]:
    """Return the host's work that each row ends, ns [n]: its own and that since the atom before; 0 for GPU rows."""
    time = np.zeros(len(graph.rows))
    time[graph.atoms.row] = graph.own[graph.atoms.row]
    edges = graph.edges
    on_host = works_between(graph)
    np.add.at(time, edges.dst[on_host], edges.lag[on_host])
    return time


def works_between(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return the edges whose lag is work of the host [m]."""
    between: NDArray[np.bool_] = np.isin(graph.edges.kind, (THREAD, HANDOFF))
    return between


def of_stretches(graph: TraceGraph, shape: NDArray[np.int32]) -> float:
    """Return by how much stretches of the host's work differ, as a logarithm: half the range of 8 times of 10.

    A stretch is as slow as half of its work is, against like work: that which leads to the same call of the same
    operator with the same shapes, behind the same call of the same operator. It stands for work that does not repeat.
    """
    rows, atoms = graph.rows, graph.atoms
    row, before = atoms.row, np.maximum(atoms.before, 0)
    at = rows.parent[row]
    operator = np.where(at >= 0, rows.name[at], NONE)
    kind = packed(
        rows.name[row],
        operator,
        np.where(at >= 0, shape[at], NONE),
        np.where(atoms.before >= 0, rows.name[row[before]], NONE),
        np.where(atoms.before >= 0, operator[before], NONE),
    )
    time = host_time(graph)[row].astype(np.int64)
    middle = usual(kind, time, kind, typical_values.FEW)
    known = np.flatnonzero((middle > 0) & (time > 0))
    if len(known) < _STRETCHES:
        return _UNTOLD
    known = known[np.argsort(rows.ts[row[known]], kind="stable")]
    apart, weight = np.log(time[known] / middle[known]), middle[known].astype(np.float64)
    stretch = ((np.cumsum(weight) - weight / 2) / weight.sum() * _STRETCHES).astype(np.int64)
    low, high = np.percentile(_medians(stretch, apart, weight), _PERCENTILES)
    return float(high - low) / 2


def _medians(group: NDArray[np.int64], values: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted median of each group's values."""
    order = np.lexsort((values, group))
    group, values, weight = group[order], values[order], weight[order]
    first = np.flatnonzero(np.diff(group, prepend=NONE))
    within = np.cumsum(weight)
    behind = np.append(within[first[1:] - 1], within[-1])
    half = (np.append(0.0, behind[:-1]) + behind) / 2
    middle: NDArray[np.float64] = values[np.searchsorted(within, half)]
    return middle


def of_steps(lengths: NDArray[np.int64]) -> float:
    """Return by how much the steps of a rank differ, relative: half of what lies between the 10th and 90th percentile.

    Args:
        lengths: of the recorded steps, ns [s].
    """
    low, high = np.percentile(lengths, _PERCENTILES)
    return float((high - low) / 2 / max(float(np.median(lengths)), 1.0))
