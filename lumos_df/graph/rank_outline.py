"""What the other ranks of a job need to know of one: its communication, and how its collectives follow one another."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import communicates
from lumos_df.graph.contracted_graph import ContractedGraph, contracted
from lumos_df.graph.gains import Taken
from lumos_df.graph.rows import Rows, read
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutline:
    """A rank without most of its operators."""

    communication: Rows
    """Its rows of communication and those around them, and those that say when it was recorded [k]."""
    row: NDArray[np.int32]
    """[k] their numbers in the trace."""
    graph: ContractedGraph
    """Its graph, contracted to the communication kernels."""
    taken: Taken | None = None
    """What its operators take, where gains are asked for."""


def outline(graph: TraceGraph) -> RankOutline:
    """Return what other ranks need to know of the graph of a trace."""
    rows, row = communication(graph.rows)
    return RankOutline(communication=rows, row=row, graph=contracted(graph))


def communication(rows: Rows) -> tuple[Rows, NDArray[np.int32]]:
    """Return the rows of a trace from which collectives are matched, and their numbers in it, as in `RankOutline`."""
    row = _told(rows)
    return rows.only(row), row


def communication_of(corpus: Path, trace_id: str) -> tuple[Rows, NDArray[np.int32]]:
    """Read a trace and return `communication` of it. Raise `CorpusError` when it cannot be read."""
    return communication(read(corpus, trace_id))


def like(replayed: RankOutline, communication: Rows, row: NDArray[np.int32]) -> RankOutline:
    """Return the outline of a rank whose communication is as that of another, which is replayed for it.

    Its collectives are its own, its graph is that of the other one, in whose time it stays.

    Args:
        replayed: the outline of the other.
        communication, row: what `communication` returns of the rank.
    """
    place = np.searchsorted(replayed.row[communicates(replayed.communication)], replayed.graph.row)
    own = row[communicates(communication)][place]
    return RankOutline(communication=communication, row=row, graph=replace(replayed.graph, row=own))


def in_trace(rows: list[NDArray[np.int32]], trace: NDArray[Any], place: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers in their traces of some rows, known by trace and place in what `communication` returns [k].

    Args:
        rows: of each trace, the numbers that `communication` returns.
        trace, place: [k]
    """
    first = np.cumsum([0, *map(len, rows)])
    number: NDArray[Any] = np.concatenate(rows)[first[trace] + place].astype(place.dtype)
    return number


def _told(rows: Rows) -> NDArray[np.int32]:
    told = rows.family == COMMUNICATION
    above = rows.parent[told]
    while len(above := np.unique(above[above >= 0])):
        told[above] = True
        above = rows.parent[above]
    # When the recording began, and when that of the GPU began and ended.
    told[:1] = True
    on_gpu = np.flatnonzero(rows.on_gpu)
    for place, values in ((np.arange(len(rows)), rows.ts), (on_gpu, rows.ts), (on_gpu, -rows.end)):
        if len(place):
            told[place[np.argmin(values[place])]] = True
    return np.flatnonzero(told).astype(np.int32)
