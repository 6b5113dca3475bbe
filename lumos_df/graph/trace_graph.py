"""What depended on what in one trace: its rows, what simulates of them, and the edges of every kind.

Every edge goes from what was issued earlier to what was issued later, so the graph has no cycle whatever was recorded.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, gpu_constants, host, typical_values
from lumos_df.graph.edges.columns import Edges, join
from lumos_df.graph.edges.event import event_edges
from lumos_df.graph.edges.full_queue import queue_waits
from lumos_df.graph.edges.handoff import handoff_edges
from lumos_df.graph.edges.host_wait import host_waits
from lumos_df.graph.edges.inferred import inferred_waits
from lumos_df.graph.edges.launch import launch_edges, slow_first_launch
from lumos_df.graph.edges.stream import stream_edges
from lumos_df.graph.edges.sync import sync_edges
from lumos_df.graph.edges.thread import thread_edges
from lumos_df.graph.gpu_constants import GpuConstants
from lumos_df.graph.gpu_streams import GpuStreams, gpu_streams, recorded_ends
from lumos_df.graph.graph_launches import graph_launches, inner_waits
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.own_durations import own_durations
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate import forward
from lumos_df.graph.steps import step_numbers
from lumos_df.graph.unrecorded_nodes import unrecorded_nodes
from lumos_df.schema.codes import ANNOTATION, CPU_OP, END_END, NONE, RUNTIME, SYNC_EDGE


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGraph:
    """The execution graph of one trace: nodes are rows, in an order in which every edge goes forward."""

    rows: Rows
    """The operators [n]."""
    atoms: Atoms
    """What the host does, moment by moment."""
    gpu: GpuStreams
    """What the GPU does, stream by stream."""
    handoffs: Handoffs
    """Where one thread waited for another."""
    constants: GpuConstants
    """Launch latency and gap between kernels, as the trace shows them."""
    edges: Edges
    """The dependencies [m]."""
    order: NDArray[np.int32]
    """Rows that are nodes, in the order in which they were issued."""
    order_target: NDArray[np.int32]
    """[m] node that must come after the source of each edge: `dst`, but for a copying call what follows it; or NONE."""
    own: NDArray[np.int64]
    """[n] ns that a row lasts by itself: without waiting for another thread, the GPU or a full queue."""
    idle_before: NDArray[np.int64]
    """[n] ns of a thread's gap before a row in which it waited for another thread."""
    unknown: NDArray[np.int64]
    """[n] ns of the gap before a row of the GPU in which something happened that was not recorded: they stay."""
    carried: NDArray[np.int32]
    """Rows that waited for what was issued before the recording began: they start as recorded.

    Also what follows on its thread a launch call that waited for a row of the queue that was not recorded.
    """
    dropped: int
    """Candidate edges that would have gone backward."""

    @property
    def earliest_starts(self) -> NDArray[np.int64]:
        """Before when rows do not start, whatever they wait for, ns, or UNSET [n].

        Rows without any predecessor, and those that waited for work from before the recording, start as recorded: that
        is the state in which it began, which nothing in it explains.
        """
        earliest = np.full(len(self.rows), forward.UNSET, np.int64)
        led = np.zeros(len(self.rows), np.bool_)
        led[self.edges.dst[self.edges.binds != END_END]] = True
        for rows in (self.order[~led[self.order]], self.carried):
            earliest[rows] = self.rows.ts[rows]
        return earliest

    @property
    def ended(self) -> NDArray[np.int64]:
        """When every node ended as recorded, ns [n]; 0 for rows that are none."""
        return recorded_ends(self.rows, self.atoms, self.gpu)


