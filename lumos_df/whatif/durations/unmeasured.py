"""Collectives of one process that stood for many ranks: what the network model says of them, where they were called.

The recording holds the calls, which returned at once. A collective starts when its call does and what its stream had
been given before is done. Whatever follows `wait_tensor` waits for it; the optimizer waits for reduced gradients; any
other one is waited for at once.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, NONE, OPTIMIZER, OTHER_PHASE
from lumos_df.schema.collective_kinds import GROWS, MODELLED_AS, REDUCTIONS, SEND
from lumos_df.schema.plan_words import DP, PP
from lumos_df.structure import dimensions, shapes
from lumos_df.structure.compute_stream import compute_stream
from lumos_df.structure.parallelism import roles
from lumos_df.whatif.durations import kernel_times
from lumos_df.whatif.durations.added_kernels import AddedKernels, with_modelled
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.durations.payloads import payload_ratio, sent_bytes
from lumos_df.whatif.job.recorded_job import RecordedJob

_WAIT: Final = "_c10d_functional::wait_tensor"
_SENDS: Final = ("send", "recv")


@dataclass(frozen=True, slots=True)
class _Calls:
    """The collective calls of a recorded rank [k]."""

    row: NDArray[np.int32]
    degree: NDArray[np.int64]
    word: list[str]
    size: NDArray[np.int64]
    payload: NDArray[np.int64]
    """Bytes as nccl-tests count them."""
    lasts: NDArray[np.int64]
    """ns."""


def filled(draft: DraftJob) -> DraftJob:
    """Return the job with its unmeasured collectives."""
    anchor, change = draft.anchor, draft.change
    made = with_modelled(
        draft, lambda graph, source, rank: _placed(anchor, graph, source, _calls(anchor, change, rank), rank)
    )
    a_step = round(made.added(draft) / max(draft.steps, 1))
    made = made.said(
        f"collectives were not measured, because one process stood for many: {a_step} a step take what the network "
        f"model says of the links of {_links(change)}, within {kernel_times.MODELLED_ERROR:.0%}"
    )
    if (change.new.pp or 1) > 1 and len(draft.job.graphs) == 1:
        return made.said("the waiting of a pipeline's stages for one another is not in it: one rank was recorded")
    return made


def _links(change: PlannedChange) -> str:
    return f"network={change.settings.network}" if change.settings.network else change.runs_on.hardware.name


def _calls(anchor: RecordedJob, change: PlannedChange, rank: int) -> _Calls:
    about = anchor.about.ranks[rank]
    trace, structure, rows = about.trace, about.structure, about.trace.rows
    operations = shapes.operations(trace, structure.phase, structure.layer)
    row, degree = roles(trace, structure, dimensions.local(structure, operations, anchor.about.given))
    word = rows.of_collective(MODELLED_AS)[row]
    point = rows.of_collective(_SENDS)[row]
    # The functional call states its bytes; the one inside of it does not.
    stated = (rows.in_bytes[row] > 0) | point
    kept = (rows.kind[row] == CPU_OP) & word & stated & (degree != NONE)
    row, degree = row[kept], degree[kept].astype(np.int64)
    grown = payload_ratio(anchor, change, rank, row, degree.astype(np.int8))
    old, new = change.groups
    words = [rows.collectives[place] for place in rows.collective[row].tolist()]
    size = np.array(new.size, np.int64)[degree]
    gathers = np.array([GROWS[name] > 0 for name in words], np.bool_)
    whole = rows.in_bytes[row] * np.where(gathers, np.array(old.size, np.int64)[degree], 1) * grown
    payload = np.where(degree == PP, sent_bytes(change), whole)
    seconds = _seconds(change, words, degree, size, payload)
    return _Calls(row, degree, words, size, payload.astype(np.int64), np.round(seconds * 1e9).astype(np.int64))


def _seconds(
    change: PlannedChange,
    words: list[str],
    degree: NDArray[np.int64],
    size: NDArray[np.int64],
    payload: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return what the network model says of each call, s."""
    kind = np.array([MODELLED_AS[word] for word in words], np.int64)
    alike, inverse = np.unique(np.stack((kind, degree, size, payload.astype(np.int64))), axis=1, return_inverse=True)
    stride = change.groups[1].stride
    each = [
        change.links[1].seconds(collective, float(moved), 2 if collective == SEND else members, stride[dimension])
        if members > 1
        else 0.0
        for collective, dimension, members, moved in alike.T.tolist()
    ]
    return np.array([*each, 0.0])[inverse.reshape(-1)]


