"""A trace's graph with another sequence of blocks: some copied, some dropped, the dependencies by the original pattern.

Rows are copied with their block. On a thread and on a stream what follows is what comes next in the new sequence, after
the work or gap that it followed before.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.gpu_streams import GpuStreams, in_order
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate import forward as loops
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE
from lumos_df.whatif.rewrite.block_layout import BlockLayout
from lumos_df.whatif.rewrite.blocks import Blocks
from lumos_df.whatif.rewrite.forward_edges import ordered
from lumos_df.whatif.rewrite.rewritten_edges import rewritten_edges

_COPIED = (
    "kind", "family", "name", "thread", "stream", "correlation", "step", "collective", "group", "group_size", "seq",
    "seq_recorded", "in_bytes", "wait_stream", "wait_correlation",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new graph, and where its rows are from."""

    graph: TraceGraph
    source: NDArray[np.int32]
    """Row of the original [n]."""
    copy: NDArray[np.int32]
    """The how-manieth copy of its block a row is in [n]."""
    copies: NDArray[np.int32]
    """How many copies there are of its block [n]."""
    position: NDArray[np.int64]
    """Place of its block in the new sequence [n]."""


def rewritten(graph: TraceGraph, blocks: Blocks, program: NDArray[np.int64]) -> Rewritten:
    """Return the graph of a trace whose blocks come in another sequence.

    Args:
        graph: the graph as it was.
        blocks: its blocks.
        program: the blocks in their new sequence [p].
    """
    layout = BlockLayout(graph, blocks, program)
    begin, finish = _times(graph, layout)
    rows = _rows(graph.rows, layout, begin, finish)
    atoms = _atoms(graph, layout, rows)
    gpu = _gpu(graph, layout, rows, atoms)
    edges, waits_itself = rewritten_edges(graph, layout, atoms, gpu)
    edges, order, target, dropped = ordered(rows, atoms, gpu, edges, waits_itself)
    duration = graph.own[layout.source]
    carried = layout.new_of(graph.carried, np.zeros(len(graph.carried), np.int64), first=True)
    nothing = np.empty(0, np.int64)
    none = np.empty(0, np.int32)
    made = TraceGraph(
        rows=rows,
        atoms=atoms,
        gpu=gpu,
        handoffs=Handoffs(target=none, idle=nothing, woken=nothing, source_thread=none, signal=nothing),
        constants=replace(graph.constants, gap=np.zeros(len(gpu.row), np.int64)),
        edges=edges,
        order=order,
        order_target=target,
        own=duration,
        idle_before=graph.idle_before[layout.source],
        unknown=graph.unknown[layout.source],
        carried=carried[carried >= 0].astype(np.int32),
        dropped=graph.dropped + dropped,
    )
    block = program[layout.position]
    copies = np.bincount(program, minlength=len(blocks))[block].astype(np.int32)
    return Rewritten(made, layout.source, layout.ordinal[layout.position], copies, layout.position)


def without(made: Rewritten, gone: NDArray[np.bool_]) -> Rewritten:
    """Return rewritten rows of which some take no time and, numbered as no copy, meet no other rank's [n]."""
    duration = np.where(gone, 0, made.graph.own)
    return replace(made, graph=replace(made.graph, own=duration), copy=np.where(gone, NONE, made.copy).astype(np.int32))


