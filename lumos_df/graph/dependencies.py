"""What depended on what in one trace: one function an edge kind.

Every edge goes from what was issued earlier to what was issued later, so the graph has no cycle whatever was recorded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, events, host
from lumos_df.graph import simulate as loops
from lumos_df.graph.edges import (
    END_END,
    END_START,
    HANDOFF,
    LAUNCH,
    START_START,
    STREAM,
    SYNC,
    THREAD,
    Edges,
    edges,
    join,
)
from lumos_df.graph.gpu import FAR, Constants, Work, by_class, gaps, middle, work
from lumos_df.graph.held import held_edges
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.rows import ANNOTATION, COMMUNICATION, CPU_OP, MEMCPY, NONE, RUNTIME, Rows
from lumos_df.graph.rows import SYNC as SYNC_ROW

STEP = "ProfilerStep#"
_FEW_BLOCKED = 8
"""Fewer long launch calls are accidents."""
_QUEUE = 256
"""A launch call that is followed by fewer unfinished rows did not wait for the queue."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The execution graph of one trace: nodes are rows, in an order in which every edge goes forward."""

    rows: Rows
    """The operators [n]."""
    atoms: Atoms
    """What the host does, moment by moment."""
    gpu: Work
    """What the GPU does, stream by stream."""
    handoffs: Handoffs
    """Where one thread waited for another."""
    constants: Constants
    """Launch latency and gap between kernels, as the trace shows them."""
    edges: Edges
    """The dependencies [m]."""
    order: NDArray[np.int32]
    """Rows that are nodes, in the order in which they were issued."""
    order_target: NDArray[np.int32]
    """[m] node that must come after the source of each edge: `dst`, but for a copying call what follows it; or NONE."""
    own: NDArray[np.int64]
    """[n] ns that a row lasts by itself: without waiting for another thread, the GPU or a full queue."""
    ended: NDArray[np.int64]
    """[n] ns, when a node ended as recorded; nothing for rows that are none."""
    idle_before: NDArray[np.int64]
    """[n] ns of a thread's gap before a row in which it waited for another thread."""
    carried: NDArray[np.int32]
    """Rows issued before the recording began that no edge makes as late as they were: they start as recorded."""
    dropped: int
    """Candidate edges that would have gone backward."""


def build(rows: Rows) -> Graph:
    """Rebuild the execution graph of one trace."""
    passes = host.handoffs(rows)
    begun = _beginnings(rows, passes)
    atoms = host.atoms(rows, begun, host.working(rows, begun, passes))
    gpu = work(rows, atoms)
    role = calls.roles(rows)
    constants = _constants(rows, atoms, gpu)
    own, throttle = _own_durations(rows, atoms, gpu, role)
    thread, idle_before = thread_edges(rows, atoms, passes)
    parts = [
        thread,
        handoff_edges(rows, atoms, passes),
        launch_edges(rows, atoms, gpu, constants),
        stream_edges(gpu, constants),
        events.event_edges(rows, atoms, gpu, role, constants.gap),
    ]
    known, ended = join(parts), np.empty_like(rows.ts)
    ended[atoms.row] = atoms.ts + atoms.dur
    ended[gpu.row] = rows.end[gpu.row]
    unseen, late = held_edges(rows, gpu, known, ended)
    parts = [known, unseen, sync_edges(rows, atoms, gpu, role, own), throttle]
    carried = late[np.isin(late, gpu.row[gpu.issued < 0])]
    found, order, target, dropped = _forward(rows, atoms, gpu, join(parts))
    return Graph(rows, atoms, gpu, passes, constants, found, order, target, own, ended, idle_before, carried, dropped)


def _beginnings(rows: Rows, passes: Handoffs) -> NDArray[np.int32]:
    """Rows whose beginning is a moment of the simulation: after a handoff, steps, operators that launched unseen."""
    steps = np.array([*(name.startswith(STEP) for name in rows.names), False])
    step = np.flatnonzero(steps[rows.name])
    step = step[np.isin(rows.kind[step], (ANNOTATION, CPU_OP)) & (rows.thread[step] >= 0)]
    parent = rows.parent[rows.on_gpu]
    parent = parent[parent >= 0]
    unseen = np.unique(parent[(rows.kind[parent] != RUNTIME) & (rows.thread[parent] >= 0)])
    return np.concatenate((step, unseen, passes.target)).astype(np.int32)


