"""Why a step took as long as it did: the chain of work that ends with it, and how much room the rest has."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate import backward
from lumos_df.graph.step_nodes import last_nodes, step_nodes
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import (
    HOST_PIECE,
    KERNEL,
    KERNEL_PIECE,
    MEMCPY,
    MEMORY_PIECE,
    MEMSET,
    NONE,
    TRANSFER_PIECE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """p pieces, ordered by time; they add up to the replayed step, and with the last one to the recorded step."""

    trace: NDArray[np.int32]
    """Place in the job of the trace on which the piece runs."""
    row: NDArray[np.int32]
    """Row of the operator in that trace: what runs, or what waits to begin; NONE where none is known."""
    kind: NDArray[np.int8]
    """Place in `schema.words.PIECES`."""
    ts: NDArray[np.int64]
    """ns, simulated, on the clock of the step's own trace."""
    dur: NDArray[np.int64]
    """ns; negative only for an unexplained piece: the recorded step was shorter than the replayed one."""


def joined(paths: list[Path]) -> Path:
    """Return several paths, one after another, as one."""
    return Path(**{name: np.concatenate([getattr(path, name) for path in paths]) for name in Path.__slots__})


def critical_paths(
    event_graph: EventGraph, result: Run, graphs: list[TraceGraph], replays: list[Replay]
) -> list[list[Path]]:
    """Return the critical path of every step of every trace of a job, in their order."""
    node_piece = _pieces(event_graph, graphs)
    edge_kind = np.concatenate([graph.edges.kind for graph in graphs])
    unknown = np.concatenate([graph.unknown for graph in graphs])
    return [
        _paths(event_graph, result, replay, trace, node_piece, edge_kind, unknown)
        for trace, replay in enumerate(replays)
    ]


def _paths(
    event_graph: EventGraph,
    result: Run,
    replay: Replay,
    trace: int,
    node_piece: NDArray[np.int8],
    edge_kind: NDArray[np.int8],
    unknown: NDArray[np.int64],
) -> list[Path]:
    """Return the critical path of every step of one trace."""
    base, shift = event_graph.base, int(event_graph.shift[trace])
    marks = replay.steps
    last = last_nodes(replay.graph, marks, _ends(event_graph, result, trace))
    bounds, node, piece, begin, dur = backward.walks(
        np.where(last >= 0, last + base[trace], NONE),
        replay.low + shift,
        replay.high + shift,
        marks.high - marks.low,
        event_graph.src,
        event_graph.binds,
        edge_kind,
        unknown,
        node_piece,
        result.start,
        result.end,
        result.start_cause,
        result.end_cause,
    )
    on_trace = np.where(node >= 0, np.searchsorted(base, node, side="right") - 1, trace)
    row = np.where(node >= 0, node - base[on_trace], NONE).astype(np.int32)
    on_trace, begin = on_trace.astype(np.int32), begin - shift
    return [
        Path(trace=on_trace[a:b], row=row[a:b], kind=piece[a:b], ts=begin[a:b], dur=dur[a:b])
        for a, b in pairwise(bounds.tolist())
    ]


def _ends(event_graph: EventGraph, result: Run, trace: int) -> NDArray[np.int64]:
    """Return the simulated ends of one trace's rows, ns, job time."""
    return result.end[int(event_graph.base[trace]) : int(event_graph.base[trace + 1])]


def _pieces(event_graph: EventGraph, graphs: list[TraceGraph]) -> NDArray[np.int8]:
    """Return which piece every node is [N]."""
    kind = np.concatenate([graph.rows.kind for graph in graphs])
    piece = np.full(len(kind), HOST_PIECE, np.int8)
    piece[kind == KERNEL] = KERNEL_PIECE
    piece[(kind == MEMCPY) | (kind == MEMSET)] = MEMORY_PIECE
    piece[event_graph.instance >= 0] = TRANSFER_PIECE
    return piece


def slack(event_graph: EventGraph, result: Run, graphs: list[TraceGraph], replays: list[Replay]) -> NDArray[np.int64]:
    """Return [N] ns by which each node may begin later without any step ending later; UNSET where unbounded."""
    limit = np.full(len(event_graph.own), backward.FAR)
    for k, (graph, replay) in enumerate(zip(graphs, replays, strict=True)):
        ends = _ends(event_graph, result, k)
        node, step = step_nodes(graph, replay.steps)
        last = last_nodes(graph, replay.steps, ends)
        limit[int(event_graph.base[k]) + node] = ends[last[step]]
    room, _ = late(event_graph, result, limit)
    return room


def late(event_graph: EventGraph, result: Run, limit: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `simulate.backward.slack` of an event graph and its simulation."""
    room, decided = backward.slack(
        event_graph.order,
        event_graph.pointer,
        event_graph.edge,
        event_graph.dst,
        event_graph.binds,
        event_graph.lag,
        event_graph.own,
        event_graph.instance,
        event_graph.transfer,
        limit,
        result.start,
    )
    return room, decided