def _times(graph: TraceGraph, layout: BlockLayout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when rows begin and end in the new recording, ns: on each thread the parts of blocks closed up."""
    rows, atoms = graph.rows, graph.atoms
    begin, finish = rows.ts[layout.source], rows.end[layout.source]
    host = rows.thread[layout.source]
    position, source = layout.position, layout.source
    moved = np.zeros(len(layout.program), np.int64)
    for thread in np.unique(atoms.thread).tolist():
        atom = np.flatnonzero(atoms.thread == thread)
        block = layout.block[atoms.row[atom]]
        end = (atoms.ts + atoms.dur)[atom]
        last = np.append(np.flatnonzero(np.diff(block)), len(atom) - 1)
        part, high = block[last], end[last]
        low = np.append(int(atoms.ts[atom[0]]), high[:-1])
        part_of = np.full(len(layout.blocks), NONE, np.int64)
        part_of[part] = np.arange(len(part))
        here = np.flatnonzero(part_of[layout.program] >= 0)
        which = part_of[layout.program[here]]
        start = low[0] + np.cumsum(np.append(0, (high - low)[which]))[:-1]
        shift = np.zeros(len(layout.program), np.int64)
        shift[here] = start - low[which]
        on = host == thread
        begin[on] += shift[position[on]]
        # A row ends in the part in which its end lies: as often as that is copied, in the last copy.
        ends = part[np.minimum(np.searchsorted(high, rows.end[source[on]] - 1), len(part) - 1)]
        same = ends <= layout.block[source[on]]
        at = np.where(
            same, position[on], layout.last_copy(ends.astype(np.int32), np.full(len(ends), len(layout.program)))
        )
        finish[on] += np.where(at >= 0, shift[np.maximum(at, 0)], shift[position[on]])
        moved[here] = shift[here]
    gpu = host < 0
    begin[gpu] += moved[position[gpu]]
    finish[gpu] += moved[position[gpu]]
    return begin, np.maximum(finish, begin)


def _rows(rows: Rows, layout: BlockLayout, begin: NDArray[np.int64], finish: NDArray[np.int64]) -> Rows:
    taken = {name: getattr(rows, name)[layout.source] for name in _COPIED}
    other = {each.name: getattr(rows, each.name) for each in fields(rows) if each.init and each.name not in taken}
    for name in ("parent", "forward"):
        above = other[name][layout.source]
        new = layout.new_of(np.maximum(above, 0), layout.position)
        other[name] = np.where(above >= 0, new, NONE).astype(np.int32)
    return Rows(**{**other, **taken, "ts": begin, "dur": finish - begin, "gpu_shift": 0})


def _atoms(graph: TraceGraph, layout: BlockLayout, rows: Rows) -> Atoms:
    old = graph.atoms
    is_atom = np.full(len(graph.rows), NONE, np.int32)
    is_atom[old.row] = np.arange(len(old.row))
    row = np.flatnonzero(is_atom[layout.source] >= 0).astype(np.int32)
    # Of one moment: copy by copy, as they came in the original.
    row = row[np.lexsort((is_atom[layout.source[row]], layout.position[row], rows.ts[row]))]
    of_row = np.full(len(rows), NONE, np.int32)
    of_row[row] = np.arange(len(row))
    inner = np.flatnonzero((old.of_row[layout.source] >= 0) & (of_row < 0))
    around = old.row[old.of_row[layout.source[inner]]]
    outer = layout.new_of(around, layout.position[inner])
    of_row[inner] = np.where(outer >= 0, of_row[np.maximum(outer, 0)], NONE)
    thread = rows.thread[row]
    before = np.full(len(row), NONE, np.int32)
    bounds, order = loops.forward_star(thread, len(old.bounds) - 1)
    same = thread[order[1:]] == thread[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return Atoms(
        row=row,
        thread=thread,
        ts=rows.ts[row],
        dur=old.dur[is_atom[layout.source[row]]],
        of_row=of_row,
        before=before,
        by_thread=order,
        bounds=bounds,
    )


def _gpu(graph: TraceGraph, layout: BlockLayout, rows: Rows, atoms: Atoms) -> GpuStreams:
    old = graph.gpu
    place = np.full(len(graph.rows), NONE, np.int64)
    place[old.row] = np.arange(len(old.row))
    row = np.flatnonzero(place[layout.source] >= 0)
    turn = np.lexsort((place[layout.source[row]], layout.position[row], rows.stream[row]))
    row = row[turn].astype(np.int32)
    was = place[layout.source[row]]
    issuer = np.where(old.call[was] >= 0, graph.atoms.row[np.maximum(old.call[was], 0)], NONE)
    by = layout.new_of(np.maximum(issuer, 0), layout.position[row])
    call = np.where((issuer >= 0) & (by >= 0), atoms.of_row[np.maximum(by, 0)], NONE).astype(np.int32)
    return in_order(rows, row.astype(np.int32), call, old.launched[was] & (call >= 0))