def _placed(
    anchor: RecordedJob, graph: TraceGraph, source: NDArray[np.int32], calls: _Calls, rank: int
) -> AddedKernels:
    """Return the calls of a rank as kernels of its changed graph: a call that comes again is one again."""
    rows, atoms = graph.rows, graph.atoms
    # The last place is that of NONE.
    number = np.full(len(anchor.job.graphs[rank].rows) + 1, NONE, np.int64)
    number[calls.row] = np.arange(len(calls.row))
    row = np.flatnonzero(number[source] >= 0)
    row = row[np.argsort(rows.ts[row], kind="stable")]
    which = number[source[row]]
    waits = _waits(anchor, graph, source, row, calls.degree[which], rank)
    issuer = _atom_before(graph, row)
    issued = issuer >= 0
    end = np.where(issued, (atoms.ts + atoms.dur)[issuer], rows.ts[row])
    after = np.where(issued, atoms.row[issuer], NONE).astype(np.int32)
    busy = _compute_before(graph, issuer)
    streams = np.unique(calls.degree[which], return_inverse=True)[1].reshape(-1)
    names = tuple(dict.fromkeys(calls.word))
    name = np.array([names.index(word) for word in calls.word], np.int64)[which]
    return AddedKernels(
        name=name,
        names=tuple(f"{each} (modelled)" for each in names),
        collective=names,
        stream=streams.astype(np.int64),
        lasts=calls.lasts[which],
        error=np.full(len(which), kernel_times.MODELLED_ERROR),
        group_size=calls.size[which],
        in_bytes=calls.payload[which],
        begins=rows.ts[row],
        after=np.stack((after, busy)),
        lag=np.maximum(rows.ts[row] - end, 0),
        before=waits,
    )


def _atom_before(graph: TraceGraph, row: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the last atom of each row's thread that begins before the row, or NONE."""
    return graph.atoms.last_before(graph.rows.thread[row], graph.rows.ts[row] - 1)


def _compute_before(graph: TraceGraph, atom: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the last kernel of the compute stream that was issued by each moment, NONE where there is no GPU."""
    stream = compute_stream(graph.rows)
    if stream == NONE:
        return np.full(len(atom), NONE, np.int32)
    return graph.gpu.last_issued(stream, atom, inclusive=True)


def _waits(
    anchor: RecordedJob,
    graph: TraceGraph,
    source: NDArray[np.int32],
    row: NDArray[np.int64],
    degree: NDArray[np.int64],
    rank: int,
) -> NDArray[np.int32]:
    """Return the row that waits for each call: a kernel of the compute stream, without a GPU a moment of the host."""
    rows, atoms = graph.rows, graph.atoms
    phase = np.append(anchor.about.ranks[rank].structure.phase, np.int8(OTHER_PHASE))[source]
    word = np.array([*rows.collectives, ""])[rows.collective[row]]
    until = rows.end[row].copy()
    waits = np.flatnonzero(rows.named(lambda name: name == _WAIT))
    functional = rows.named(lambda name: name.startswith("_c10d_functional::"))[row]
    updates = np.flatnonzero((phase == OPTIMIZER) & (rows.thread >= 0))
    reduces = (degree == DP) & np.isin(word, REDUCTIONS)
    for at, may in ((waits, functional & ~reduces), (updates, reduces)):
        moments = np.sort(rows.ts[at])
        place = np.searchsorted(moments, until)
        known = may & (place < len(moments))
        until[known] = moments[place[known]]
    waiting = np.full(len(row), NONE, np.int32)
    # An optimizer may run on another thread than the hook that reduced: the next moment of any thread that works.
    order = np.argsort(atoms.ts, kind="stable")
    place = np.searchsorted(atoms.ts[order], until)
    next_atom = np.where(place < len(order), order[np.minimum(place, len(order) - 1)], NONE).astype(np.int32)
    stream = compute_stream(rows)
    followed = next_atom >= 0
    waiting[followed] = (
        atoms.row[next_atom[followed]] if stream == NONE else graph.gpu.next_issued(stream, next_atom[followed])
    )
    return waiting
