"""A trace as a sequence of blocks: the layers of every micro-batch's passes, and what lies around them.

A block has a part on every thread and stream; on each of them the parts follow one another in the order of the blocks.
So a job with other layers or micro-batches is the same trace with another sequence of blocks.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.dependencies import Graph
from lumos_df.graph.rows import NONE
from lumos_df.structure.layers import Structure
from lumos_df.structure.rows import FORWARD

OUTSIDE, FORWARD_PASS, BACKWARD_PASS = range(3)
"""What a block belongs to."""
_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class Blocks:
    """b blocks of one trace, in the order in which the host issued them."""

    of_row: NDArray[np.int32]
    """Block of every operator [n]: of one that spans several, the first."""
    kind: NDArray[np.int8]
    step: NDArray[np.int32]
    micro_batch: NDArray[np.int32]
    layer: NDArray[np.int32]
    """NONE outside the layers."""

    def __len__(self) -> int:
        """Return b."""
        return len(self.kind)


def blocks(graph: Graph, structure: Structure) -> Blocks:
    """Cut a trace into blocks."""
    rows, atoms, gpu = graph.rows, graph.atoms, graph.gpu
    many = len(atoms.row)
    key = np.full(many, NONE, np.int64)
    inside = np.zeros(len(rows), np.bool_)
    inside[structure.kernels.row] = True
    use = np.flatnonzero((gpu.call >= 0) & inside[gpu.row])
    kernel, call = gpu.row[use], gpu.call[use]
    key[call] = np.where(
        structure.layer[kernel] >= 0,
        (((rows.step[kernel].astype(np.int64) + 1) << _BITS | structure.micro_batch[kernel] + 1) << 2
         | np.where(structure.phase[kernel] == FORWARD, FORWARD_PASS, BACKWARD_PASS)) << _BITS
        | structure.layer[kernel] + 1,
        0,
    )
    key = _spread(key, atoms.thread, structure.layer[atoms.row])
    changes = np.flatnonzero(np.diff(key, prepend=key[:1] - 1)) if many else np.empty(0, np.int64)
    of_atom = (np.searchsorted(changes, np.arange(many), side="right") - 1).astype(np.int32)
    first = key[changes]
    layer = np.where(first > 0, (first & ((1 << _BITS) - 1)) - 1, NONE).astype(np.int32)
    kind = np.where(first > 0, first >> _BITS & 3, OUTSIDE).astype(np.int8)
    begun = atoms.row[changes]
    batch = structure.micro_batch[begun]
    batch = np.where(first > 0, (first >> (_BITS + 2) & ((1 << _BITS) - 1)) - 1, batch).astype(np.int32)
    of_row = np.zeros(len(rows), np.int32)
    _place_host(graph, of_atom, of_row)
    _place_gpu(graph, of_atom, of_row)
    return Blocks(of_row, kind, rows.step[begun], batch, layer)


def _spread(key: NDArray[np.int64], thread: NDArray[np.int32], layer: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the key of every atom, of which those that launch compute are known (not NONE); 0 is outside.

    An atom between two of one key has it, too; else it goes with the one before or after that has its layer.
    """
    found = np.zeros(len(key), np.int64)
    for one in np.unique(thread).tolist():
        own = np.flatnonzero(thread == one)
        known = np.flatnonzero(key[own] != NONE)
        if not len(known):
            continue
        place = np.searchsorted(known, np.arange(len(own)))
        after = key[own[known[np.minimum(place, len(known) - 1)]]]
        before = key[own[known[np.maximum(place - 1, 0)]]]
        after = np.where(place < len(known), after, 0)
        before = np.where(place > 0, before, 0)
        low = (1 << _BITS) - 1
        fits_after = (after > 0) & ((after & low) - 1 == layer[own])
        fits_before = (before > 0) & ((before & low) - 1 == layer[own])
        chosen = np.where(before == after, after, np.where(fits_after, after, np.where(fits_before, before, 0)))
        found[own] = np.where(key[own] != NONE, key[own], chosen)
    silent = ~np.isin(thread, np.unique(thread[key != NONE]))
    if silent.any() and not silent.all():
        # Threads that launch nothing go with what the others do at the time.
        loud = np.flatnonzero(~silent)
        place = np.maximum(np.searchsorted(loud, np.flatnonzero(silent)) - 1, 0)
        found[silent] = found[loud[place]]
    return found


def _place_host(graph: Graph, of_atom: NDArray[np.int32], of_row: NDArray[np.int32]) -> None:
    """Give the host's rows the block of the next atom on their thread."""
    rows, atoms = graph.rows, graph.atoms
    for one in np.unique(atoms.thread).tolist():
        own = np.flatnonzero(atoms.thread == one)
        host = np.flatnonzero(rows.thread == one)
        place = np.searchsorted(atoms.ts[own], rows.ts[host])
        of_row[host] = of_atom[own[np.minimum(place, len(own) - 1)]]
    # Several rows may begin at one time.
    has = atoms.of_row >= 0
    of_row[has] = of_atom[atoms.of_row[has]]


def _place_gpu(graph: Graph, of_atom: NDArray[np.int32], of_row: NDArray[np.int32]) -> None:
    """Give GPU rows the block of the call that issued them, never an earlier one than their stream has reached."""
    gpu = graph.gpu
    block = np.where(gpu.call >= 0, of_atom[gpu.call] if len(of_atom) else 0, 0).astype(np.int32)
    for low, high in zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True):
        block[low:high] = np.maximum.accumulate(block[low:high])
    of_row[gpu.row] = block
