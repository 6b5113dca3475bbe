"""The host's side: which moments of a thread simulate, and where one thread waits for another.

A thread is a chain of atoms: runtime calls, which last, and beginnings of other rows, which are moments. What lies
between two atoms is host work of measured duration, except where the thread was idle because another one had the baton.
Without a GPU the operators that do the work last, too.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import threads
from lumos_df.graph.rows import ANNOTATION, CPU_OP, NONE, RUNTIME, Rows
from lumos_df.graph.simulate import forward_star, inherited

IDLE_NS: Final = 20_000
"""Shorter gaps of a thread are its own work; waking a thread alone takes about as long."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
        own = self.by_thread[self.bounds[thread] : self.bounds[thread + 1]]
        place = np.searchsorted(self.ts[own], moments, side="right") - 1
        return np.where(place >= 0, own[np.maximum(place, 0)] if len(own) else NONE, NONE).astype(np.int32)


def handoffs(rows: Rows) -> Handoffs:
    """Find where the baton went from one thread to another.

    Thread B was idle, thread A stopped and stayed idle, and after that B went on: B waited for A. Threads that only
    make runtime calls (watchdogs) take no part.
    """
    edges = _boundaries(rows)
    workers = list(edges)
    found = [_passes(edges[a], edges[b], a) for b in workers for a in workers if a != b]
    parts = [np.concatenate(column) for column in zip(*found, strict=True)] if found else [np.empty(0, np.int64)] * 5
    target, idle, woken, source, signal = parts
    # Where several threads stopped before, the last of them passed the baton.
    order = np.lexsort((-signal, target))
    first = order[np.flatnonzero(np.diff(target[order], prepend=-1))]
    return Handoffs(
        target[first].astype(np.int32), idle[first], woken[first], source[first].astype(np.int32), signal[first]
    )


@dataclass(frozen=True, slots=True)
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
        thread: _Boundaries(*threads.boundaries(row[bounds[thread] : bounds[thread + 1]], rows.ts, rows.end, rows.kind))
        for thread in np.flatnonzero(operators).tolist()
    }


def _passes(a: _Boundaries, b: _Boundaries, thread: int) -> tuple[NDArray[np.int64], ...]:
    """Return (target, idle, woken, source thread, signal) of the passes from thread `thread` (boundaries a) to b's."""
    k = np.flatnonzero((b.gap >= IDLE_NS) & (b.next_start >= 0))
    woken = b.at[k]
    before = np.searchsorted(a.at, woken, side="right") - 1
    after = np.minimum(before + 1, len(a.at) - 1)
    has = before >= 0
    signal = a.at[np.maximum(before, 0)]
    stays = np.where(before + 1 < len(a.at), a.gap[after], np.int64(1) << 60)
    idle = woken - b.gap[k]
    rests = (before + 1 >= len(a.at)) | (a.at[after] - woken >= IDLE_NS)
    # The wait of b is over soon after a stopped, measured by how long either of them rested.
    prompt = 2 * (woken - signal) <= np.minimum(b.gap[k], stays)
    keep = has & (stays >= IDLE_NS) & rests & (signal >= idle) & prompt
    k, woken, signal, idle = k[keep], woken[keep], signal[keep], idle[keep]
    return b.next_start[k].astype(np.int64), idle, woken, np.full(len(k), thread, np.int64), signal


def silences(rows: Rows, passes: Handoffs, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (row that ended it, ns) of the times, at least `least` ns, in which a thread did nothing recorded.

    Waits for another thread are not meant, nor are threads without CPU operators.
    """
    ended, lasted = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for of in _boundaries(rows).values():
        silent = (of.gap >= least) & ~of.in_operator & (of.next_start >= 0)
        silent[:1] = False
        silent &= ~np.isin(of.next_start, passes.target)
        ended.append(of.next_start[silent].astype(np.int64))
        lasted.append(of.gap[silent])
    return np.concatenate(ended), np.concatenate(lasted)


def working(rows: Rows, beginnings: NDArray[np.int32], passes: Handoffs) -> NDArray[np.bool_]:
    """Return the operators that do the work of a trace without a GPU [n]: none lies in another, nor does a moment.

    Those are the operators of a name that spends at least half its time in none of the operators that it calls, apart
    from those that waited for another thread.

    Args:
        rows: the operators.
        beginnings: rows whose beginning is a moment of the simulation.
        passes: where threads waited.
    """
    operator = (rows.kind == CPU_OP) & (rows.thread >= 0)
    if rows.on_gpu.any() or (rows.kind == RUNTIME).any() or not operator.any():
        return np.zeros(len(rows), np.bool_)
    inside = operator & (rows.parent >= 0)
    called = np.bincount(rows.parent[inside], rows.dur[inside], len(rows))
    name = rows.name[operator]
    alone = np.bincount(name, (rows.dur - called)[operator], len(rows.names))
    whole = np.bincount(name, rows.dur[operator], len(rows.names))
    own: NDArray[np.bool_] = operator & (2 * alone >= whole)[rows.name]
    above = rows.parent[beginnings]
    while (above >= 0).any():
        own[above[above >= 0]] = False
        above = np.where(above >= 0, rows.parent[np.maximum(above, 0)], NONE)
    own &= ~_waits(rows, passes)
    inner: NDArray[np.bool_] = (rows.parent >= 0) & inherited(own, rows.parent)[rows.parent]
    return own & ~inner


def _waits(rows: Rows, passes: Handoffs) -> NDArray[np.bool_]:
    """Return the rows in which their thread waited for another one [n]."""
    found = np.zeros(len(rows), np.bool_)
    for thread in np.unique(rows.thread[passes.target]).tolist():
        idle = np.sort(passes.idle[rows.thread[passes.target] == thread])
        row = np.flatnonzero(rows.thread == thread)
        found[row] = np.searchsorted(idle, rows.end[row]) > np.searchsorted(idle, rows.ts[row])
    return found


def atoms(rows: Rows, beginnings: NDArray[np.int32], works: NDArray[np.bool_]) -> Atoms:
    """Return the atoms: calls that lie in no other, working operators, the beginnings of given rows and of threads."""
    lasts = (rows.kind == RUNTIME) | works
    outer = rows.parent
    nested = lasts & (outer >= 0) & lasts[np.maximum(outer, 0)]
    is_atom = lasts & ~nested & (rows.thread >= 0)
    host, bounds = _host_rows(rows)
    is_atom[host[bounds[:-1][np.diff(bounds) > 0]]] = True
    is_atom[beginnings] = True
    row = np.flatnonzero(is_atom).astype(np.int32)
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
    return Atoms(row, thread, rows.ts[row], np.where(lasts[row], rows.dur[row], 0), of_row, before, order, bounds)
