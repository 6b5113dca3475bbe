"""Why a step took as long as it did: the chain of work that ends with it, and how much room the rest has."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import backward
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.replay import Network, Replay, Run, last_nodes
from lumos_df.graph.rows import KERNEL, MEMCPY, MEMSET, NONE

PIECES: Final = ("host", "launch", "kernel", "transfer", "memory", "sync", "gap", "unexplained")
"""Host work, launch latency, a kernel, a collective's transfer, a copy or clear, the end of a synchronising call, a gap
between kernels, and time that no edge explains."""
HOST, LAUNCH, COMPUTE, TRANSFER, MEMORY, SYNCHRONISATION, GAP, UNEXPLAINED = range(len(PIECES))


@dataclass(frozen=True, slots=True)
class Path:
    """p pieces, ordered by time; they add up to the replayed step, and with the last one to the recorded step."""

    trace: NDArray[np.int32]
    """Place in the job of the trace on which the piece runs."""
    row: NDArray[np.int32]
    """Row of the operator in that trace: what runs, or what waits to begin; NONE for what is unexplained."""
    kind: NDArray[np.int8]
    """Place in `PIECES`."""
    ts: NDArray[np.int64]
    """ns, simulated, on the clock of the step's own trace."""
    dur: NDArray[np.int64]
    """ns; negative only for an unexplained piece: the recorded step was shorter than the replayed one."""


def critical_paths(net: Network, result: Run, graphs: list[Graph], replays: list[Replay]) -> list[list[Path]]:
    """Return the critical path of every step of every trace of a job, in their order."""
    kind = _kinds(net, graphs)
    edge_kind = np.concatenate([graph.edges.kind for graph in graphs])
    return [_paths(net, result, graphs[trace], replay, trace, kind, edge_kind) for trace, replay in enumerate(replays)]


def _paths(
    net: Network,
    result: Run,
    graph: Graph,
    replay: Replay,
    trace: int,
    kind: NDArray[np.int8],
    edge_kind: NDArray[np.int8],
) -> list[Path]:
    shift = int(net.shift[trace])
    marks = replay.steps
    last = last_nodes(graph, marks, result_ends(net, result, trace))
    bounds, node, code, begin, dur = backward.walks(
        np.where(last >= 0, last + net.base[trace], NONE),
        replay.low + shift,
        replay.high + shift,
        marks.high - marks.low,
        net.src,
        net.binds,
        edge_kind,
        kind,
        result.start,
        result.end,
        result.start_cause,
        result.end_cause,
    )
    of = np.where(node >= 0, np.searchsorted(net.base, node, side="right") - 1, trace)
    row = np.where(node >= 0, node - net.base[of], NONE)
    of, row, begin = of.astype(np.int32), row.astype(np.int32), begin - shift
    return [Path(of[a:b], row[a:b], code[a:b], begin[a:b], dur[a:b]) for a, b in pairwise(bounds.tolist())]


def result_ends(net: Network, result: Run, trace: int) -> NDArray[np.int64]:
    """Return the simulated ends of one trace's rows, ns, job time."""
    return result.end[int(net.base[trace]) : int(net.base[trace + 1])]


def _kinds(net: Network, graphs: list[Graph]) -> NDArray[np.int8]:
    """Return which piece every node is."""
    kind = np.concatenate([graph.rows.kind for graph in graphs])
    piece = np.full(len(kind), HOST, np.int8)
    piece[kind == KERNEL] = COMPUTE
    piece[(kind == MEMCPY) | (kind == MEMSET)] = MEMORY
    piece[net.instance >= 0] = TRANSFER
    return piece


def slack(net: Network, result: Run, graphs: list[Graph], replays: list[Replay]) -> NDArray[np.int64]:
    """Return [N] ns by which each node may begin later without any step ending later; UNSET where unbounded."""
    pinned = np.zeros(len(net.own), np.bool_)
    for k, (graph, replay) in enumerate(zip(graphs, replays, strict=True)):
        at = last_nodes(graph, replay.steps, result_ends(net, result, k))
        pinned[int(net.base[k]) + at[at >= 0]] = True
    room: NDArray[np.int64] = backward.slack(
        net.order,
        net.pointer,
        net.edge,
        net.dst,
        net.binds,
        net.lag,
        net.own,
        net.instance,
        net.transfer,
        pinned,
        result.start,
        result.end,
    )
    return room
