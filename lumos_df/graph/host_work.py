"""Which operators the host works on in the time between two atoms."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.simulate import recorded_work
from lumos_df.graph.simulate import selected as loops
from lumos_df.graph.simulate.forward import forward_star
from lumos_df.graph.steps import step_numbers, steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import ANNOTATION, CPU_OP, HANDOFF, NONE, PYTHON, RUNTIME, THREAD

NEXT_STEP: Final = "the next step"
"""What a silence is before that lasts to the mark of another step, whatever its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedRows:
    """Rows of one trace, some of them selected by one of several selectors each, numbered from 0; int32 [n]."""

    selector: NDArray[np.int32]
    """What selects the row, or NONE."""
    inner: NDArray[np.int32]
    """As `simulate.selected.outermost` returns it."""
    outer: NDArray[np.int32]
    """The same."""

    @property
    def outermost(self) -> NDArray[np.int64]:
        """Selected rows that lie in no other one of their selector."""
        return np.flatnonzero(self.inner == np.arange(len(self.inner)))

    def of(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (row, selector) [k] of the selectors of some rows and of the rows around these, each once."""
        place, selector = loops.selectors_of(rows, self.selector, self.inner, self.outer)
        return rows[place], selector


def selected_rows(selector: NDArray[np.int32], parent: NDArray[np.int32]) -> SelectedRows:
    """Return the rows that are selected; int32 [n] both, the second as in `Rows`."""
    inner, outer = loops.outermost(selector, parent)
    return SelectedRows(selector=selector, inner=inner, outer=outer)


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """The host work of one trace: the k edges whose lag it is, each with two stretches of time in which it was done.

    The first lies on the source's thread, from its end until that thread fell idle or gave the sign; the second on the
    target's, from when it was woken until the target began. Without a handoff the second is empty.
    """

    graph: TraceGraph
    edge: NDArray[np.int64]
    """[k]"""
    order: NDArray[np.int64]
    """Rows of the host, thread by thread, by time."""
    thread: NDArray[np.int32]
    """[4, k] thread of each moment."""
    at: NDArray[np.int64]
    """[4, k] begin and end of the first stretch and of the second, ns."""

    @cached_property
    def placed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The moments, and the place in `order` of the last row that had begun by then, as `_places` says."""
        return _places(self.graph, self.order, self.thread, self.at)

    def parts(
        self, thread: NDArray[np.int32], at: NDArray[np.int64], length: NDArray[np.int64], last: NDArray[np.int32]
    ) -> tuple[NDArray[Any], ...]:
        """Cut some host time by the operators, calls and Python functions that ran in it.

        Args:
            thread, at: [4, j] as those of an edge.
            length, last: as for `simulate.recorded_work.parts`, which says what is returned.
        """
        rows = self.graph.rows
        at, place = _places(self.graph, self.order, thread, at)
        frame = rows.kind == PYTHON
        works = frame | rows.of_kind(CPU_OP, RUNTIME)
        columns: tuple[NDArray[Any], ...] = recorded_work.parts(
            self.order, at, place, length, rows.ts, rows.end, rows.parent, works, frame, last
        )
        return columns

    def labels(self, thread: NDArray[np.int32], at: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the name of the annotation that lasted through half of each of some host times, or NONE [j].

        A label does not say what ran, but whoever wrote it knows. Those as long as a step mark steps.
        """
        rows, lasts = self.graph.rows, steps(self.graph.rows)
        at, place = _places(self.graph, self.order, thread, at)
        within = (rows.kind == ANNOTATION) & ~self.marks[rows.name] & (rows.dur < (lasts.high - lasts.low).max())
        label = recorded_work.most_of(self.order, at, place, length, rows.ts, rows.end, rows.parent, within)
        return np.where(label >= 0, rows.name[label], np.int32(NONE))

    @cached_property
    def marks(self) -> NDArray[np.bool_]:
        """Which names mark a step; not the missing one, at the end [names + 1]."""
        return step_numbers(self.graph.rows) >= 0

    def said(self, label: int, name: int) -> str:
        """Say where a silence is that lies in an annotation, or in NONE, and that a row ends, by their names."""
        names = self.graph.rows.names
        inside = f"in {names[label]}, " if label >= 0 else ""
        return f"{inside}before {NEXT_STEP if self.marks[name] else names[name]}"

    def share(self, marked: NDArray[np.bool_], *, everything: bool = False) -> NDArray[np.float64]:
        """Return [m] which part of each edge's lag is work of the marked rows, 0 to 1.

        Args:
            marked: bool [n].
            everything: also count the time between the recorded rows, where the edge's target is marked.
        """
        part = np.zeros(len(self.graph.edges))
        if everything:
            part[self.edge] = marked[self.graph.edges.dst[self.edge]]
        elif marked[self.order].any():
            edge, _, of_edge = self.shares(
                selected_rows(np.where(marked, np.int32(0), np.int32(NONE)), self.graph.rows.parent)
            )
            part[edge] = of_edge
        return part

    def shares(self, selected: SelectedRows) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """Return (edge, selector, part) [k]: which part of the edge's lag is work of the selector's rows, up to 1."""
        rows = self.graph.rows
        at, place = self.placed
        column, selector, worked = loops.work(
            self.order, at, place, rows.ts, rows.end, selected.selector, selected.inner, selected.outer
        )
        edge = self.edge[column]
        return edge, selector, np.minimum(worked / self.graph.edges.lag[edge], 1)


def host_work(graph: TraceGraph) -> HostWork:
    """Find the host work of a trace."""
    rows, atoms, edges, handoffs = graph.rows, graph.atoms, graph.edges, graph.handoffs
    edge = np.flatnonzero(np.isin(edges.kind, (THREAD, HANDOFF)) & (edges.lag > 0))
    src, dst, same_thread = edges.src[edge], edges.dst[edge], edges.kind[edge] == THREAD
    handoff_to = np.full(len(rows), NONE, np.int32)
    handoff_to[handoffs.target] = np.arange(len(handoffs.target))
    handoff = handoff_to[dst]
    has = handoff >= 0
    begin, over = (atoms.ts + atoms.dur)[atoms.of_row[src]], rows.ts[dst]
    stop, woken = over.copy(), over.copy()
    woken[has] = handoffs.woken[handoff[has]]
    stop[has & same_thread] = handoffs.idle[handoff[has & same_thread]]
    stop[has & ~same_thread] = handoffs.signal[handoff[has & ~same_thread]]
    woken = np.minimum(np.where(same_thread, np.maximum(woken, begin), woken), over)
    at = np.stack((begin, np.maximum(stop, begin), woken, over))
    thread = rows.thread[np.stack((src, src, dst, dst))]
    on_host = np.flatnonzero(rows.thread >= 0)
    _, by_thread = forward_star(rows.thread[on_host], int(rows.thread.max(initial=NONE)) + 1)
    return HostWork(graph=graph, edge=edge, order=on_host[by_thread], thread=thread, at=at)


def _places(
    graph: TraceGraph, order: NDArray[np.int64], thread: NDArray[np.int32], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return moments, none before its thread's first row, and the place in `order` of the last row by then."""
    at, place = at.copy(), np.zeros(at.shape, np.int64)
    of_thread = graph.rows.thread[order]
    first = np.flatnonzero(np.diff(of_thread, prepend=NONE))
    bounds = np.append(first, len(order)).tolist()
    for number, low, high in zip(of_thread[first].tolist(), bounds[:-1], bounds[1:], strict=True):
        begun = graph.rows.ts[order[low:high]]
        on_thread = thread == number
        at[on_thread] = np.maximum(at[on_thread], begun[0])
        place[on_thread] = low + np.searchsorted(begun, at[on_thread], side="right") - 1
    return at, place
