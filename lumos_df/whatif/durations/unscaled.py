"""What a change should have made longer or shorter, and nothing in the trace says by how much."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, FORWARD, KERNEL, NONE, RECOMPUTE
from lumos_df.structure.axis_labels import holds_one_number
from lumos_df.structure.picked_rows import takes_from_table
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.durations.kernel_times import shaped
from lumos_df.whatif.durations.operator_times import PlannedChange, updates
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import IN_SHAPES, Sizes

SHAPES: Final = "no shapes are recorded of their operators; record with PyTorch's record_shapes=True"
UNKNOWN: Final = "their operators have no tensors, so their work is unknown; record with with_stack=True to see whose"
TAKEN: Final = "they take rows of tables, and how many is data; a trace of another batch tells how they grow"
ONE_NUMBER: Final = "data picks their tokens, always as many here; a step in which it picks other numbers tells"
ON_HOST: Final = "collectives ran on the host; record the job with NCCL"
REASONS: Final = (SHAPES, UNKNOWN, TAKEN, ONE_NUMBER, ON_HOST)
PICKED: Final = (REASONS.index(TAKEN), REASONS.index(ONE_NUMBER))
"""Reasons of rows that data picks, of tables or of tokens."""
_IN_SHAPES: Final = (*IN_SHAPES, "tp", "cp", "sp")
_TOKENS: Final = ("seq", "micro_batch", "cp", "sp")


def unscaled(anchor: RecordedJob, change: PlannedChange, rank: int) -> NDArray[np.int8]:
    """Return why each row of a rank cannot be rescaled: a place in `REASONS`; -1: it is known, or not concerned [n].

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
    """
    about, graph = anchor.about.ranks[rank], anchor.job.graphs[rank]
    rows, trace = graph.rows, about.trace
    reason = np.full(len(rows), -1, np.int8)
    on_host = host_times.runs_here(graph)
    if on_host and _moves(change):
        reason[host_times.works(graph) & (rows.collective >= 0)] = REASONS.index(ON_HOST)
    if not _resized(change):
        return reason
    passes = np.isin(about.structure.phase, (FORWARD, BACKWARD, RECOMPUTE)) | (not _only_tokens(change))
    if on_host:
        row = host_times.untold(trace, graph)
        reason[row[passes[row]]] = REASONS.index(SHAPES)
        working = np.flatnonzero(host_times.works(graph) & passes)
        reason[working[_of_one_number(change, rank, working)]] = REASONS.index(ONE_NUMBER)
        return reason
    row = np.flatnonzero(rows.on_gpu & ~((rows.kind == KERNEL) & (rows.family == COMMUNICATION))).astype(np.int32)
    row = row[passes[row] & ~updates(about, change.old, row)]
    operator = shaped(trace, row)
    sizes = np.array([*(any(letter.isdigit() for letter in word) for word in trace.dims.words), False])
    reason[row[operator < 0]] = REASONS.index(SHAPES)
    without = (operator >= 0) & ~sizes[np.where(operator >= 0, trace.dims.code[operator], -1)]
    reason[row[without]] = REASONS.index(UNKNOWN)
    _, example, inverse = np.unique(
        packed(rows.name[operator], change.axes[rank].kind[operator]), return_index=True, return_inverse=True
    )
    taken = np.array(
        [
            at >= 0 and takes_from_table(rows.names[rows.name[at]], change.axes[rank].labels(at))
            for at in operator[example].tolist()
        ],
        np.bool_,
    )
    reason[row[(operator >= 0) & taken[inverse.reshape(-1)]]] = REASONS.index(TAKEN)
    reason[row[_of_one_number(change, rank, operator)]] = REASONS.index(ONE_NUMBER)
    return reason


def _of_one_number(change: PlannedChange, rank: int, operator: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of some operators, NONE for none, hold tokens that data picks, where the sequence changes [k]."""
    known = change.axes[rank]
    of_kind = np.array([*map(holds_one_number, known.of_kind), False])
    kind = np.where(operator >= 0, known.kind[operator], NONE)
    return of_kind[kind] & (change.new.rank_seq != change.old.rank_seq)


def _resized(change: PlannedChange) -> bool:
    """Return whether kernels should take other times than measured."""
    return (
        any(_differs(change.old, change.new, name) for name in _IN_SHAPES)
        or change.settings.batch_scale != 1
        or change.runs_on is not change.measured_on
    )


def _only_tokens(change: PlannedChange) -> bool:
    """Return whether nothing but the tokens changes: the optimizer's work does not."""
    others = [name for name in _IN_SHAPES if name not in _TOKENS]
    return change.runs_on is change.measured_on and not any(_differs(change.old, change.new, name) for name in others)


def _moves(change: PlannedChange) -> bool:
    """Return whether collectives of the host should take other times than `host_transfers` says."""
    names = ("dp", "tp", "batch")
    return bool(change.settings.network) or any(_differs(change.old, change.new, name) for name in names)


def _differs(old: Sizes, new: Sizes, name: str) -> bool:
    return bool(getattr(old, name) != getattr(new, name))
