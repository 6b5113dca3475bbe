"""Between which moments of a job its steps lie, and how long they are when only these are known of a simulation."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate import threads
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.graph.steps import Steps, works
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnds:
    """The ends of all steps of a job: q moments, each between two of p atoms or beside one.

    Atoms are those of the host and, where the GPU falls behind it, rows of the GPU with which steps end. A step between
    marks has two moments. A trace without marks lies between the first and the last of every thread's and every GPU
    row's moments.
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
    start_node: NDArray[np.int64]
    """[p] the node that starts when each atom does: its row."""
    end_node: NDArray[np.int64]
    """[p] the node that ends when each atom does: its row, too, but for contracted graphs."""
    ts: NDArray[np.int64]
    """[p] as recorded, ns."""
    dur: NDArray[np.int64]
    """[p] ns."""
    idle: NDArray[np.int64]
    """[p] ns of the gap before the atom in which its thread waited for another one."""
    gpu_node: NDArray[np.int64]
    """[g] rows of the GPU in the traces without marks."""
    gpu_extent: NDArray[np.int32]
    """[g] which of these traces each is of."""
    extent_step: NDArray[np.int64]
    """The step of each of these traces."""

    @classmethod
    def joined(cls, parts: "list[StepEnds]", base: NDArray[np.int64]) -> Self:
        """Return the ends of the steps of several traces as those of a job; `base`: [traces] the first node of each."""
        steps, atoms, extents = (
            np.cumsum([0, *(len(getattr(part, name)) for part in parts)])
            for name in ("recorded", "start_node", "extent_step")
        )

        def column(name: str, offsets: NDArray[np.int64] | None = None) -> NDArray[Any]:
            columns = [getattr(part, name) for part in parts]
            if offsets is not None:
                columns = [values + offsets[k] for k, values in enumerate(columns)]
            return np.concatenate(columns)

        return cls(
            recorded=column("recorded"),
            step=column("step", steps),
            is_last=column("is_last"),
            at=column("at"),
            bounds=np.append(0, np.concatenate([part.bounds[1:] + atoms[k] for k, part in enumerate(parts)])),
            start_node=column("start_node", base),
            end_node=column("end_node", base),
            ts=column("ts"),
            dur=column("dur"),
            idle=column("idle"),
            gpu_node=column("gpu_node", base),
            gpu_extent=column("gpu_extent", extents).astype(np.int32),
            extent_step=column("extent_step", steps),
        )

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
    return StepEnds.joined([ends_of(replay.graph, replay.steps) for replay in replays], graph.base)


def ends_of(graph: TraceGraph, marks: Steps) -> StepEnds:
    """Return the ends of the steps of one trace; its atoms are known by their rows."""
    rows, atoms = graph.rows, graph.atoms
    marked = marks.mark[0] != NONE
    if marked:
        thread = rows.thread[marks.mark]
        step = np.arange(len(marks.mark))
        at = np.concatenate((marks.low, marks.high))
    else:
        low, high = np.full((2, len(atoms.bounds)), UNSET) * [[-1], [1]]
        host = (rows.thread >= 0) & works(rows)
        worked = np.zeros(len(atoms.bounds) - 1, np.bool_)
        worked[rows.thread[host]] = True
        thread = np.flatnonzero(worked & (np.diff(atoms.bounds) > 0)).astype(np.int32)
        step = np.zeros(len(thread), np.int64)
        np.minimum.at(low, rows.thread[host], rows.ts[host])
        np.maximum.at(high, rows.thread[host], rows.end[host])
        at = np.concatenate((low[thread], high[thread]))
    thread = np.tile(thread, 2)
    after = threads.reached(thread, at, atoms.bounds, atoms.ts[atoms.by_thread])
    first, last = atoms.bounds[thread], atoms.bounds[thread + 1] - 1
    place = np.stack((np.maximum(after - 1, first), np.minimum(after, last)), axis=1)
    # A step of a GPU that falls behind ends with a row of it, beside which there is no other.
    gpu = np.concatenate((marks.gpu_row[:-1], marks.gpu_row[1:])) if marked else np.full(len(at), NONE)
    on_gpu = gpu[:, None] >= 0
    around = np.stack((np.ones(len(at), np.bool_), (place[:, 1] != place[:, 0]) & ~on_gpu[:, 0]), axis=1)
    atom = atoms.by_thread[place]
    row, ts, dur = (
        np.where(on_gpu, of_rows[gpu][:, None], of_atoms)[around]
        for of_rows, of_atoms in (
            (np.arange(len(rows)), atoms.row[atom]),
            (rows.ts, atoms.ts[atom]),
            (rows.dur, atoms.dur[atom]),
        )
    )
    gpu_row = np.empty(0, np.int64) if marked else graph.gpu.row.astype(np.int64)
    return StepEnds(
        recorded=marks.high - marks.low,
        step=np.tile(step, 2),
        is_last=np.repeat((False, True), len(step)),
        at=at,
        bounds=np.append(0, np.cumsum(around.sum(axis=1))),
        start_node=row,
        end_node=row,
        ts=ts,
        dur=dur,
        idle=graph.idle_before[row],
        gpu_node=gpu_row,
        gpu_extent=np.zeros(len(gpu_row), np.int32),
        extent_step=np.zeros(0 if marked else 1, np.int64),
    )
