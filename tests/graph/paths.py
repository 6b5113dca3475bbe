"""The critical path of every step of a simulated job, step by step; and the same found by a slow twin."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.critical_path import step_paths
from lumos_df.graph.job import Job, Played
from lumos_df.graph.path_ways import WalkedGraph
from lumos_df.graph.simulate.forward import CAME_LAST
from lumos_df.graph.step_nodes import last_nodes
from lumos_df.schema.codes import (
    END_START,
    GAP_PIECE,
    HANDOFF,
    HOST_PIECE,
    LAUNCH,
    LAUNCH_PIECE,
    NONE,
    STREAM,
    SYNC_EDGE,
    SYNC_PIECE,
    THREAD,
    TRANSFER_PIECE,
    UNKNOWN_PIECE,
)


@dataclass(frozen=True)
class Path:
    """The pieces of a step, from first to last; ns, job time."""

    trace: NDArray[Any]
    """Place in the job of the trace on which each runs."""
    row: NDArray[Any]
    kind: NDArray[Any]
    begin: NDArray[Any]
    dur: NDArray[Any]


def critical_paths(job: Job, played: Played) -> list[list[Path]]:
    """Return the path of every step of every trace of a job."""
    walked = WalkedGraph.of(played.event_graph, played.run, job.graphs)
    paths = step_paths(walked, played.replays)
    steps = np.cumsum([0, *(len(replay.low) for replay in played.replays)]).tolist()
    found = []
    for low, high in pairwise(steps):
        of_trace = []
        for step in range(low, high):
            _, segment = paths.of_steps(step, step + 1)
            pieces = paths.pieces(segment)
            trace = np.repeat(paths.trace[segment], np.diff(pieces.bounds))
            of_trace.append(Path(trace, pieces.row, pieces.kind, pieces.begin, pieces.dur))
        found.append(of_trace)
    return found


def walked_back(job: Job, played: Played) -> list[list[list[tuple[int, int, int, int]]]]:
    """Return (node, kind, begin, dur) of the pieces of every step, each walked back by itself over the whole job."""
    walked = WalkedGraph.of(played.event_graph, played.run, job.graphs)
    found = []
    for k, replay in enumerate(played.replays):
        base, shift = int(walked.event_graph.base[k]), int(walked.event_graph.shift[k])
        last = last_nodes(replay.graph, replay.steps, replay.run.end)
        steps = zip(last.tolist(), (replay.low + shift).tolist(), (replay.high + shift).tolist(), strict=True)
        found.append(
            [
                _walk(walked, base + v, low, high) if v >= 0 else [(NONE, UNKNOWN_PIECE, low, high - low)]
                for v, low, high in steps
            ]
        )
    return found


def _walk(walked: WalkedGraph, v: int, low: int, high: int) -> list[tuple[int, int, int, int]]:
    graph, run = walked.event_graph, walked.run
    pieces: list[tuple[int, int, int, int]] = []
    reached, at_end = high, True

    def back(owner: int, kind: int, moment: int) -> None:
        nonlocal reached
        if max(moment, low) < reached:
            pieces.append((owner, kind, max(moment, low), reached - max(moment, low)))
            reached = max(moment, low)

    back(v, HOST_PIECE, int(run.end[v]))
    while reached > low:
        owner, cause = v, int((run.end_cause if at_end else run.start_cause)[v])
        if at_end and cause < 0:
            v = v if cause == NONE else CAME_LAST - cause
            back(v, int(walked.piece[v]) if cause == NONE else TRANSFER_PIECE, int(run.start[v]))
            at_end = False
        elif cause < 0:
            back(owner, UNKNOWN_PIECE, low)
        else:
            kind, v = int(walked.edge_kind[cause]), int(graph.src[cause])
            what = HOST_PIECE if kind in (THREAD, HANDOFF, SYNC_EDGE) else LAUNCH_PIECE if kind == LAUNCH else GAP_PIECE
            if kind == STREAM and not at_end:
                told = int(run.start[owner]) - int(walked.unknown[owner])
                back(
                    owner,
                    UNKNOWN_PIECE,
                    max(told, int(run.end[v] if graph.binds[cause] == END_START else run.start[v])),
                )
            what, at_end = (SYNC_PIECE, True) if at_end else (what, graph.binds[cause] == END_START)
            back(owner, what, int(run.end[v] if at_end else run.start[v]))
    return pieces[::-1]