def _by_time(rows: Rows, atoms: Atoms, gpu: Work) -> NDArray[np.int32]:
    """Return the nodes by the time at which they began; the host's before the GPU's at the same time."""
    node = np.concatenate((atoms.row, gpu.row))
    is_gpu = np.repeat((False, True), (len(atoms.row), len(gpu.row)))
    return node[np.lexsort((node, is_gpu, rows.ts[node]))]


def _forward(
    rows: Rows, atoms: Atoms, gpu: Work, found: Edges
) -> tuple[Edges, NDArray[np.int32], NDArray[np.int32], int]:
    """Return the edges that go forward in one order, that order, what they order, and how many were left out.

    A copying call waits for the row that it issues itself: for the order, what follows the call waits for that row.
    """
    after = np.full(len(rows), NONE, np.int32)
    has = atoms.before >= 0
    after[atoms.row[atoms.before[has]]] = atoms.row[has]
    own_copy = np.zeros(len(found), np.bool_)
    sync = np.flatnonzero(found.kind == SYNC)
    parent = rows.parent[found.src[sync]]
    call = np.where(parent >= 0, atoms.of_row[np.maximum(parent, 0)], NONE)
    own_copy[sync] = (call >= 0) & (atoms.row[np.maximum(call, 0)] == found.dst[sync])
    target = np.where(own_copy, after[found.dst], found.dst)
    real = target >= 0
    from_, to = (found.src, target) if real.all() else (found.src[real], target[real])
    pointer, edge = loops.forward_star(from_, len(rows))
    order = loops.topological(
        _by_time(rows, atoms, gpu),
        pointer,
        edge,
        to,
        len(rows),
        np.full(len(rows), NONE, np.int32),
        np.empty(0, np.int32),
    )
    keep = ~real | loops.goes_forward(found.src, target, order, len(rows))
    return found.where(keep), order, target[keep], int(np.count_nonzero(~keep))


def thread_edges(rows: Rows, atoms: Atoms, passes: Handoffs) -> tuple[Edges, NDArray[np.int64]]:
    """Order within a thread; the lag is the host's work between two atoms, without its waits for another thread."""
    idle = np.zeros(len(rows), np.int64)
    has = atoms.before >= 0
    before = np.maximum(atoms.before, 0)
    end = atoms.ts + atoms.dur
    gap = np.where(has, atoms.ts - end[before], 0)
    at = atoms.of_row[passes.target]
    waited = has[at]
    idle[passes.target[waited]] = np.clip(passes.woken - passes.idle, 0, np.maximum(gap[at], 0))[waited]
    lag = gap - idle[atoms.row]
    src = np.where(has, atoms.row[before], NONE)
    return edges(src, atoms.row, THREAD, lag, True), idle


def handoff_edges(rows: Rows, atoms: Atoms, passes: Handoffs) -> Edges:
    """Thread to thread: after a wait found in the gaps, and the first row of a thread after whatever ran before it."""
    at = atoms.of_row[passes.target]
    source = np.full(len(at), NONE, np.int32)
    for thread in np.unique(passes.source_thread).tolist():
        own = passes.source_thread == thread
        source[own] = atoms.last_before(thread, passes.signal[own])
    # The time to wake up is the trace's own, per direction and apart for a thread's first row, before which it may have
    # had to be made; the rest is work measured on either thread.
    first = (atoms.before[at] < 0).astype(np.int64)
    direction = (passes.source_thread.astype(np.int64) << 20 | rows.thread[passes.target]) * 2 + (first)
    wake = by_class(passes.woken - passes.signal, direction, first)
    end = (atoms.ts + atoms.dur)[np.maximum(source, 0)]
    lag = np.maximum(passes.signal - end, 0) + wake + (rows.ts[passes.target] - passes.woken)
    evidence = rows.forward[passes.target]
    said = (evidence >= 0) & (rows.thread[np.maximum(evidence, 0)] == passes.source_thread)
    found = edges(np.where(source >= 0, atoms.row[np.maximum(source, 0)], NONE), passes.target, HANDOFF, lag, said)

    first = np.setdiff1d(np.flatnonzero(atoms.before < 0), at)
    first = first[first > 0]
    end = atoms.ts + atoms.dur
    begun = edges(atoms.row[first - 1], atoms.row[first], HANDOFF, atoms.ts[first] - end[first - 1], False)
    return join([found, begun])


