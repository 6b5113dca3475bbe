"""A trace's graph with another sequence of blocks: some copied, some dropped, the dependencies by the original pattern.

Rows are copied with their block. On a thread and on a stream what follows is what comes next in the new sequence, after
the work or gap that it followed before. Any other dependency leads to the same place: in the same block, else as many
blocks back as it was, to the row that stands where the source stood; a wait for all of a stream is one for all of it.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms, Handoffs
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate import forward as loops
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE, RUNTIME, STREAM, THREAD
from lumos_df.whatif.rewrite.blocks import OUTSIDE, Blocks

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


def rewritten(graph: TraceGraph, of: Blocks, program: NDArray[np.int64]) -> Rewritten:
    """Return the graph of a trace whose blocks come in another sequence.

    Args:
        graph: the graph as it was.
        of: its blocks.
        program: the blocks in their new sequence [p].
    """
    layout = _Layout(graph, of, program)
    begin, finish = _times(graph, layout)
    rows = _rows(graph.rows, layout, begin, finish)
    atoms = _atoms(graph, layout, rows)
    gpu = _gpu(graph, layout, rows, atoms)
    found, waits_itself = _edges(graph, layout, atoms, gpu)
    found, order, target, dropped = ordered(rows, atoms, gpu, found, waits_itself)
    own = graph.own[layout.source]
    carried = layout.new_of(graph.carried, np.zeros(len(graph.carried), np.int64), first=True)
    nothing = np.empty(0, np.int64)
    none = np.empty(0, np.int32)
    made = TraceGraph(
        rows=rows,
        atoms=atoms,
        gpu=gpu,
        handoffs=Handoffs(target=none, idle=nothing, woken=nothing, source_thread=none, signal=nothing),
        constants=replace(graph.constants, gap=np.zeros(len(gpu.row), np.int64)),
        edges=found,
        order=order,
        order_target=target,
        own=own,
        idle_before=graph.idle_before[layout.source],
        carried=carried[carried >= 0].astype(np.int32),
        dropped=graph.dropped + dropped,
    )
    block = program[layout.position]
    copies = np.bincount(program, minlength=len(of))[block].astype(np.int32)
    return Rewritten(made, layout.source, layout.ordinal[layout.position], copies, layout.position)


def without(made: Rewritten, gone: NDArray[np.bool_]) -> Rewritten:
    """Return rewritten rows of which some take no time and, numbered as no copy, meet no other rank's [n]."""
    own = np.where(gone, 0, made.graph.own)
    return replace(made, graph=replace(made.graph, own=own), copy=np.where(gone, NONE, made.copy).astype(np.int32))


