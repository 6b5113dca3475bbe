"""How fast the hosts of several runs were beside one another, as calls tell it that all of them make.

And how far another run's may be from that of one: a machine that disturbs single calls disturbs whole runs.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host_spread, typical_values
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import usual
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME

if TYPE_CHECKING:
    import polars as pl

_CALL: Final = ("name", "operator", "before", "operator_before")
"""What makes two calls the same, whatever their sizes."""
_OTHER_RUN: Final = 0.2
"""Threshold, logarithm. The hosts of two runs of a program on a machine differ by no more, 8 times of 10, where too few
calls are alike to tell. Evidence: the median call of 23 recordings of five kinds of runs differs between runs of a kind
by a standard deviation of 0.11."""
_OF_JITTER: Final = 27.0
"""Threshold, logarithm a square of one. Hosts of two runs differ by no more, 8 times of 10, times the square of the
jitter of a run's calls. Evidence: those 23 recordings, whose jitter is 0.05 where runs differ by 0.003 and 0.02, and
0.08 to 0.11 where they do by 0.07 to 0.21; `tests.bench.host_runs` has what each kind says of the others."""
_WIDEST: Final = 0.43
"""Threshold, logarithm. Jitter tells no more than this, as it may be of the program. Evidence: no two of those 23 of a
kind differ by more."""
_ALIKE: Final = 100
"""Threshold, calls. Fewer that are like another tell no jitter. Evidence: quartiles of so many are a tenth off."""
_STUDENT: Final = (3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.41, 1.40, 1.38)
"""By how many of their standard deviations a value is at most off, 8 times of 10, by how many others tell it, less one:
the 90th percentile of Student's distribution. Of more values the last holds."""


def between_runs(graphs: list[TraceGraph]) -> float:
    """Return by how much the host of another run differs from the mean of these, as a logarithm: 8 times of 10.

    One run tells by the jitter of its calls alone, since a neighbour or a clock makes all of its steps alike slower.
    Several tell by how they differ, as sure as one value is predicted from so few; at most as much as the jitter of the
    first says, or as these differ.

    Args:
        graphs: of runs of a program on one machine, at whatever sizes.
    """
    slow = slowness(graphs) if len(graphs) > 1 else None
    alone = of_jitter(jitter(graphs[0]))
    if slow is None:
        return alone
    student = _STUDENT[min(len(slow) - 1, len(_STUDENT)) - 1]
    told = float(np.sqrt(1 + 1 / len(slow)) * student * slow.std(ddof=1))
    return min(told, max(alone, float(np.ptp(slow))))


def of_jitter(apart: float | None) -> float:
    """Return by how much hosts of two runs differ, a logarithm: 8 times of 10. `apart`: `jitter`; None: not known."""
    return _OTHER_RUN if apart is None else min(_OF_JITTER * apart**2, _WIDEST)


def jitter(graph: TraceGraph) -> float | None:
    """Return by how much like calls of a run's host differ, as a logarithm: the middle half of them by twice as much.

    A call is like another where its name, its operator's and those of the call before are; sizes do not matter to it.
    What makes single calls far longer than their like, memory that grows, say, is no jitter, so the ends count for
    nothing. None where too few calls are alike.
    """
    rows, atoms = graph.rows, graph.atoms
    row, before = atoms.row, atoms.row[np.maximum(atoms.before, 0)]
    # The last name is that of no row.
    name, operator = np.append(rows.name, NONE), np.append(rows.parent, NONE)
    before = np.where(atoms.before >= 0, before, NONE)
    kind = packed(name[row], name[operator[row]], name[before], name[operator[before]])
    computes = (rows.kind[row] == CPU_OP) & (atoms.dur > 0)
    time = np.where(computes, 0, host_spread.host_time(graph)[row]).astype(np.int64)
    middle = usual(kind, time, kind, typical_values.FEW)
    known = (middle > 0) & (time > 0)
    if np.count_nonzero(known) < _ALIKE:
        return None
    low, high = np.percentile(np.log(time[known] / middle[known]), (25, 75))
    return float(high - low) / 2


def scaled(graph: TraceGraph, factor: float) -> TraceGraph:
    """Return a graph whose host's calls, and what lies between, take so many times as long."""
    own = np.where(graph.rows.kind == RUNTIME, np.round(graph.own * factor), graph.own).astype(np.int64)
    between = host_spread.works_between(graph)
    lag = np.where(between, np.round(graph.edges.lag * factor), graph.edges.lag).astype(np.int64)
    return replace(graph, own=own, edges=replace(graph.edges, lag=lag))


def slowness(graphs: list[TraceGraph]) -> NDArray[np.float64] | None:
    """Return by how much the host of each run was slower than those of all on average, as a logarithm [runs].

    A call is the same where its name, its operator's and those of the call before are. Of each the median counts, and
    of all calls that every run has the median of what they say. Sizes do not matter to them: what an operator computes
    on the host counts for nothing. None where the runs share too few calls.
    """
    import polars as pl  # noqa: PLC0415 - slow to import, and most jobs are alone

    frame = pl.concat([_calls(graph).with_columns(run=pl.lit(run)) for run, graph in enumerate(graphs)])
    usual = frame.group_by("run", *_CALL).agg(pl.col("ns").median().log(), calls=pl.len())
    shared = usual.filter(pl.col("calls") >= typical_values.FEW).filter(pl.len().over(_CALL) == len(graphs))
    if shared.select(_CALL).n_unique() < typical_values.FEW:
        return None
    apart = shared.with_columns(pl.col("ns") - pl.col("ns").mean().over(_CALL))
    said: NDArray[np.float64] = apart.group_by("run").agg(pl.col("ns").median()).sort("run")["ns"].to_numpy()
    around: NDArray[np.float64] = said - said.mean()
    return around


def _calls(graph: TraceGraph) -> "pl.DataFrame":
    """Return what the host's calls took, with the work that leads to each, ns."""
    import polars as pl  # noqa: PLC0415 - as above

    rows, atoms = graph.rows, graph.atoms
    names = np.array([*rows.names, ""], object)
    row, before = atoms.row, np.where(atoms.before >= 0, atoms.row[np.maximum(atoms.before, 0)], NONE)
    # The last name is that of no row.
    name = np.append(rows.name, NONE)
    operator = np.append(rows.parent, NONE)
    frame = pl.DataFrame(
        {
            "name": names[name[row]],
            "operator": names[name[operator[row]]],
            "before": names[name[before]],
            "operator_before": names[name[operator[before]]],
            "ns": host_spread.host_time(graph)[row],
        },
        schema_overrides=dict.fromkeys(_CALL, pl.String),
    )
    computes = (rows.kind[row] == CPU_OP) & (atoms.dur > 0)
    return frame.filter(~pl.Series(computes) & (pl.col("ns") > 0))
