"""The host's side: which moments of a thread simulate, and where one thread waits for another.

A thread is a chain of atoms: runtime calls, which last, and beginnings of other rows, which are moments. What lies
between two atoms is host work of measured duration, except where the thread was idle because another one had the baton.
Without a GPU the operators that do the work last, too.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate import threads
from lumos_df.graph.simulate.forward import forward_star, inherited
from lumos_df.schema.codes import ANNOTATION, CPU_OP, NONE, RUNTIME

IDLE_NS: Final = 20_000
"""Threshold, ns. A thread's gap may be a wait for another thread from this on.
Evidence: waking a thread alone takes about as long."""
_PROMPT_SHARE: Final = 0.5
"""Threshold, share of the shorter rest. A thread that goes on so soon after another one stopped waited for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoffs:
    """Moments at which a thread went on because another had finished; one entry each."""

    target: NDArray[np.int32]
    """Row that begins after the wait."""
    idle: NDArray[np.int64]
    """When the waiting thread had become idle, ns; the earliest time for a thread that had not run."""
    woken: NDArray[np.int64]
    """When it went on, ns: at the latest the beginning of `target`."""
    source_thread: NDArray[np.int32]
    """The other thread."""
    signal: NDArray[np.int64]
    """When the other thread had finished, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Atoms:
    """n atoms of the host, ordered by time; times ns."""

    row: NDArray[np.int32]
    """Row that it is a moment of."""
    thread: NDArray[np.int32]
    """Its thread."""
    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    """0 where the atom is the beginning of a row."""
    of_row: NDArray[np.int32]
    """Atom of each row: its own, or that of the call or working operator around it; NONE for the others."""
    before: NDArray[np.int32]
    """Previous atom of the same thread, or NONE."""
    by_thread: NDArray[np.int32]
    """Atoms by (thread, time)."""
    bounds: NDArray[np.int32]
    """Where each thread begins in `by_thread`, and the end: thread t is `bounds[t]:bounds[t + 1]`."""

    def last_before(self, thread: int, moments: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the last atom of a thread that begins at or before each moment, or NONE."""
        atom = self.by_thread[self.bounds[thread] : self.bounds[thread + 1]]
        place = np.searchsorted(self.ts[atom], moments, side="right") - 1
        return np.where(place >= 0, atom[np.maximum(place, 0)] if len(atom) else NONE, NONE).astype(np.int32)


