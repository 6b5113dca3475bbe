"""Steps of a GPU that falls behind: between the ends of its work where it has more of it than the host's steps last.

A host that waits for nothing runs ahead until a launch queue is full, so its first steps say nothing of how long the
GPU takes. No job goes on like this: in the long run a step takes what the slower of both does.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.simulate.forward import share
from lumos_df.graph.steps import Steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPace:
    """The GPU's work of a trace by the steps that issued it."""

    row: NDArray[np.int32]
    """[k] rows issued in a step."""
    place: NDArray[np.int64]
    """[k] which step."""
    early: NDArray[np.int32]
    """Rows that were issued before the first step."""

    @classmethod
    def of(cls, graph: TraceGraph, steps: Steps) -> "GpuPace | None":
        """Read a trace; None of one without marks, or without work of the GPU that was seen issued in a step.

        Work of a mark whose number an earlier one has lies behind the step of that number, so it says nothing either.
        """
        if steps.number[0] == NONE or steps.again.any():
            return None
        row, called = graph.gpu.row, graph.gpu.call >= 0
        place = steps.place(graph.rows.step[row])
        inside = called & (place >= 0)
        if not inside.any():
            return None
        at = np.where(called, graph.atoms.ts[np.maximum(graph.gpu.call, 0)], np.iinfo(np.int64).min)
        early = ~inside & graph.gpu.early | called & (at < steps.low[0])
        return cls(row=row[inside], place=place[inside], early=row[early])

    def windows(
        self, start: NDArray[np.int64], end: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return when the steps begin and end, ns [steps]: on the host, or as the GPU does what they issued.

        Args:
            start, end: of every row, recorded or simulated, ns [n].
            low, high: of the steps on the host, ns [steps].
        """
        begin, finish = start[self.row], end[self.row]
        order = np.argsort(begin, kind="stable")
        first, last = begin.min(keepdims=True), finish.max(keepdims=True)
        busy = int(share(begin[order], finish[order], first, last)[0])
        if busy <= int((high - low).sum()):
            return low, high
        done = high.copy()
        np.maximum.at(done, self.place, finish)
        done = np.maximum.accumulate(done)
        before = np.minimum(np.maximum(low[0], end[self.early].max(initial=low[0])), done[0])
        return np.append(before, done[:-1]), done

    def last_rows(self, end: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the row with whose end each of some `windows` begins, and the last one ends; NONE: none ends then."""
        found = np.full(len(high) + 1, NONE, np.int32)
        rows = np.concatenate((self.early, self.row))
        at = np.append(low[0], high)
        place = np.minimum(np.searchsorted(at, end[rows]), len(high))
        then = end[rows] == at[place]
        found[place[then]] = rows[then]
        return found


def paced(graph: TraceGraph, marks: Steps) -> Steps:
    """Return the steps of a trace as they follow one another in the long run: the GPU's, where it falls behind."""
    pace = GpuPace.of(graph, marks)
    if pace is None:
        return marks
    low, high = pace.windows(graph.rows.ts, graph.rows.end, marks.low, marks.high)
    if low is marks.low:
        return marks
    return replace(marks, low=low, high=high, gpu_row=pace.last_rows(graph.rows.end, low, high))