def launch_edges(rows: Rows, atoms: Atoms, gpu: Work, constants: Constants) -> Edges:
    """Launch call to row. A row without a call follows its operator; without either, the launch of the row in front."""
    early = _starts_in_call(rows, gpu)
    lag = np.where(gpu.launched, constants.launch_ns, constants.beginning_ns)
    lag[early] = by_class((rows.ts[gpu.row] - gpu.of_call(atoms.ts))[early], rows.name[gpu.row[early]], percentile=25)
    binds = np.where(early | ~gpu.launched, START_START, END_START)
    return edges(gpu.of_call(atoms.row, NONE).astype(np.int32), gpu.row, LAUNCH, lag, gpu.launched, binds)


def _may_outlast(rows: Rows, gpu: Work) -> NDArray[np.bool_]:
    """Which rows are copies whose call ended after them: such a call waited for its copy."""
    call_end = rows.end[np.maximum(rows.parent[gpu.row], 0)]
    waited: NDArray[np.bool_] = gpu.launched & (rows.kind[gpu.row] == MEMCPY) & (rows.end[gpu.row] <= call_end)
    return waited


def _starts_in_call(rows: Rows, gpu: Work) -> NDArray[np.bool_]:
    """Which copies began while their call still ran, be it that it waited for them or fed them."""
    call_end = rows.end[np.maximum(rows.parent[gpu.row], 0)]
    begun = (rows.ts[gpu.row] < call_end) | (rows.end[gpu.row] <= call_end)
    within: NDArray[np.bool_] = gpu.launched & (rows.kind[gpu.row] == MEMCPY) & begun
    return within


def stream_edges(gpu: Work, constants: Constants) -> Edges:
    """Order within a stream; the lag is the typical gap, negative where rows of the stream overlap."""
    return edges(gpu.before, gpu.row, STREAM, constants.gap, True)


def sync_edges(rows: Rows, atoms: Atoms, gpu: Work, role: NDArray[np.int8], own: NDArray[np.int64]) -> Edges:
    """GPU to host: what a synchronising call, a release of memory or a copy waited for."""
    at = role[atoms.row]
    parts = [_copy_edges(rows, atoms, gpu)]
    for wanted in (calls.DEVICE_SYNC, calls.RELEASE, calls.STREAM_SYNC, calls.EVENT_SYNC):
        atom = np.flatnonzero(at == wanted).astype(np.int32)
        if not len(atom) or not len(gpu.row):
            continue
        last = np.stack([gpu.last_issued(stream, atom) for stream in range(len(rows.stream_keys))])
        end = np.where(last >= 0, rows.end[np.maximum(last, 0)], -FAR)
        call_end = (atoms.ts + atoms.dur)[atom]
        done = (last >= 0) & (end <= call_end + 2_000)
        # A release works after what it waited for.
        lag = own[atoms.row[atom]] if wanted == calls.RELEASE else np.full(len(atom), _drain(atoms, atom, end, done))
        said = np.full(len(atom), wanted == calls.DEVICE_SYNC)
        if wanted in (calls.STREAM_SYNC, calls.EVENT_SYNC):
            stream, said = _awaited_stream(rows, atoms, gpu, atom, last, np.where(done, end, -FAR))
            done &= np.arange(len(last))[:, None] == stream
        for number in range(len(last)):
            src = np.where(done[number], last[number], NONE)
            parts.append(edges(src, atoms.row[atom], SYNC, lag, said, END_END))
    return join(parts)


