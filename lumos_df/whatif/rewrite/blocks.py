"""A trace as a sequence of blocks: the layers of every micro-batch's passes, and what lies around them.

A block has a part on every thread and stream; on each of them the parts follow one another in the order of the blocks.
So a job with other layers or micro-batches is the same trace with another sequence of blocks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.corpus import limits
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.steps import steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import FORWARD, NONE, OPTIMIZER
from lumos_df.structure.layers import Structure
from lumos_df.whatif.durations.host_times import layer_of_atoms

OUTSIDE, FORWARD_PASS, BACKWARD_PASS, UPDATE, WEIGHTS = range(5)
"""What a block belongs to; only `weight_gradients.parted` tells the gradients of weights apart."""


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
    rows, atoms = graph.rows, graph.atoms
    atom_count = len(atoms.row)
    hosted = layer_of_atoms(graph, structure) >= 0
    told_by = np.where(hosted, atoms.row, _launched(graph, structure))
    marked = np.isin(atoms.row, steps(rows).mark)
    # What each atom's block is by its work, and behind those what it is where that is part of no layer.
    step = np.append(rows.step[told_by], rows.step[atoms.row])
    batch = np.append(structure.micro_batch[told_by], np.where(marked, NONE, structure.micro_batch[atoms.row]))
    kind = np.append(_kind(structure, told_by), np.full(atom_count, OUTSIDE))
    layer = np.append(structure.layer[told_by], np.full(atom_count, NONE))
    number = dense(packed(step, batch, kind, layer))
    place = np.zeros(int(number.max(initial=NONE)) + 1, np.int64)
    place[number] = np.arange(len(number))
    key = place[number]
    known = np.where(told_by != NONE, key[:atom_count], NONE)
    key = _spread(known, atoms.thread, structure.layer[atoms.row], key[atom_count:], layer)
    changes = np.flatnonzero(np.diff(key, prepend=NONE))
    of_atom = (np.searchsorted(changes, np.arange(atom_count), side="right") - 1).astype(np.int32)
    first = key[changes]
    return Blocks(
        placed(graph, of_atom),
        kind[first].astype(np.int8),
        step[first].astype(np.int32),
        batch[first].astype(np.int32),
        layer[first].astype(np.int32),
    )


def check_apart(job: str, graph: TraceGraph, structure: Structure, name: str) -> None:
    """Raise `QueryError` where one call launches several layers: they can only be copied, or left out, together.

    Args:
        job: what to call the job.
        graph: a rank.
        structure: what is known of its layers.
        name: the setting that changes layers.
    """
    if (share := _launched_together(graph, structure.layer)) > limits.TRUSTED_PCT:
        raise QueryError(
            f"{job}: {name} cannot change, because {share:.0f}% of the layers' GPU time of rank {graph.rows.rank} was "
            "launched together with other layers, in one CUDA graph; record it without CUDA graphs, or one a layer; "
            "batch, dp, network and overlap keep the layers"
        )


def check_batches_apart(job: str, graph: TraceGraph, structure: Structure) -> None:
    """Raise `QueryError` where one call launches several micro-batches, or what looks like them; as `check_apart`."""
    if (share := _launched_together(graph, structure.micro_batch)) > limits.TRUSTED_PCT:
        raise QueryError(
            f"{job}: batch cannot change, because {share:.0f} % of the micro-batches' GPU time of rank "
            f"{graph.rows.rank} was launched together with other micro-batches, in one CUDA graph; record it without "
            "CUDA graphs, or one a micro-batch; batch_scale keeps them"
        )


def _launched_together(graph: TraceGraph, label: NDArray[np.int32]) -> float:
    """Return how much of the GPU's time with a label was launched by a call of several labels, %; `label`: [n]."""
    gpu = graph.gpu
    of_kernel, lasts = label[gpu.row], graph.own[gpu.row].astype(np.float64)
    told = np.flatnonzero((of_kernel >= 0) & (gpu.call >= 0))
    of_call = np.full(len(graph.atoms.row), NONE, np.int32)
    of_call[gpu.call[told]] = of_kernel[told]
    apart = of_call[gpu.call[told]] == of_kernel[told]
    return 100 * float(lasts[told[~apart]].sum()) / max(float(lasts[told].sum()), 1.0)


