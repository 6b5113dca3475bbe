"""Why a step took as long as it did: the chain of work that ends with it, and how much room the rest has."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import backward
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.replay import Network, Replay, Run, last_node
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
    return [
        [_path(net, result, graphs, replay, trace, step, kind, edge_kind) for step in range(len(replay.low))]
        for trace, replay in enumerate(replays)
    ]


def _path(
    net: Network,
    result: Run,
    graphs: list[Graph],
    replay: Replay,
    trace: int,
    step: int,
    kind: NDArray[np.int8],
    edge_kind: NDArray[np.int8],
) -> Path:
    shift = int(net.shift[trace])
    low, high = int(replay.low[step]) + shift, int(replay.high[step]) + shift
    at = last_node(
        graphs[trace], int(replay.steps.mark[step]), int(replay.steps.high[step]), result_ends(net, result, trace)
    )
    if at == NONE:
        node, code, begin, dur = np.array([NONE]), np.array([UNEXPLAINED]), np.array([low]), np.array([high - low])
    else:
        start = int(net.base[trace]) + at
        node, code, begin, dur = backward.walk(
            start,
            low,
            high,
            net.src,
            net.binds,
            edge_kind,
            kind,
            result.start,
            result.end,
            result.start_cause,
            result.end_cause,
        )
    recorded = int(replay.steps.high[step] - replay.steps.low[step])
    node = np.append(node[::-1], NONE)
    code = np.append(code[::-1], UNEXPLAINED).astype(np.int8)
    begin = np.append(begin[::-1], high) - shift
    dur = np.append(dur[::-1], recorded - (high - low))
    of = np.where(node >= 0, np.searchsorted(net.base, node, side="right") - 1, trace)
    row = np.where(node >= 0, node - net.base[of], NONE)
    return Path(of.astype(np.int32), row.astype(np.int32), code, begin, dur)


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
        for mark, high in zip(replay.steps.mark.tolist(), replay.steps.high.tolist(), strict=True):
            at = last_node(graph, mark, high, result_ends(net, result, k))
            if at != NONE:
                pinned[int(net.base[k]) + at] = True
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
