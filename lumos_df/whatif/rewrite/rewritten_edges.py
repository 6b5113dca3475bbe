"""The dependencies of a trace whose blocks come in another sequence, by the pattern of the original.

Along threads and streams a row follows what comes before it in the new sequence. Any other dependency leads to the same
place: in the same block, else as many blocks back as it was, to the row that stands where the source stood; a wait for
all of a stream is one for all of it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE, STREAM, THREAD
from lumos_df.whatif.rewrite.block_layout import BlockLayout
from lumos_df.whatif.rewrite.blocks import OUTSIDE


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


def _lanes(graph: TraceGraph, layout: BlockLayout) -> _Lanes:
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


def rewritten_edges(
    graph: TraceGraph, layout: BlockLayout, atoms: Atoms, gpu: GpuStreams
) -> tuple[Edges, NDArray[np.bool_]]:
    """Return the edges of the new graph, and which of them order what follows their target and not the target itself.

    Args:
        graph: the graph as it was.
        layout: where its rows come.
        atoms, gpu: the new moments of threads, and rows of streams.
    """
    old = graph.edges
    chain = (old.kind == THREAD) | (old.kind == STREAM)
    new_src, new_dst, of_edge = [], [], []
    # Along threads and streams: what comes before in the new sequence.
    into = np.full(len(graph.rows), NONE, np.int64)
    into[old.dst[chain]] = np.flatnonzero(chain)
    follows = atoms.before >= 0
    begun: list[Edges] = []
    for before, row, kind in (
        (atoms.row[atoms.before[follows]], atoms.row[follows], THREAD),
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
    new_edges = Edges(
        src=np.concatenate(new_src).astype(np.int32),
        dst=np.concatenate(new_dst).astype(np.int32),
        kind=old.kind[which],
        binds=old.binds[which],
        lag=old.lag[which],
        recorded=old.recorded[which],
    )
    new_edges = join([new_edges, *begun])
    itself = np.zeros(len(new_edges), np.bool_)
    itself[: len(which)] = (graph.order_target != old.dst)[which]
    return new_edges, itself


def _sources(
    graph: TraceGraph, layout: BlockLayout, src: NDArray[np.int32], dst: NDArray[np.int32], position: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the new source of edges into the copies at some positions, or NONE."""
    lanes, blocks = _lanes(graph, layout), layout.blocks
    from_, to = layout.block[src].astype(np.int64), layout.block[dst].astype(np.int64)
    new_source = np.full(len(src), NONE, np.int64)
    same = from_ == to
    new_source[same] = layout.at(src[same], position[same])
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
    new_source[use] = layout.at(lanes.order[at[use]], back[use])
    # Else the last copy before; of a source that went with its block, the last of its lane before it.
    remaining = ~same
    remaining[use] = False
    remaining = np.flatnonzero(remaining)
    new_source[remaining] = _before(layout, lanes, src[remaining], position[remaining])
    return new_source


def _before(
    layout: BlockLayout, lanes: _Lanes, src: NDArray[np.int32], position: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the last copy of each source, and of one that went with its block of the last row of its lane before."""
    new_source = layout.new_of(src, position)
    gone = np.flatnonzero(layout.last_copy(layout.block[src], position) < 0)
    at = lanes.at[src[gone]]
    while len(gone):
        low, _ = lanes.part(lanes.lane[src[gone]], layout.block[lanes.order[at]].astype(np.int64))
        at = low - 1
        keep = (at >= 0) & (lanes.lane[lanes.order[np.maximum(at, 0)]] == lanes.lane[src[gone]])
        gone, at = gone[keep], at[keep]
        row = lanes.order[at]
        place = layout.last_copy(layout.block[row], position[gone])
        left = place >= 0
        new_source[gone[left]] = layout.at(row[left], place[left])
        gone, at = gone[~left], at[~left]
    return new_source