def _launched(graph: TraceGraph, structure: Structure) -> NDArray[np.int32]:
    """Return the last kernel of the model's work that each atom launches, NONE for none [atoms]."""
    gpu = graph.gpu
    works = np.zeros(len(graph.rows), np.bool_)
    works[structure.kernels.row] = True
    launched = np.flatnonzero((gpu.call >= 0) & works[gpu.row])
    kernel = np.full(len(graph.atoms.row), NONE, np.int32)
    kernel[gpu.call[launched]] = gpu.row[launched]
    return kernel


def _kind(structure: Structure, row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return which pass the work of rows belongs to, or the optimizer's where that goes by layers."""
    phase = structure.phase[row]
    kind = np.where(phase == FORWARD, FORWARD_PASS, np.where(phase == OPTIMIZER, UPDATE, BACKWARD_PASS))
    return np.where(structure.layer[row] >= 0, kind, OUTSIDE)


def placed(graph: TraceGraph, of_atom: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the block of every operator, given those of the atoms [n]."""
    of_row = np.zeros(len(graph.rows), np.int32)
    _place_host(graph, of_atom, of_row)
    _place_gpu(graph, of_atom, of_row)
    return of_row


def _spread(
    key: NDArray[np.int64],
    thread: NDArray[np.int32],
    layer: NDArray[np.int32],
    outside: NDArray[np.int64],
    layer_of_key: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Return the key of every atom.

    An atom between two of one key has it, too; else it goes with the one before or after that has its layer.

    Args:
        key: those of the atoms that launch compute, NONE for others.
        thread, layer: of the atoms.
        outside: the key that each has where it is part of no layer.
        layer_of_key: layer by key, NONE outside the layers.
    """
    spread = outside.copy()
    for number in np.unique(thread).tolist():
        atom = np.flatnonzero(thread == number)
        known = np.flatnonzero(key[atom] != NONE)
        if not len(known):
            continue
        place = np.searchsorted(known, np.arange(len(atom)))
        after = key[atom[known[np.minimum(place, len(known) - 1)]]]
        before = key[atom[known[np.maximum(place - 1, 0)]]]
        after = np.where(place < len(known), after, outside[atom])
        before = np.where(place > 0, before, outside[atom])
        fits_after = (layer_of_key[after] >= 0) & (layer_of_key[after] == layer[atom])
        fits_before = (layer_of_key[before] >= 0) & (layer_of_key[before] == layer[atom])
        nearest = np.where(fits_after, after, np.where(fits_before, before, outside[atom]))
        chosen = np.where(before == after, after, nearest)
        spread[atom] = np.where(key[atom] != NONE, key[atom], chosen)
    silent = ~np.isin(thread, np.unique(thread[key != NONE]))
    if silent.any() and not silent.all():
        # Threads that launch nothing go with what the others do at the time.
        loud = np.flatnonzero(~silent)
        place = np.maximum(np.searchsorted(loud, np.flatnonzero(silent)) - 1, 0)
        spread[silent] = spread[loud[place]]
    return spread


def _place_host(graph: TraceGraph, of_atom: NDArray[np.int32], of_row: NDArray[np.int32]) -> None:
    """Give the host's rows the block of the next atom on their thread."""
    rows, atoms = graph.rows, graph.atoms
    for thread in np.unique(atoms.thread).tolist():
        atom = np.flatnonzero(atoms.thread == thread)
        host = np.flatnonzero(rows.thread == thread)
        place = np.searchsorted(atoms.ts[atom], rows.ts[host])
        of_row[host] = of_atom[atom[np.minimum(place, len(atom) - 1)]]
    # Several rows may begin at one time.
    held = atoms.of_row >= 0
    of_row[held] = of_atom[atoms.of_row[held]]


def _place_gpu(graph: TraceGraph, of_atom: NDArray[np.int32], of_row: NDArray[np.int32]) -> None:
    """Give GPU rows the block of the call that issued them, never an earlier one than their stream has reached."""
    gpu = graph.gpu
    block = np.where(gpu.call >= 0, of_atom[gpu.call] if len(of_atom) else 0, 0).astype(np.int32)
    for low, high in zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True):
        block[low:high] = np.maximum.accumulate(block[low:high])
    of_row[gpu.row] = block
