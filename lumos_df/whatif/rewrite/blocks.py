"""A trace as a sequence of blocks: the layers of every micro-batch's passes, and what lies around them.

A block has a part on every thread and stream; on each of them the parts follow one another in the order of the blocks.
So a job with other layers or micro-batches is the same trace with another sequence of blocks.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.steps import steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import FORWARD, NONE, OPTIMIZER
from lumos_df.structure.layers import Structure
from lumos_df.whatif.durations.host_times import layer_of_atoms

OUTSIDE, FORWARD_PASS, BACKWARD_PASS, UPDATE, WEIGHTS = range(5)
"""What a block belongs to; only `weights.parted` tells the gradients of weights apart."""
_BITS: Final = 20
_LOW: Final = (1 << _BITS) - 1


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


def blocks(graph: TraceGraph, structure: Structure) -> Blocks:
    """Cut a trace into blocks."""
    rows, atoms, gpu = graph.rows, graph.atoms, graph.gpu
    many = len(atoms.row)
    inside = np.zeros(len(rows), np.bool_)
    inside[structure.kernels.row] = True
    use = np.flatnonzero((gpu.call >= 0) & inside[gpu.row])
    kernel = gpu.row[use]
    ahead = np.where(structure.phase[kernel] == FORWARD, FORWARD_PASS, BACKWARD_PASS)
    known = np.full(many, NONE, np.int64)
    in_layer = structure.layer[kernel] >= 0
    known[gpu.call[use]] = _key(
        rows.step[kernel], structure.micro_batch[kernel], np.where(in_layer, ahead, OUTSIDE), structure.layer[kernel]
    )
    _work_of_host(graph, structure, known)
    none = np.full(many, NONE, np.int32)
    marked = np.isin(atoms.row, steps(rows).mark)
    batch_of = np.where(marked, NONE, structure.micro_batch[atoms.row]).astype(np.int32)
    around = _key(rows.step[atoms.row], batch_of, np.zeros(many, np.int64), none)
    key = _spread(known, atoms.thread, structure.layer[atoms.row], around)
    changes = np.flatnonzero(np.diff(key, prepend=key[:1] - 1)) if many else np.empty(0, np.int64)
    of_atom = (np.searchsorted(changes, np.arange(many), side="right") - 1).astype(np.int32)
    first = key[changes]
    layer = (first & _LOW) - 1
    kind = first >> _BITS & 3
    batch = (first >> (_BITS + 2) & _LOW) - 1
    step = (first >> (2 * _BITS + 2)) - 1
    return Blocks(
        placed(graph, of_atom),
        kind.astype(np.int8),
        step.astype(np.int32),
        batch.astype(np.int32),
        layer.astype(np.int32),
    )


def placed(graph: TraceGraph, of_atom: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the block of every operator, given those of the atoms [n]."""
    of_row = np.zeros(len(graph.rows), np.int32)
    _place_host(graph, of_atom, of_row)
    _place_gpu(graph, of_atom, of_row)
    return of_row


def _work_of_host(graph: TraceGraph, structure: Structure, key: NDArray[np.int64]) -> None:
    """Give the atoms that do the work of a trace without a GPU the key of their layer's pass."""
    layer = layer_of_atoms(graph, structure)
    atom = np.flatnonzero(layer >= 0)
    row = graph.atoms.row[atom]
    phase = structure.phase[row]
    kind = np.where(phase == FORWARD, FORWARD_PASS, np.where(phase == OPTIMIZER, UPDATE, BACKWARD_PASS))
    key[atom] = _key(graph.rows.step[row], structure.micro_batch[row], kind, layer[atom])


def _key(
    step: NDArray[np.int32], batch: NDArray[np.int32], kind: NDArray[np.int64], layer: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return one number of what a block is."""
    found: NDArray[np.int64] = (((step.astype(np.int64) + 1) << _BITS | batch + 1) << 2 | kind) << _BITS | layer + 1
    return found


def _spread(
    key: NDArray[np.int64], thread: NDArray[np.int32], layer: NDArray[np.int32], outside: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the key of every atom.

    An atom between two of one key has it, too; else it goes with the one before or after that has its layer.

    Args:
        key: those of the atoms that launch compute, NONE for others.
        thread, layer: of the atoms.
        outside: the key that each has where it is part of no layer.
    """
    found = outside.copy()
    for one in np.unique(thread).tolist():
        own = np.flatnonzero(thread == one)
        known = np.flatnonzero(key[own] != NONE)
        if not len(known):
            continue
        place = np.searchsorted(known, np.arange(len(own)))
        after = key[own[known[np.minimum(place, len(known) - 1)]]]
        before = key[own[known[np.maximum(place - 1, 0)]]]
        after = np.where(place < len(known), after, outside[own])
        before = np.where(place > 0, before, outside[own])
        fits_after = (after & _LOW > 0) & ((after & _LOW) - 1 == layer[own])
        fits_before = (before & _LOW > 0) & ((before & _LOW) - 1 == layer[own])
        rest = np.where(fits_after, after, np.where(fits_before, before, outside[own]))
        chosen = np.where(before == after, after, rest)
        found[own] = np.where(key[own] != NONE, key[own], chosen)
    silent = ~np.isin(thread, np.unique(thread[key != NONE]))
    if silent.any() and not silent.all():
        # Threads that launch nothing go with what the others do at the time.
        loud = np.flatnonzero(~silent)
        place = np.maximum(np.searchsorted(loud, np.flatnonzero(silent)) - 1, 0)
        found[silent] = found[loud[place]]
    return found


def _place_host(graph: TraceGraph, of_atom: NDArray[np.int32], of_row: NDArray[np.int32]) -> None:
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


def _place_gpu(graph: TraceGraph, of_atom: NDArray[np.int32], of_row: NDArray[np.int32]) -> None:
    """Give GPU rows the block of the call that issued them, never an earlier one than their stream has reached."""
    gpu = graph.gpu
    block = np.where(gpu.call >= 0, of_atom[gpu.call] if len(of_atom) else 0, 0).astype(np.int32)
    for low, high in zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True):
        block[low:high] = np.maximum.accumulate(block[low:high])
    of_row[gpu.row] = block
