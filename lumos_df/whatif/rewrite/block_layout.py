"""Where the rows of a trace come when its blocks come in another sequence."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE, RUNTIME
from lumos_df.whatif.rewrite.blocks import Blocks


class BlockLayout:
    """Where every row of the original comes in the new sequence."""

    def __init__(self, graph: TraceGraph, blocks: Blocks, program: NDArray[np.int64]) -> None:
        self.block = blocks.of_row
        self.blocks = blocks
        self.program = program
        row_count = len(blocks.of_row)
        self.sorted = np.argsort(self.block, kind="stable")
        self.pointer = np.searchsorted(self.block[self.sorted], np.arange(len(blocks) + 1))
        self.rank = np.empty(row_count, np.int64)
        self.rank[self.sorted] = np.arange(row_count) - self.pointer[self.block[self.sorted]]
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
        number: NDArray[np.int64] = self.number[self.base[position] + self.rank[row]]
        return number

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
        last: NDArray[np.int64] = np.where(self.keys[place] // wide == block, self.place[place], NONE)
        return last

    def new_of(self, row: NDArray[np.int32], position: NDArray[np.int64], *, first: bool = False) -> NDArray[np.int64]:
        """Return the new number of rows in the last copy of their block up to a position, or NONE."""
        place = self.last_copy(self.block[row], position, first=first)
        new = np.full(len(row), NONE, np.int64)
        new[place >= 0] = self.at(row[place >= 0], place[place >= 0])
        return new


def _spanning(graph: TraceGraph, block: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which host rows end in another block than they begin in: those are never copied."""
    rows, atoms = graph.rows, graph.atoms
    spans = np.zeros(len(rows), np.bool_)
    of_atom = block[atoms.row]
    for thread in np.unique(atoms.thread).tolist():
        atom = np.flatnonzero(atoms.thread == thread)
        host = np.flatnonzero(rows.thread == thread)
        # An atom that a row holds is one that begins before the row ends.
        last = np.searchsorted(atoms.ts[atom], rows.end[host]) - 1
        spans[host] = (last >= 0) & (of_atom[atom[np.maximum(last, 0)]] > block[host])
    # A call is one moment of its thread, however long.
    spans[rows.kind == RUNTIME] = False
    return spans