def handoffs(rows: Rows) -> Handoffs:
    """Find where the baton went from one thread to another.

    Thread B was idle, thread A stopped and stayed idle, and after that B went on: B waited for A. Threads that only
    make runtime calls (watchdogs) take no part.
    """
    boundaries = _boundaries(rows)
    pairs = [(a, b) for b in boundaries for a in boundaries if a != b]
    between = [_between(boundaries[a], boundaries[b], a) for a, b in pairs]
    columns = (
        [np.concatenate(column) for column in zip(*between, strict=True)] if pairs else [np.empty(0, np.int64)] * 5
    )
    target, idle, woken, source, signal = columns
    # Where several threads stopped before, the last of them passed the baton.
    order = np.lexsort((-signal, target))
    last = order[np.flatnonzero(np.diff(target[order], prepend=-1))]
    return Handoffs(
        target=target[last].astype(np.int32),
        idle=idle[last],
        woken=woken[last],
        source_thread=source[last].astype(np.int32),
        signal=signal[last],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boundaries:
    """Beginnings and ends of one thread's rows, in order of time."""

    at: NDArray[np.int64]
    gap: NDArray[np.int64]
    """ns since the boundary before; 0 inside a runtime call."""
    next_start: NDArray[np.int64]
    """Row that begins at or next after each boundary, NONE after the last."""
    in_operator: NDArray[np.bool_]
    """Whether the time since the boundary before was all one CPU operator's."""


def _host_rows(rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the rows of the host by (thread, time), and where each thread begins among them, and the end."""
    host = np.flatnonzero((rows.thread >= 0) & rows.of_kind(CPU_OP, RUNTIME, ANNOTATION)).astype(np.int32)
    bounds, place = forward_star(rows.thread[host], int(rows.thread.max(initial=NONE)) + 1)
    return host[place], bounds


def _boundaries(rows: Rows) -> dict[int, _Boundaries]:
    """Return the boundaries of every thread that has CPU operators."""
    row, bounds = _host_rows(rows)
    operators = np.bincount(rows.thread[row], rows.kind[row] == CPU_OP, len(bounds) - 1)
    return {
        thread: _thread_boundaries(rows, row[bounds[thread] : bounds[thread + 1]])
        for thread in np.flatnonzero(operators).tolist()
    }


def _thread_boundaries(rows: Rows, row: NDArray[np.int32]) -> _Boundaries:
    at, gap, next_start, in_operator = threads.boundaries(row, rows.ts, rows.end, rows.kind)
    return _Boundaries(at=at, gap=gap, next_start=next_start, in_operator=in_operator)


def _between(a: _Boundaries, b: _Boundaries, source: int) -> tuple[NDArray[np.int64], ...]:
    """Return (target, idle, woken, source, signal) of the handoffs from thread `source`, of boundaries a, to b's."""
    wake = np.flatnonzero((b.gap >= IDLE_NS) & (b.next_start >= 0))
    woken = b.at[wake]
    before = np.searchsorted(a.at, woken, side="right") - 1
    after = np.minimum(before + 1, len(a.at) - 1)
    has = before >= 0
    signal = a.at[np.maximum(before, 0)]
    rest = np.where(before + 1 < len(a.at), a.gap[after], FAR)
    idle = woken - b.gap[wake]
    stays = (before + 1 >= len(a.at)) | (a.at[after] - woken >= IDLE_NS)
    # The wait of b is over soon after a stopped, measured by how long either of them rested.
    prompt = woken - signal <= _PROMPT_SHARE * np.minimum(b.gap[wake], rest)
    keep = has & (rest >= IDLE_NS) & stays & (signal >= idle) & prompt
    target = b.next_start[wake[keep]].astype(np.int64)
    return target, idle[keep], woken[keep], np.full(len(target), source, np.int64), signal[keep]


def silences(rows: Rows, handoffs: Handoffs, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (row that ended it, ns) of the times, at least `least` ns, in which a thread did nothing recorded.

    Waits for another thread are not meant, nor are threads without CPU operators.
    """
    ended, lasted = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for thread in _boundaries(rows).values():
        silent = (thread.gap >= least) & ~thread.in_operator & (thread.next_start >= 0)
        silent[:1] = False
        silent &= ~np.isin(thread.next_start, handoffs.target)
        ended.append(thread.next_start[silent].astype(np.int64))
        lasted.append(thread.gap[silent])
    return np.concatenate(ended), np.concatenate(lasted)


def working(rows: Rows, beginnings: NDArray[np.int32], handoffs: Handoffs) -> NDArray[np.bool_]:
    """Return the operators that do the work of a trace without a GPU [n]: none lies in another, nor does a moment.

    Those are the operators of a name that spends at least half its time in none of the operators that it calls, apart
    from those that waited for another thread.

    Args:
        rows: the operators.
        beginnings: rows whose beginning is a moment of the simulation.
        handoffs: where threads waited.
    """
    operator = (rows.kind == CPU_OP) & (rows.thread >= 0)
    if rows.on_gpu.any() or (rows.kind == RUNTIME).any() or not operator.any():
        return np.zeros(len(rows), np.bool_)
    inside = operator & (rows.parent >= 0)
    called = np.bincount(rows.parent[inside], rows.dur[inside], len(rows))
    name = rows.name[operator]
    alone = np.bincount(name, (rows.dur - called)[operator], len(rows.names))
    whole = np.bincount(name, rows.dur[operator], len(rows.names))
    works: NDArray[np.bool_] = operator & (2 * alone >= whole)[rows.name]
    above = rows.parent[beginnings]
    while (above >= 0).any():
        works[above[above >= 0]] = False
        above = np.where(above >= 0, rows.parent[np.maximum(above, 0)], NONE)
    works &= ~_waits(rows, handoffs)
    inner: NDArray[np.bool_] = (rows.parent >= 0) & inherited(works, rows.parent)[rows.parent]
    return works & ~inner


def _waits(rows: Rows, handoffs: Handoffs) -> NDArray[np.bool_]:
    """Return the rows in which their thread waited for another one [n]."""
    waits = np.zeros(len(rows), np.bool_)
    for thread in np.unique(rows.thread[handoffs.target]).tolist():
        idle = np.sort(handoffs.idle[rows.thread[handoffs.target] == thread])
        row = np.flatnonzero(rows.thread == thread)
        waits[row] = np.searchsorted(idle, rows.end[row]) > np.searchsorted(idle, rows.ts[row])
    return waits


def atoms(rows: Rows, beginnings: NDArray[np.int32], works: NDArray[np.bool_]) -> Atoms:
    """Return the atoms: calls that lie in no other, working operators, the beginnings of given rows and of threads."""
    lasts = (rows.kind == RUNTIME) | works
    outer = rows.parent
    nested = lasts & (outer >= 0) & lasts[np.maximum(outer, 0)]
    is_atom = lasts & ~nested & (rows.thread >= 0)
    host, bounds = _host_rows(rows)
    is_atom[host[bounds[:-1][np.diff(bounds) > 0]]] = True
    is_atom[beginnings] = True
    row = _as_called(rows, np.flatnonzero(is_atom).astype(np.int32))
    thread = rows.thread[row]
    of_row = np.full(len(rows), NONE, np.int32)
    of_row[row] = np.arange(len(row))
    inner = np.flatnonzero(nested)
    of_row[inner] = of_row[outer[inner]]
    below = np.flatnonzero(inherited(works, outer) & ~works)
    at = outer[below]
    while (further := ~works[at]).any():
        at = np.where(further, outer[at], at)
    of_row[below] = of_row[at]
    before = np.full(len(row), NONE, np.int32)
    bounds, order = forward_star(thread, len(bounds) - 1)
    before[order[1:]] = order[:-1]
    before[order[bounds[:-1][np.diff(bounds) > 0]]] = NONE
    return Atoms(
        row=row,
        thread=thread,
        ts=rows.ts[row],
        dur=np.where(lasts[row], rows.dur[row], 0),
        of_row=of_row,
        before=before,
        by_thread=order,
        bounds=bounds,
    )


def _as_called(rows: Rows, row: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return rows, ordered by time, with the calls that began at one moment in the order of their correlation ids.

    A coarse clock does not tell which of them came first; CUPTI numbers the calls of a process as they come.
    """
    numbered = np.flatnonzero((rows.kind[row] == RUNTIME) & (rows.correlation[row] != rows.null))
    call = row[numbered]
    called = row.copy()
    called[numbered] = call[np.lexsort((rows.correlation[call], rows.ts[call]))]
    return called
