"""The host's side: which moments of a thread simulate, and where one thread waits for another.

A thread is a chain of atoms: runtime calls, which last, and beginnings of other rows, which are moments. What lies
between two atoms is host work of measured duration, except where the thread was idle because another one had the baton.
Without a GPU the operators that do the work last, too.
"""

import re
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
_COMPILED: Final = re.compile(r"CompiledFunction(?:Backward)?$|Torch-Compiled Region")
"""What runs the passes of a net that torch.compile made."""
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

    def last_before(self, thread: NDArray[np.int32], moments: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the last atom of each thread that begins at or before each moment, or NONE; all [k]."""
        place = threads.reached(thread, moments, self.bounds, self.ts[self.by_thread]) - 1
        has = place >= self.bounds[thread]
        return np.where(has, np.append(self.by_thread, np.int32(NONE))[place], NONE).astype(np.int32)


def handoffs(rows: Rows) -> Handoffs:
    """Find where the baton went from one thread to another.

    Thread B was idle, thread A stopped and stayed idle, and after that B went on: B waited for A. Threads that only
    make runtime calls (watchdogs) take no part.
    """
    on = _boundaries(rows)
    # After its last boundary a thread rests for good.
    rest = np.where(np.diff(on.thread, append=NONE) != 0, FAR, np.append(on.gap[1:], 0))
    stop = np.flatnonzero(rest >= IDLE_NS)
    # Of several that stopped at once the first thread passes the baton: the last one in this order.
    stop = stop[np.lexsort((-on.thread[stop], on.at[stop]))]
    wake = np.flatnonzero((on.gap >= IDLE_NS) & (on.next_start >= 0))
    wake = wake[np.argsort(on.at[wake], kind="stable")]
    # The wait is over soon after the other thread stopped, measured by how long either of them rested, and that one
    # stays idle.
    soon = np.minimum(_prompt(rest[stop]), rest[stop] - IDLE_NS)
    signal, source = threads.passed(
        on.at[wake],
        on.at[wake] - _prompt(on.gap[wake]),
        on.thread[wake],
        on.at[stop],
        on.at[stop] + soon,
        on.thread[stop],
    )
    passed = np.flatnonzero(source >= 0)
    # Where a row ended several waits, the last to stop passed the baton.
    target = on.next_start[wake[passed]]
    passed = passed[np.lexsort((wake[passed], source[passed], -signal[passed], target))]
    passed = passed[np.flatnonzero(np.diff(on.next_start[wake[passed]], prepend=NONE))]
    woken = wake[passed]
    return Handoffs(
        target=on.next_start[woken],
        idle=on.at[woken] - on.gap[woken],
        woken=on.at[woken],
        source_thread=source[passed],
        signal=signal[passed],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boundaries:
    """Beginnings and ends of the rows of all threads that have CPU operators, by (thread, time)."""

    thread: NDArray[np.int32]
    at: NDArray[np.int64]
    gap: NDArray[np.int64]
    """ns since the boundary before on the thread; 0 inside a runtime call."""
    next_start: NDArray[np.int32]
    """Row that begins on the thread at or next after each boundary, NONE after the last."""
    in_operator: NDArray[np.bool_]
    """Whether the time since the boundary before was all one CPU operator's."""


def _host_rows(rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the rows of the host by (thread, time), and where each thread begins among them, and the end."""
    host = np.flatnonzero((rows.thread >= 0) & rows.of_kind(CPU_OP, RUNTIME, ANNOTATION)).astype(np.int32)
    bounds, place = forward_star(rows.thread[host], int(rows.thread.max(initial=NONE)) + 1)
    return host[place], bounds


def _boundaries(rows: Rows) -> _Boundaries:
    row, bounds = _host_rows(rows)
    operators = np.bincount(rows.thread[row], rows.kind[row] == CPU_OP, len(bounds) - 1)
    row = row[operators[rows.thread[row]] > 0]
    thread = rows.thread[row]
    bounds = np.append(np.flatnonzero(np.diff(thread, prepend=NONE)), len(row))
    at, gap, next_start, in_operator = threads.boundaries(row, bounds, rows.ts, rows.end, rows.kind)
    return _Boundaries(thread=np.repeat(thread, 2), at=at, gap=gap, next_start=next_start, in_operator=in_operator)


def _prompt(rest: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how late a thread that rested so long may have gone on to have waited, ns."""
    return (rest * _PROMPT_SHARE).astype(np.int64)


def silences(rows: Rows, handoffs: Handoffs, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (row that ended it, ns) of the times, at least `least` ns, in which a thread did nothing recorded.

    Waits for another thread are not meant, nor are threads without CPU operators.
    """
    on = _boundaries(rows)
    silent = (on.gap >= least) & ~on.in_operator & (on.next_start >= 0)
    silent &= np.diff(on.thread, prepend=NONE) == 0
    silent &= ~np.isin(on.next_start, handoffs.target)
    return on.next_start[silent].astype(np.int64), on.gap[silent]


def working(rows: Rows, beginnings: NDArray[np.int32], handoffs: Handoffs) -> NDArray[np.bool_]:
    """Return the operators that do the work of a trace without a GPU [n]: none lies in another, nor does a moment.

    Those are the operators of a name that spends at least half its time in none of the operators that it calls, apart
    from those that waited for another thread, and from what runs a compiled net: its layers are in that, and what was
    fused lies between the operators that it calls.

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
    works: NDArray[np.bool_] = operator & (2 * alone >= whole)[rows.name] & ~rows.named(_COMPILED.match)
    above = rows.parent[beginnings]
    while (above >= 0).any():
        works[above[above >= 0]] = False
        above = np.where(above >= 0, rows.parent[np.maximum(above, 0)], NONE)
    works &= ~_waits(rows, handoffs)
    inner: NDArray[np.bool_] = (rows.parent >= 0) & inherited(works, rows.parent)[rows.parent]
    return works & ~inner


def _waits(rows: Rows, handoffs: Handoffs) -> NDArray[np.bool_]:
    """Return the rows in which their thread waited for another one [n]."""
    thread = rows.thread[handoffs.target]
    bounds, order = forward_star(thread[by_idle := np.argsort(handoffs.idle)], int(rows.thread.max(initial=NONE)) + 1)
    idle = handoffs.idle[by_idle[order]]
    on = np.flatnonzero(rows.thread >= 0)
    first, last = (threads.reached(rows.thread[on], at[on] - 1, bounds, idle) for at in (rows.ts, rows.end))
    waits = np.zeros(len(rows), np.bool_)
    waits[on] = last > first
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