class _Layout:
    """Where every row of the original comes in the new sequence."""

    def __init__(self, graph: TraceGraph, of: Blocks, program: NDArray[np.int64]) -> None:
        self.block = of.of_row
        self.blocks = of
        self.program = program
        many = len(of.of_row)
        self.sorted = np.argsort(self.block, kind="stable")
        self.pointer = np.searchsorted(self.block[self.sorted], np.arange(len(of) + 1))
        self.rank = np.empty(many, np.int64)
        self.rank[self.sorted] = np.arange(many) - self.pointer[self.block[self.sorted]]
        size = np.diff(self.pointer)[program]
        self.base = np.cumsum(np.append(0, size))
        position = np.repeat(np.arange(len(program)), size)
        source = self.sorted[np.arange(self.base[-1]) - self.base[position] + self.pointer[program[position]]]
        by_block = np.lexsort((np.arange(len(program)), program))
        self.keys = program[by_block] * (len(program) + 1) + by_block
        self.place = by_block
        self.ordinal = np.empty(len(program), np.int32)
        start = np.searchsorted(program[by_block], program[by_block])
        self.ordinal[by_block] = np.arange(len(program)) - start
        spans = _spanning(graph, self.block)
        keep = ~spans[source] | (self.ordinal[position] == 0)
        self.number = np.where(keep, np.cumsum(keep) - 1, NONE)
        self.source = source[keep].astype(np.int32)
        self.position = position[keep]

    def at(self, row: NDArray[np.int32], position: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the new number of rows in the copy of their block at a position."""
        found: NDArray[np.int64] = self.number[self.base[position] + self.rank[row]]
        return found

    def last_copy(
        self, block: NDArray[np.int32], position: NDArray[np.int64], *, first: bool = False
    ) -> NDArray[np.int64]:
        """Return the last position, at most `position`, of each block (the first of all: `first`), or NONE."""
        wide = len(self.program) + 1
        if not len(self.keys):
            return np.full(len(block), NONE, np.int64)
        key = block.astype(np.int64) * wide
        place = np.searchsorted(self.keys, key) if first else np.searchsorted(self.keys, key + position, "right") - 1
        place = np.clip(place, 0, len(self.keys) - 1)
        found: NDArray[np.int64] = np.where(self.keys[place] // wide == block, self.place[place], NONE)
        return found

    def new_of(self, row: NDArray[np.int32], position: NDArray[np.int64], *, first: bool = False) -> NDArray[np.int64]:
        """Return the new number of rows in the last copy of their block up to a position, or NONE."""
        place = self.last_copy(self.block[row], position, first=first)
        found = np.full(len(row), NONE, np.int64)
        found[place >= 0] = self.at(row[place >= 0], place[place >= 0])
        return found


def _spanning(graph: TraceGraph, block: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which host rows end in another block than they begin in: those are never copied."""
    rows, atoms = graph.rows, graph.atoms
    spans = np.zeros(len(rows), np.bool_)
    of_atom = block[atoms.row]
    for one in np.unique(atoms.thread).tolist():
        own = np.flatnonzero(atoms.thread == one)
        host = np.flatnonzero(rows.thread == one)
        # An atom that a row holds is one that begins before the row ends.
        last = np.searchsorted(atoms.ts[own], rows.end[host]) - 1
        spans[host] = (last >= 0) & (of_atom[own[np.maximum(last, 0)]] > block[host])
    # A call is one moment of its thread, however long.
    spans[rows.kind == RUNTIME] = False
    return spans


def _times(graph: TraceGraph, layout: _Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when rows begin and end in the new recording, ns: on each thread the parts of blocks closed up."""
    rows, atoms = graph.rows, graph.atoms
    begin, finish = rows.ts[layout.source], rows.end[layout.source]
    host = rows.thread[layout.source]
    position, source = layout.position, layout.source
    moved = np.zeros(len(layout.program), np.int64)
    for one in np.unique(atoms.thread).tolist():
        own = np.flatnonzero(atoms.thread == one)
        block = layout.block[atoms.row[own]]
        end = (atoms.ts + atoms.dur)[own]
        last = np.append(np.flatnonzero(np.diff(block)), len(own) - 1)
        part, high = block[last], end[last]
        low = np.append(int(atoms.ts[own[0]]), high[:-1])
        part_of = np.full(len(layout.blocks), NONE, np.int64)
        part_of[part] = np.arange(len(part))
        here = np.flatnonzero(part_of[layout.program] >= 0)
        which = part_of[layout.program[here]]
        start = low[0] + np.cumsum(np.append(0, (high - low)[which]))[:-1]
        shift = np.zeros(len(layout.program), np.int64)
        shift[here] = start - low[which]
        on = host == one
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


def _rows(rows: Rows, layout: _Layout, begin: NDArray[np.int64], finish: NDArray[np.int64]) -> Rows:
    taken = {name: getattr(rows, name)[layout.source] for name in _COPIED}
    other = {each.name: getattr(rows, each.name) for each in fields(rows) if each.init and each.name not in taken}
    for name in ("parent", "forward"):
        above = other[name][layout.source]
        new = layout.new_of(np.maximum(above, 0), layout.position)
        other[name] = np.where(above >= 0, new, NONE).astype(np.int32)
    return Rows(**{**other, **taken, "ts": begin, "dur": finish - begin})


def _atoms(graph: TraceGraph, layout: _Layout, rows: Rows) -> Atoms:
    old = graph.atoms
    is_atom = np.full(len(graph.rows), NONE, np.int32)
    is_atom[old.row] = np.arange(len(old.row))
    row = np.flatnonzero(is_atom[layout.source] >= 0).astype(np.int32)
    row = row[np.lexsort((row, rows.ts[row]))]
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


def _gpu(graph: TraceGraph, layout: _Layout, rows: Rows, atoms: Atoms) -> GpuStreams:
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
    before = np.full(len(row), NONE, np.int32)
    before[1:] = np.where(rows.stream[row[1:]] == rows.stream[row[:-1]], row[:-1], NONE)
    bounds = np.searchsorted(rows.stream[row], np.arange(len(rows.stream_keys) + 1))
    issued = call.copy()
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        issued[low:high] = np.maximum.accumulate(issued[low:high])
    return GpuStreams(
        row=row.astype(np.int32),
        call=call,
        launched=old.launched[was] & (call >= 0),
        before=before,
        issued=issued,
        bounds=bounds,
    )


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The nodes of the original on their threads and streams."""

    lane: NDArray[np.int64]
    """Thread or stream of every row [n]."""
    order: NDArray[np.int32]
    """Nodes lane by lane, by block and time."""
    at: NDArray[np.int64]
    """Place of every row in `order`, NONE where it is no node [n]."""
    keys: NDArray[np.int64]
    """(lane, block) of every place, ascending."""
    wide: int

    def part(self, lane: NDArray[np.int64], block: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the nodes of a lane in a block begin and end."""
        key = lane * self.wide + block
        return np.searchsorted(self.keys, key), np.searchsorted(self.keys, key, "right")


def _lanes(graph: TraceGraph, layout: _Layout) -> _Lanes:
    rows = graph.rows
    lane = np.where(rows.thread >= 0, rows.thread, rows.stream + int(rows.thread.max(initial=0)) + 1).astype(np.int64)
    atoms, gpu = graph.atoms.row, graph.gpu.row
    node = np.concatenate((atoms, gpu))
    turn = np.arange(len(node))
    order = node[np.lexsort((turn, layout.block[node], lane[node]))]
    at = np.full(len(rows), NONE, np.int64)
    at[order] = np.arange(len(order))
    wide = len(layout.blocks) + 1
    return _Lanes(lane, order, at, lane[order] * wide + layout.block[order], wide)


def _edges(graph: TraceGraph, layout: _Layout, atoms: Atoms, gpu: GpuStreams) -> tuple[Edges, NDArray[np.bool_]]:
    old = graph.edges
    chain = (old.kind == THREAD) | (old.kind == STREAM)
    new_src, new_dst, of_edge = [], [], []
    # Along threads and streams: what comes before in the new sequence.
    into = np.full(len(graph.rows), NONE, np.int64)
    into[old.dst[chain]] = np.flatnonzero(chain)
    has = atoms.before >= 0
    begun: list[Edges] = []
    for before, row, kind in (
        (atoms.row[atoms.before[has]], atoms.row[has], THREAD),
        (gpu.before[gpu.before >= 0], gpu.row[gpu.before >= 0], STREAM),
    ):
        edge = into[layout.source[row]]
        known = edge >= 0
        # What was the first of its thread or stream follows something now, after no time that anything tells.
        begun.append(edges(before[~known], row[~known], kind, 0, False))
        new_src.append(before[known].astype(np.int64))
        new_dst.append(row[known].astype(np.int64))
        of_edge.append(edge[known])
    # All others, once for every copy of the block of their target.
    edge = np.flatnonzero(~chain)
    copies = np.bincount(layout.program, minlength=len(layout.blocks))[layout.block[old.dst[edge]]]
    first = np.searchsorted(layout.keys, layout.block[old.dst[edge]].astype(np.int64) * (len(layout.program) + 1))
    edge = np.repeat(edge, copies)
    turn = np.arange(len(edge)) - np.repeat(np.cumsum(copies) - copies, copies)
    position = layout.place[np.repeat(first, copies) + turn] if len(edge) else np.empty(0, np.int64)
    src = _sources(graph, layout, old.src[edge], old.dst[edge], position)
    dst = layout.at(old.dst[edge], position)
    good = (src >= 0) & (dst >= 0)
    new_src.append(src[good])
    new_dst.append(dst[good])
    of_edge.append(edge[good])
    which = np.concatenate(of_edge)
    found = Edges(
        src=np.concatenate(new_src).astype(np.int32),
        dst=np.concatenate(new_dst).astype(np.int32),
        kind=old.kind[which],
        binds=old.binds[which],
        lag=old.lag[which],
        recorded=old.recorded[which],
    )
    found = join([found, *begun])
    itself = np.zeros(len(found), np.bool_)
    itself[: len(which)] = (graph.order_target != old.dst)[which]
    return found, itself


def _sources(
    graph: TraceGraph, layout: _Layout, src: NDArray[np.int32], dst: NDArray[np.int32], position: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the new source of edges into the copies at some positions, or NONE."""
    lanes, blocks = _lanes(graph, layout), layout.blocks
    from_, to = layout.block[src].astype(np.int64), layout.block[dst].astype(np.int64)
    found = np.full(len(src), NONE, np.int64)
    same = from_ == to
    found[same] = layout.at(src[same], position[same])
    # As many blocks back, where there is a block of the same kind: the row that stands where the source stood.
    back = np.clip(position - (to - from_), 0, len(layout.program) - 1)
    there = layout.program[back]
    alike = (blocks.kind[there] == blocks.kind[from_]) & (blocks.kind[from_] != OUTSIDE)
    alike |= there == from_
    lane = lanes.lane[src]
    low, high = lanes.part(lane, there)
    own_low, own_high = lanes.part(lane, from_)
    turn = lanes.at[src] - own_low
    # Counted from the end where the source was nearer to it.
    turn = np.where(own_high - 1 - lanes.at[src] < turn, high - own_high + lanes.at[src] - low, turn)
    at = np.clip(low + turn, low, np.maximum(high - 1, low))
    use = np.flatnonzero(~same & alike & (high > low) & (position != back))
    found[use] = layout.at(lanes.order[at[use]], back[use])
    # Else the last copy before; of a source that went with its block, the last of its lane before it.
    rest = ~same
    rest[use] = False
    rest = np.flatnonzero(rest)
    found[rest] = _before(layout, lanes, src[rest], position[rest])
    return found


def _before(layout: _Layout, lanes: _Lanes, src: NDArray[np.int32], position: NDArray[np.int64]) -> NDArray[np.int64]:
    found = layout.new_of(src, position)
    gone = np.flatnonzero(layout.last_copy(layout.block[src], position) < 0)
    at = lanes.at[src[gone]]
    for _ in range(64):
        # Dropped blocks lie beside one another, so few steps back reach one that is left.
        if not len(gone):
            break
        low, _ = lanes.part(lanes.lane[src[gone]], layout.block[lanes.order[at]].astype(np.int64))
        at = low - 1
        keep = (at >= 0) & (lanes.lane[lanes.order[np.maximum(at, 0)]] == lanes.lane[src[gone]])
        gone, at = gone[keep], at[keep]
        row = lanes.order[at]
        place = layout.last_copy(layout.block[row], position[gone])
        left = place >= 0
        found[gone[left]] = layout.at(row[left], place[left])
        gone, at = gone[~left], at[~left]
    return found


def ordered(
    rows: Rows, atoms: Atoms, gpu: GpuStreams, found: Edges, waits_itself: NDArray[np.bool_]
) -> tuple[Edges, NDArray[np.int32], NDArray[np.int32], int]:
    """Return the edges that go forward, that order, what they order, and how many were left out."""
    after = np.full(len(rows), NONE, np.int32)
    has = atoms.before >= 0
    after[atoms.row[atoms.before[has]]] = atoms.row[has]
    target = np.where(waits_itself, after[found.dst], found.dst)
    real = target >= 0
    node = np.concatenate((atoms.row, gpu.row))
    is_gpu = np.repeat((False, True), (len(atoms.row), len(gpu.row)))
    node = node[np.lexsort((node, is_gpu, rows.ts[node]))]
    pointer, edge = loops.forward_star(found.src[real], len(rows))
    order = loops.topological(
        node, pointer, edge, target[real], len(rows), np.full(len(rows), NONE, np.int32), np.empty(0, np.int32)
    )
    place = np.full(len(rows), FAR, np.int64)
    place[order] = np.arange(len(order))
    keep = ~real | (place[found.src] < place[np.maximum(target, 0)])
    return found.where(keep), order, target[keep].astype(np.int32), int((~keep).sum())
