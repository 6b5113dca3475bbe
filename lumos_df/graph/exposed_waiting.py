"""How much of a step's exposed communication only waits for other ranks; the rest of it transfers something."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import CollectiveWaits
from lumos_df.graph.job import Played
from lumos_df.graph.replay import Replay
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import share
from lumos_df.graph.steps import Steps
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE


def recorded_waiting(rows: Rows, marks: Steps, collectives: CollectiveWaits, k: int) -> NDArray[np.int64]:
    """Return how long the recorded steps of the k-th trace do nothing but wait for other ranks, ns [steps].

    NONE where that is unknown. Where one kernel waits and another transfers, something is transferred.
    """
    kernels = collectives.of_trace(k)
    transfer = np.full(len(rows), NONE, np.int64)
    transfer[collectives.row[kernels]] = collectives.transfer[kernels]
    return _waiting(rows, transfer, rows.ts, rows.end, marks.low, marks.high)


def recorded_waits(collectives: CollectiveWaits, k: int, rows: int) -> NDArray[np.int64]:
    """Return how long each row of the k-th trace waits for ranks that were recorded, and for others, ns [2, rows]."""
    kernels = collectives.of_trace(k)
    waits = np.zeros((2, rows), np.int64)
    waits[:, collectives.row[kernels]] = collectives.waiting[kernels], collectives.unseen[kernels]
    return waits


def simulated_waiting(played: Played, k: int, replay: Replay, waits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the same of the steps of a simulation, ns [steps].

    A collective's wait for ranks that were recorded is simulated; that of a kernel that was not matched stays, and so
    does any for ranks that nobody recorded.

    Args:
        played: the simulation of the job.
        k: number of the trace.
        replay: its steps.
        waits: how long each of its rows waited as recorded, as `recorded_waits` returns it [2, n].
    """
    graph, rows = played.event_graph, replay.graph.rows
    instance = graph.instance[int(graph.base[k]) : int(graph.base[k + 1])]
    lasted = replay.end - replay.start
    late, unseen = waits
    moved = np.where(instance == NONE, lasted - late, np.append(graph.transfer, 0)[instance])
    transfer = np.where(unseen == NONE, NONE, np.clip(moved - unseen, 0, np.maximum(lasted, 0)))
    return _waiting(rows, transfer, replay.start, replay.end, replay.low, replay.high)


def _waiting(
    rows: Rows,
    transfer: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how long windows [low, high] only wait, by when rows run and the transfer of each, ns; NONE is unknown."""
    kernel = np.flatnonzero((rows.kind == KERNEL) & (rows.stream >= 0))
    begin, finish, moves = start[kernel], end[kernel], transfer[kernel]
    communicates = rows.family[kernel] == COMMUNICATION
    if not communicates.any():
        return np.zeros(len(low), np.int64)
    works = np.where(communicates, np.maximum(begin, finish - moves), begin)
    waiting = _covered(begin, finish, low, high) - _covered(works, finish, low, high)
    unknown = communicates & (moves == NONE)
    return np.where(_covered(begin[unknown], finish[unknown], low, high) > 0, NONE, waiting)


def _covered(
    begin: NDArray[np.int64], finish: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> NDArray[np.int64]:
    order = np.argsort(begin, kind="stable")
    covered: NDArray[np.int64] = share(begin[order], finish[order], low, high)
    return covered
