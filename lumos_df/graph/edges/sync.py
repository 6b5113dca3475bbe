"""Sync edges: a call ends after the GPU work for which it waits: a synchronisation, a copy, a release of memory."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, typical_values
from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.gpu_constants import GpuConstants
from lumos_df.graph.gpu_streams import GpuStreams, awaited_by_call
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.typical_values import by_class, mean_without_outliers, medians
from lumos_df.graph.unrecorded_nodes import UnrecordedNodes
from lumos_df.schema.codes import END_END, MEMCPY, NONE, SYNC, SYNC_EDGE

_TO_PAGEABLE: Final = re.compile(r"DtoH.*Pageable")


def sync_edges(
    rows: Rows,
    atoms: Atoms,
    gpu: GpuStreams,
    role: NDArray[np.int8],
    own: NDArray[np.int64],
    unrecorded: UnrecordedNodes,
    constants: GpuConstants,
) -> Edges:
    """Return the edges from GPU to host.

    Args:
        rows, atoms, gpu: the trace.
        role: what every row does as a call, of `calls` [n].
        own: ns that every node lasts by itself [n].
        unrecorded: what CUDA graphs do around their recorded rows.
        constants: what the trace's distributions say of its machine.
    """
    parts = [_copy_edges(rows, atoms, gpu, constants.launch_ns)]
    waits = [
        (waiting, np.flatnonzero(role[atoms.row] == waiting).astype(np.int32))
        for waiting in (calls.DEVICE_SYNC, calls.RELEASE, calls.STREAM_SYNC, calls.EVENT_SYNC)
    ]
    # The way back to the host takes what it takes for any call that waits, else as long as the way to the GPU.
    issued = [_issued(rows, atoms, gpu, atom) for _, atom in waits]
    passed = [_passed(atoms, atom, last, end, done) for (_, atom), (last, end, done) in zip(waits, issued, strict=True)]
    drains, after_graph = _without_graphs(passed, unrecorded)
    usual = mean_without_outliers(np.concatenate(drains), constants.launch_ns)
    for (waiting, atom), (last, end, done), drained in zip(waits, issued, drains, strict=True):
        if not len(atom) or not len(gpu.row):
            continue
        drain = mean_without_outliers(drained, usual)
        recorded, awaits = np.full(len(atom), waiting == calls.DEVICE_SYNC), done
        if waiting in (calls.STREAM_SYNC, calls.EVENT_SYNC):
            awaited, recorded = _awaited_stream(rows, atoms, gpu, atom, last, np.where(done, end, -FAR))
            awaits = done & (np.arange(len(last))[:, None] == awaited)
        for stream in range(len(last)):
            src = np.where(awaits[stream], last[stream], NONE)
            # A release works after what it waited for.
            after = np.where(after_graph[src] >= 0, after_graph[src], drain + unrecorded.tail[src])
            lag = own[atoms.row[atom]] if waiting == calls.RELEASE else after
            parts.append(edges(src, atoms.row[atom], SYNC_EDGE, lag, recorded, END_END))
    return join(parts)


def _issued(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, atom: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the row that each stream was sent last before each call, its end in ns, and whether that was over in time.

    All [streams, k]; NONE, long ago and False where the stream had been sent nothing.
    """
    streams = range(len(rows.stream_keys))
    last = np.array([gpu.last_issued(stream, atom) for stream in streams], np.int32).reshape(len(streams), len(atom))
    end = np.where(last >= 0, rows.end[np.maximum(last, 0)], -FAR)
    return last, end, (last >= 0) & (end <= (atoms.ts + atoms.dur)[atom] + rows.gpu_spread)


def _copy_edges(rows: Rows, atoms: Atoms, gpu: GpuStreams, otherwise: int) -> Edges:
    """Return the edges from copies to the calls that waited for them."""
    awaited = awaited_by_call(rows, gpu)
    src, dst = gpu.row[awaited], atoms.row[gpu.call[awaited]]
    after = rows.end[dst] - rows.end[src]
    lag = by_class(after, rows.name[src]) if len(after) >= typical_values.FEW else otherwise
    # What the GPU has put into a buffer the host copies on itself, where memory is pageable: that is work.
    lag = np.where(rows.named(_TO_PAGEABLE.search)[src], after, lag)
    return edges(src, dst, SYNC_EDGE, lag, False, END_END)