def build(rows: Rows) -> TraceGraph:
    """Rebuild the execution graph of one trace."""
    handoffs = host.handoffs(rows)
    beginnings = _beginnings(rows, handoffs)
    atoms = host.atoms(rows, beginnings, host.working(rows, beginnings, handoffs))
    gpu = gpu_streams(rows, atoms)
    role = calls.roles(rows.kind, rows.name, rows.names)
    launches = graph_launches(rows, gpu, role == calls.GRAPH_LAUNCH)
    constants = gpu_constants.measured(rows, atoms, gpu, role, launches)
    queue = queue_waits(rows, atoms, gpu)
    own = own_durations(rows, atoms, gpu, role, queue)
    silences = host_waits(rows, atoms, gpu, handoffs)
    on_threads, idle_before = thread_edges(rows, atoms, handoffs, silences)
    known = join(
        [
            on_threads,
            handoff_edges(rows, atoms, handoffs),
            launch_edges(rows, atoms, gpu, launches, constants),
            stream_edges(gpu, constants),
            inner_waits(rows, gpu, launches),
            event_edges(rows, atoms, gpu, role, constants.gap),
        ]
    )
    ended = recorded_ends(rows, atoms, gpu)
    # What even the quickest launch did, needs no other reason; what launches took beyond that, may be a wait.
    known = unrecorded_nodes(rows, gpu, launches, known, ended, typical_values.least).between(known)
    unseen, late = inferred_waits(rows, gpu, known, ended)
    to_starts = join([known, unseen])
    slow = slow_first_launch(rows, gpu, to_starts, ended, late)
    to_starts = replace(to_starts, lag=to_starts.lag + slow)
    late = late[~np.isin(late, to_starts.dst[slow > 0])]
    unrecorded = unrecorded_nodes(rows, gpu, launches, to_starts, ended, typical_values.medians)
    candidates = join(
        [
            unrecorded.between(to_starts),
            sync_edges(rows, atoms, gpu, role, own, unrecorded, constants),
            queue.edges(rows),
            silences.edges(rows, atoms),
        ]
    )
    edges, order, target, dropped = _forward(rows, atoms, gpu, candidates)
    unknown = np.zeros(len(rows), np.int64)
    unknown[gpu.row] = constants.unknown
    return TraceGraph(
        rows=rows,
        atoms=atoms,
        gpu=gpu,
        handoffs=handoffs,
        constants=constants,
        edges=edges,
        order=order,
        order_target=target,
        own=own,
        idle_before=idle_before,
        unknown=unknown,
        carried=np.concatenate((_carried(rows, gpu, late), _behind(atoms, queue.unseen))),
        dropped=dropped,
    )


def _carried(rows: Rows, gpu: GpuStreams, late: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the late rows that waited for what was issued before the recording began.

    They were issued before as well, or nothing ran on the GPU before them.
    """
    if not len(gpu.row):
        return late
    before = gpu.row[gpu.early]
    first = gpu.row[np.argmin(rows.ts[gpu.row], keepdims=True)]
    return late[np.isin(late, np.append(before, first))]


def _behind(atoms: Atoms, call: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the rows that come next on the threads of some calls."""
    following = np.flatnonzero(atoms.before >= 0)
    waited = np.isin(atoms.row[atoms.before[following]], call)
    return atoms.row[following[waited]]


def _beginnings(rows: Rows, handoffs: Handoffs) -> NDArray[np.int32]:
    """Rows whose beginning is a moment of the simulation: after a handoff, steps, operators that launched unseen."""
    step = np.flatnonzero((step_numbers(rows) >= 0)[rows.name])
    step = step[np.isin(rows.kind[step], (ANNOTATION, CPU_OP)) & (rows.thread[step] >= 0)]
    parent = rows.parent[rows.on_gpu]
    parent = parent[parent >= 0]
    unseen = np.unique(parent[(rows.kind[parent] != RUNTIME) & (rows.thread[parent] >= 0)])
    return np.concatenate((step, unseen, handoffs.target)).astype(np.int32)


def _by_time(rows: Rows, atoms: Atoms, gpu: GpuStreams) -> NDArray[np.int32]:
    """Return the nodes by the time at which they began; the host's before the GPU's at the same time."""
    node = np.concatenate((atoms.row, gpu.row))
    is_gpu = np.repeat((False, True), (len(atoms.row), len(gpu.row)))
    return node[np.lexsort((node, is_gpu, rows.ts[node]))]


def _forward(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, candidates: Edges
) -> tuple[Edges, NDArray[np.int32], NDArray[np.int32], int]:
    """Return the edges that go forward in one order, that order, what they order, and how many were left out.

    A copying call waits for the row that it issues itself: for the order, what follows the call waits for that row.
    """
    following = np.full(len(rows), NONE, np.int32)
    has = atoms.before >= 0
    following[atoms.row[atoms.before[has]]] = atoms.row[has]
    awaits_own_copy = np.zeros(len(candidates), np.bool_)
    sync = np.flatnonzero(candidates.kind == SYNC_EDGE)
    parent = rows.parent[candidates.src[sync]]
    call = np.where(parent >= 0, atoms.of_row[np.maximum(parent, 0)], NONE)
    awaits_own_copy[sync] = (call >= 0) & (atoms.row[np.maximum(call, 0)] == candidates.dst[sync])
    target = np.where(awaits_own_copy, following[candidates.dst], candidates.dst)
    real = target >= 0
    source, to = (candidates.src, target) if real.all() else (candidates.src[real], target[real])
    pointer, edge = forward.forward_star(source, len(rows))
    no_instance, no_members = np.full(len(rows), NONE, np.int32), np.empty(0, np.int32)
    order = forward.topological(_by_time(rows, atoms, gpu), pointer, edge, to, len(rows), no_instance, no_members)
    keep = ~real | forward.goes_forward(candidates.src, target, order, len(rows))
    return candidates.where(keep), order, target[keep], int(np.count_nonzero(~keep))