def _awaited_stream(
    rows: Rows,
    atoms: Atoms,
    gpu: Work,
    atom: NDArray[np.int32],
    last: NDArray[np.int32],
    end: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return which stream each call waited for, and whether the trace says so.

    Else it is that for which most calls of the same operator had to wait, and where none had, the one that was sent
    something last.

    Args:
        atom: [k] the calls.
        last: [streams, k] the row that each stream was sent last before each call, or NONE.
        end: [streams, k] its end, if that was over when the call ended, ns.
    """
    stated = np.full(len(atoms.row), NONE, np.int64)
    told = np.flatnonzero(
        (rows.kind == SYNC_ROW) & (rows.stream >= 0) & (rows.parent >= 0) & (rows.wait_correlation == rows.null)
    )
    call = atoms.of_row[rows.parent[told]]
    stated[call[call >= 0]] = rows.stream[told[call >= 0]]
    finished = np.argmax(end, axis=0)
    waited = end.max(axis=0) > atoms.ts[atom]
    parent = rows.parent[atoms.row[atom]]
    _, group = np.unique(np.where(parent >= 0, rows.name[np.maximum(parent, 0)], NONE), return_inverse=True)
    votes = np.zeros((int(group.max()) + 1, len(last)), np.int64)
    np.add.at(votes, (group[waited], finished[waited]), 1)
    issued = np.full(len(rows), NONE, np.int32)
    issued[gpu.row] = gpu.issued
    latest = np.argmax(np.where(last >= 0, issued[np.maximum(last, 0)], NONE), axis=0)
    usual = np.where(votes.max(axis=1)[group] > 0, np.argmax(votes, axis=1)[group], latest)
    said: NDArray[np.bool_] = np.greater_equal(stated[atom], 0)
    return np.where(said, stated[atom], usual), said


def _copy_edges(rows: Rows, atoms: Atoms, gpu: Work) -> Edges:
    waits = _may_outlast(rows, gpu)
    src, dst = gpu.row[waits], atoms.row[gpu.call[waits]]
    lag = by_class(rows.end[dst] - rows.end[src], rows.name[src])
    return edges(src, dst, SYNC, lag, False, END_END)


def _constants(rows: Rows, atoms: Atoms, gpu: Work) -> Constants:
    row, call_begin = gpu.row, gpu.of_call(atoms.ts)
    ready = np.where(gpu.before >= 0, rows.end[np.maximum(gpu.before, 0)], -FAR)
    copies = _starts_in_call(rows, gpu)
    idle = gpu.launched & (ready < call_begin)
    # Communication waits for the compute that it is about, however far ahead the host is: where most idle streams are
    # those of communication, only the others tell.
    prompt = idle & ~copies
    computes = prompt & (rows.family[row] != COMMUNICATION)
    if computes.any() and 2 * computes.sum() <= prompt.sum():
        prompt = computes
    after_end = (rows.ts[row] - gpu.of_call(atoms.ts + atoms.dur))[prompt]
    unseen = ~gpu.launched & (gpu.call >= 0) & (ready < call_begin)
    launch = _lower(after_end, 2_000)
    gap = gaps(rows, gpu)
    return Constants(
        launch,
        _lower((rows.ts[row] - call_begin)[unseen], launch + 10_000),
        gap,
    )


def _lower(values: NDArray[np.int64], otherwise: int) -> int:
    """Return the typical value of the lower three quarters: what is later than that waited for something else."""
    return middle(values[values <= np.percentile(values, 75)], otherwise) if len(values) else otherwise


def _drain(atoms: Atoms, atom: NDArray[np.int32], end: NDArray[np.int64], done: NDArray[np.bool_]) -> int:
    """Return what passes between the end of the last awaited row and that of the call, among calls that waited, ns."""
    last = np.where(done, end, -FAR).max(axis=0)
    begin, over = atoms.ts[atom], (atoms.ts + atoms.dur)[atom]
    return middle((over - last)[last > begin], 0)


def _queue(rows: Rows, atoms: Atoms, gpu: Work) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_], int]:
    """Return what a full queue holds.

    That is rows that have to end, the launch calls that come after them, which of these were seen to wait, and ns of a
    launch call that did not.

    A stream takes its queue in order. How many rows a full queue holds differs, because events take places, too: it is
    judged by the rows that were unfinished when a long launch call ended, and for calls between two of these it is what
    it was at the one before.
    """
    launched = np.flatnonzero(gpu.launched)
    none = np.empty(0, np.int32)
    if not len(launched):
        return none, none, np.empty(0, np.bool_), 0
    typical = int(np.percentile(atoms.dur[gpu.call[launched]], 25))
    sources, calls_, waited = [none], [none], [np.empty(0, np.bool_)]
    for stream in np.unique(rows.stream[gpu.row[launched]]).tolist():
        own = launched[rows.stream[gpu.row[launched]] == stream]
        own = own[np.argsort(gpu.call[own], kind="stable")]
        call, row = gpu.call[own], gpu.row[own]
        over = (atoms.ts + atoms.dur)[call]
        turn = np.arange(len(own))
        unfinished = turn + 1 - np.searchsorted(np.sort(rows.end[row]), over, side="right")
        blocked = np.flatnonzero((atoms.dur[call] > 10 * typical) & (unfinished >= _QUEUE))
        if len(blocked) < _FEW_BLOCKED:
            continue
        near = blocked[np.maximum(np.searchsorted(blocked, turn, side="right") - 1, 0)]
        source = turn - unfinished[near]
        kept = np.flatnonzero(source >= 0)
        # A call that ended before this row did cannot have waited for it.
        kept = kept[rows.end[row[source[kept]]] <= over[kept]]
        sources.append(row[source[kept]])
        calls_.append(atoms.row[call[kept]])
        waited.append(rows.end[row[source[kept]]] > atoms.ts[call[kept]])
    return np.concatenate(sources), np.concatenate(calls_), np.concatenate(waited), typical


def _own_durations(rows: Rows, atoms: Atoms, gpu: Work, role: NDArray[np.int8]) -> tuple[NDArray[np.int64], Edges]:
    """Return what each node lasts by itself, and the edges by which a full queue holds a launch call."""
    own = rows.dur.copy()
    own[atoms.row] = atoms.dur
    kind = role[atoms.row]
    for waiting in (calls.STREAM_SYNC, calls.DEVICE_SYNC, calls.EVENT_SYNC):
        call = np.flatnonzero(kind == waiting).astype(np.int32)
        if len(call):
            rest = atoms.dur[call] - _waited(rows, atoms, gpu, call)
            own[atoms.row[call]] = np.minimum(atoms.dur[call], _shortest(rest))
    copies = _may_outlast(rows, gpu)
    copying = atoms.row[gpu.call[copies]]
    own[copying] = np.minimum(own[copying], _shortest(rows.end[copying] - rows.end[gpu.row[copies]]))
    release = np.flatnonzero(kind == calls.RELEASE).astype(np.int32)
    if len(release):
        # The call's own work begins when what it waits for is over.
        own[atoms.row[release]] = atoms.dur[release] - _waited(rows, atoms, gpu, release)
    src, dst, held, typical = _queue(rows, atoms, gpu)
    freed = round(float(np.median((rows.end[dst] - rows.end[src])[held]))) if held.any() else 0
    own[dst[held]] = np.minimum(own[dst[held]], typical)
    return own, edges(src, dst, SYNC, freed, False, END_END)


def _waited(rows: Rows, atoms: Atoms, gpu: Work, call: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how long GPU rows that were issued before each call, and over at its end, still ran in it, ns."""
    begin, dur = atoms.ts[call], atoms.dur[call]
    over = np.full(len(call), -FAR)
    for stream in range(len(rows.stream_keys)):
        last = gpu.last_issued(stream, call)
        end = np.where(last >= 0, rows.end[np.maximum(last, 0)], -FAR)
        over = np.maximum(over, np.where(end <= begin + dur + 2_000, end, -FAR))
    waited: NDArray[np.int64] = np.clip(over - begin, 0, dur)
    return waited


def _shortest(durations: NDArray[np.int64]) -> int:
    """Return what a waiting call takes when it has nothing to wait for: the low end of the distribution."""
    return round(float(np.percentile(durations, 10))) if len(durations) else 0