def _awaited_stream(
    rows: Rows,
    atoms: Atoms,
    gpu: GpuStreams,
    atom: NDArray[np.int32],
    last: NDArray[np.int32],
    end: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return which stream each call waited for, and whether the trace says so.

    Else it is that of the copy which the thread issued just before: `item()` and the like copy, then wait for the copy.
    Else that for which most calls of the same operator had to wait, and where none had, the one that was sent something
    last.

    Args:
        rows, atoms, gpu: the trace.
        atom: [k] the calls.
        last: [streams, k] the row that each stream was sent last before each call, or NONE.
        end: [streams, k] its end, if that was over when the call ended, ns.
    """
    stated = np.full(len(atoms.row), NONE, np.int64)
    described = np.flatnonzero(
        (rows.kind == SYNC) & (rows.stream >= 0) & (rows.parent >= 0) & (rows.wait_correlation == rows.null)
    )
    call = atoms.of_row[rows.parent[described]]
    stated[call[call >= 0]] = rows.stream[described[call >= 0]]
    finished = np.argmax(end, axis=0)
    waited = end.max(axis=0) > atoms.ts[atom]
    parent = rows.parent[atoms.row[atom]]
    _, operator = np.unique(np.where(parent >= 0, rows.name[np.maximum(parent, 0)], NONE), return_inverse=True)
    votes = np.zeros((int(operator.max()) + 1, len(last)), np.int64)
    np.add.at(votes, (operator[waited], finished[waited]), 1)
    issued = np.full(len(rows), NONE, np.int32)
    issued[gpu.row] = gpu.issued
    latest = np.argmax(np.where(last >= 0, issued[np.maximum(last, 0)], NONE), axis=0)
    usual = np.where(votes.max(axis=1)[operator] > 0, np.argmax(votes, axis=1)[operator], latest)
    copied = _stream_of_copy_before(rows, atoms, gpu, atom)
    usual = np.where(copied >= 0, copied, usual)
    recorded: NDArray[np.bool_] = np.greater_equal(stated[atom], 0)
    return np.where(recorded, stated[atom], usual), recorded


def _stream_of_copy_before(rows: Rows, atoms: Atoms, gpu: GpuStreams, atom: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the stream of the copy that the call before each on its thread issued, or NONE [k].

    Both calls lie in one operator: what another one copied before, nobody waits for here.
    """
    copied_to = np.full(len(atoms.row), NONE, np.int64)
    copies = gpu.launched & (rows.kind[gpu.row] == MEMCPY)
    copied_to[gpu.call[copies]] = rows.stream[gpu.row[copies]]
    before = atoms.before[atom]
    has = before >= 0
    same = calls.in_one_operator(rows.kind, rows.parent, atoms.row[np.maximum(before, 0)], atoms.row[atom])
    return np.where(has & same, copied_to[np.maximum(before, 0)], NONE)


def _passed(
    atoms: Atoms,
    atom: NDArray[np.int32],
    last: NDArray[np.int32],
    end: NDArray[np.int64],
    done: NDArray[np.bool_],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the awaited row that ended last, of the calls that waited, and what passed until the call ended, ns."""
    if not len(last):
        return np.empty(0, np.int32), np.empty(0, np.int64)
    done_end = np.where(done, end, -FAR)
    stream, call = np.argmax(done_end, axis=0), np.arange(len(atom))
    last_end = done_end[stream, call]
    waited = last_end > atoms.ts[atom]
    return last[stream, call][waited], ((atoms.ts + atoms.dur)[atom] - last_end)[waited]


def _without_graphs(
    passed: list[tuple[NDArray[np.int32], NDArray[np.int64]]], unrecorded: UnrecordedNodes
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Return the way back to the host alone, and how long after the last row of each graph a call ends, or NONE [n].

    Calls that wait for a graph wait for its tail as well: what is typical of its launches tells both together.
    """
    row, after = (np.concatenate(column) for column in zip(*passed, strict=True))
    graph = unrecorded.last[row] >= 0
    typical, known = medians(after[graph], unrecorded.last[row[graph]])
    of_node = np.full(int(unrecorded.last.max(initial=NONE)) + 2, NONE, np.int64)
    of_node[unrecorded.last[row[graph]][known]] = typical[known]
    after_graph = of_node[unrecorded.last]
    return [(after - unrecorded.tail[row])[after_graph[row] < 0] for row, after in passed], after_graph
