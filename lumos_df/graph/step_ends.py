"""Between which moments of a job its steps lie, and how long they are when only these are known of a simulation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate import threads
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.graph.steps import works
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnds:
    """The ends of all steps of a job: q moments of the host, each between two of p atoms or beside one.

    A step between marks has two. A trace without marks lies between the first and the last of every thread's and every
    GPU row's moments.
    """

    recorded: NDArray[np.int64]
    """[steps of all traces] how long they were, ns: all that is known of a step without any moment."""
    step: NDArray[np.int64]
    """[q] the step of each moment."""
    is_last: NDArray[np.bool_]
    """[q] whether the step ends there; otherwise it begins."""
    at: NDArray[np.int64]
    """[q] as recorded, ns."""
    bounds: NDArray[np.int64]
    """[q + 1] where the atoms around each moment begin, and the end."""
    row: NDArray[np.int64]
    """[p] row of each atom in the job."""
    ts: NDArray[np.int64]
    """[p] as recorded, ns."""
    dur: NDArray[np.int64]
    """[p] ns."""
    idle: NDArray[np.int64]
    """[p] ns of the gap before the atom in which its thread waited for another one."""
    gpu_row: NDArray[np.int64]
    """[g] rows of the GPU in the traces without marks."""
    gpu_extent: NDArray[np.int32]
    """[g] which of these traces each is of."""
    extent_step: NDArray[np.int64]
    """The step of each of these traces."""

    def lengths(
        self, start: NDArray[np.int64], end: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return how long the steps are in several simulations, ns [simulations, steps]; arguments as of `windows`."""
        low, high = self.windows(start, end, first, last)
        lasted: NDArray[np.int64] = np.maximum(high - low, 0).T
        return lasted

    def windows(
        self, start: NDArray[np.int64], end: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return when the steps begin and end in several simulations, ns [steps, simulations].

        One of which no moment is known begins at 0 and is as long as recorded.

        Args:
            start, end: [p, simulations] the atoms as simulated, ns.
            first, last: [traces without marks, simulations] first start and last end of the GPU's rows, ns.
        """
        atoms, simulations = start.shape
        every = np.arange(atoms * simulations, dtype=np.int32)
        bounds = (self.bounds[:-1] + atoms * np.arange(simulations)[:, None]).ravel()
        moment = threads.moments(
            np.tile(self.at, simulations),
            np.arange(len(bounds), dtype=np.int32),
            every,
            np.append(bounds, len(every)).astype(np.int32),
            every,
            np.tile(self.ts, simulations),
            np.tile(self.dur, simulations),
            start.T.ravel(),
            end.T.ravel(),
            np.tile(self.idle, simulations),
        ).reshape(simulations, -1)
        low, high = np.full((2, len(self.recorded), simulations), UNSET) * [[[-1]], [[1]]]
        np.minimum.at(low, self.step[~self.is_last], moment.T[~self.is_last])
        np.maximum.at(high, self.step[self.is_last], moment.T[self.is_last])
        np.minimum.at(low, self.extent_step, first)
        np.maximum.at(high, self.extent_step, last)
        unknown = high == UNSET
        return np.where(unknown, 0, low), np.where(unknown, self.recorded[:, None], high)


def step_ends(graph: EventGraph, replays: list[Replay]) -> StepEnds:
    """Return the ends of the steps of a job: its event graph, and its traces as replayed."""
    bounds = np.cumsum([0, *(len(replay.low) for replay in replays)])
    of_traces = [_of_trace(replay) for replay in replays]
    whole = {name: np.concatenate([columns[name] for columns in of_traces]) for name in of_traces[0]}
    trace = np.repeat(np.arange(len(replays)), [len(columns["at"]) for columns in of_traces])
    around = whole["around"]
    unmarked = [k for k, replay in enumerate(replays) if replay.steps.mark[0] == NONE]
    gpu_rows = [graph.base[k] + replays[k].graph.gpu.row for k in unmarked]
    return StepEnds(
        recorded=np.concatenate([replay.steps.high - replay.steps.low for replay in replays]),
        step=whole["step"] + bounds[trace],
        is_last=whole["is_last"],
        at=whole["at"],
        bounds=np.append(0, np.cumsum(around.sum(axis=1))),
        row=(whole["row"] + graph.base[trace][:, None])[around],
        ts=whole["ts"][around],
        dur=whole["dur"][around],
        idle=whole["idle"][around],
        gpu_row=np.concatenate([np.empty(0, np.int64), *gpu_rows]),
        gpu_extent=np.repeat(np.arange(len(unmarked), dtype=np.int32), [len(rows) for rows in gpu_rows]),
        extent_step=bounds[unmarked],
    )


def _of_trace(replay: Replay) -> dict[str, NDArray[Any]]:
    """Return the columns of `StepEnds` for one trace: [q], and [q, 2] of the atoms, `around` says which are any."""
    rows, atoms, marks = replay.graph.rows, replay.graph.atoms, replay.steps
    if marks.mark[0] == NONE:
        low, high = np.full((2, len(atoms.bounds)), UNSET) * [[-1], [1]]
        host = (rows.thread >= 0) & works(rows)
        worked = np.zeros(len(atoms.bounds) - 1, np.bool_)
        worked[rows.thread[host]] = True
        thread = np.flatnonzero(worked & (np.diff(atoms.bounds) > 0)).astype(np.int32)
        step = np.zeros(len(thread), np.int64)
        np.minimum.at(low, rows.thread[host], rows.ts[host])
        np.maximum.at(high, rows.thread[host], rows.end[host])
        at = np.concatenate((low[thread], high[thread]))
    else:
        thread = rows.thread[marks.mark]
        step = np.arange(len(marks.mark))
        at = np.concatenate((marks.low, marks.high))
    thread = np.tile(thread, 2)
    after = threads.reached(thread, at, atoms.bounds, atoms.ts[atoms.by_thread])
    first, last = atoms.bounds[thread], atoms.bounds[thread + 1] - 1
    place = np.stack((np.maximum(after - 1, first), np.minimum(after, last)), axis=1)
    atom = atoms.by_thread[place]
    return {
        "step": np.tile(step, 2),
        "is_last": np.repeat((False, True), len(step)),
        "at": at,
        "around": np.stack((np.ones(len(at), np.bool_), place[:, 1] != place[:, 0]), axis=1),
        "row": atoms.row[atom],
        "ts": atoms.ts[atom],
        "dur": atoms.dur[atom],
        "idle": replay.graph.idle_before[atoms.row[atom]],
    }
