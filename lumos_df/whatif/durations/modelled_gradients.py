"""Gradients of a job that ran as one replica, reduced over several: as many bytes as there are, where DDP would.

PyTorch's DistributedDataParallel reduces gradients in buckets, as the last backward pass of a step adds them up, on a
stream of its own; what the GPU computes after that pass waits for the last bucket.
"""

import json
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, KERNEL, NONE
from lumos_df.schema.collective_kinds import ALL_REDUCE, COLLECTIVES, REDUCE_SCATTER
from lumos_df.schema.dtypes import element_type
from lumos_df.schema.plan_words import DP
from lumos_df.schema.words import GRADIENT
from lumos_df.structure.compute_stream import compute_stream
from lumos_df.whatif.durations.added_kernels import GRADIENTS, AddedKernels, name_of, with_modelled
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.durations.own_links import OwnLinks
from lumos_df.whatif.job.nearest_setting import refusal
from lumos_df.whatif.job.recorded_job import RecordedJob

FIRST_BUCKET_BYTES: Final = 1 << 20
"""Gradients of the first bucket: what PyTorch closes it at."""
BUCKET_BYTES: Final = 25 << 20
"""Those of every other bucket."""


def with_gradients(draft: DraftJob) -> DraftJob:
    """Return the job with all-reduces of its gradients.

    Raises:
        QueryError: the job ran on no GPU, or its trace does not tell the gradients' bytes.
    """
    anchor, change = draft.anchor, draft.change
    links = OwnLinks.of(anchor, change)
    alone = replace(draft, job=replace(draft.job, graphs=list(map(_without_lone, draft.job.graphs))))
    made = with_modelled(alone, lambda graph, origin, rank: _buckets(anchor, change, links, graph, origin, rank))
    total = made.added(draft)
    if not total:
        return made.said(
            f"{_replicas(change)} changes no step: no backward pass was found, so each replica does what this one did"
        )
    each, word = links.lasting(_kind(change), DP, np.zeros(1, np.int64)), COLLECTIVES[_kind(change)].replace("_", "-")
    return made.said(
        f"{_replicas(change)} is modelled, as the job ran as one replica: {total} {word}s of gradients, in buckets as "
        f"PyTorch's DDP has them, take what {each.source}, within {each.error[0]:.0%}; record it with dp=2 to have "
        "them measured"
    )


def _replicas(change: PlannedChange) -> str:
    """Return the ranks that reduce gradients together, as they are written."""
    return f"dp={change.new.dp}" + (f" cp={change.new.cp}" if change.new.cp > 1 else "")


def _kind(change: PlannedChange) -> int:
    """Return how gradients are reduced, a place in `schema.COLLECTIVES`: to the rank that updates them, or to all."""
    return REDUCE_SCATTER if change.new.zero else ALL_REDUCE


def _without_lone(graph: TraceGraph) -> TraceGraph:
    """Return the graph whose collectives of one rank take no time: those of more ranks stand for them."""
    rows = graph.rows
    lone = rows.on_gpu & (rows.family == COMMUNICATION) & (rows.group_size == 1)
    return replace(graph, own=np.where(lone, 0, graph.own)) if lone.any() else graph


def _buckets(
    anchor: RecordedJob,
    change: PlannedChange,
    links: OwnLinks,
    graph: TraceGraph,
    origin: NDArray[np.int32],
    rank: int,
) -> AddedKernels:
    """Return the all-reduces of every step of a rank."""
    rows = graph.rows
    stream = compute_stream(rows)
    if stream == NONE:
        raise QueryError(
            f"{anchor.about.job}: dp cannot change from 1, because the job ran on no GPU; record it on one, or "
            "estimate without a trace: --model, --hardware and --plan"
        )
    ready, issuer, moved = gradients(anchor, change, graph, origin, rank)
    last, payload, until = [], [], []
    for step in np.unique(rows.step[ready]).tolist():
        place = np.flatnonzero(rows.step[ready] == step)
        # Micro-batches come one after another, and only the last one's gradients are whole.
        place = place[len(place) - len(place) // (change.new.batch or 1) :]
        closes = bucket_ends(moved[place])
        summed = np.cumsum(moved[place])[closes]
        last.append(place[closes])
        payload.append(np.diff(summed, prepend=0))
        until.append(np.full(len(closes), issuer[place[-1]]))
    bucket = np.concatenate([*last, np.empty(0, np.int64)]).astype(np.int64)
    sent = np.concatenate([*payload, np.empty(0, np.int64)]).astype(np.int64)
    end = np.concatenate([*until, np.empty(0, np.int32)]).astype(np.int32)
    issued, atoms = issuer[bucket], graph.atoms
    kind = _kind(change)
    each = links.lasting(kind, DP, sent)
    called = np.where(issued >= 0, atoms.row[issued], NONE).astype(np.int32)
    return AddedKernels(
        name=np.zeros(len(bucket), np.int64),
        names=(name_of(COLLECTIVES[kind], GRADIENTS),),
        collective=(COLLECTIVES[kind],),
        stream=np.zeros(len(bucket), np.int64),
        lasts=each.ns,
        error=each.error,
        group_size=np.full(len(bucket), change.groups[1].size[DP]),
        in_bytes=sent,
        begins=rows.end[ready[bucket]],
        after=np.stack((called, graph.gpu.last_issued(stream, issued, inclusive=True))),
        lag=np.zeros(len(bucket), np.int64),
        before=graph.gpu.next_issued(stream, end + 1),
    )


def bucket_ends(moved: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the last gradient of each bucket: the first bucket is small, and each is closed once it is full."""
    until = np.cumsum(moved)
    closes: list[int] = []
    done = 0
    while len(moved) and (not closes or closes[-1] < len(moved) - 1):
        full = done + (BUCKET_BYTES if closes else FIRST_BUCKET_BYTES)
        closes.append(min(int(np.searchsorted(until, full)), len(moved) - 1))
        done = int(until[closes[-1]])
    return np.array(closes, np.int64)


def gradients(
    anchor: RecordedJob, change: PlannedChange, graph: TraceGraph, origin: NDArray[np.int32], rank: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return the rows behind which gradients are ready, the last atom of each, and the gradients' bytes [k]."""
    trace, rows = anchor.about.ranks[rank].trace, graph.rows
    adds = rows.named(lambda name: name == GRADIENT) & (rows.thread >= 0)
    sizes = _sizes(change, trace.dims.words)
    shape = trace.dims.code[origin]
    known = adds & (origin >= 0) & (np.append(sizes, 0)[shape] > 0)
    if known.any():
        row = np.flatnonzero(known)
        row = row[np.argsort(rows.ts[row], kind="stable")]
        width = _widths(anchor, change, trace.types.words)[trace.types.code[origin[row]]]
        atom = graph.atoms.last_before(rows.thread[row], rows.end[row])
        return row, atom, (sizes[shape[row]] * width).astype(np.int64)
    return _of_layers(anchor, change, graph, origin, rank)


def _sizes(change: PlannedChange, words: list[str]) -> NDArray[np.int64]:
    """Return the elements of the first input that each text of shapes tells, after the change; 0 where it is none."""
    shapes = [(json.loads(word) or [None])[0] for word in words]
    plain = [shape if shape and all(type(size) is int for size in shape) else None for shape in shapes]
    return np.array([prod(change.symbols.rescaled(tuple(shape))) if shape else 0 for shape in plain], np.int64)


def _widths(anchor: RecordedJob, change: PlannedChange, words: list[str]) -> NDArray[np.float64]:
    """Return the bytes of an element of the first input, by text of types; the last is for rows without."""
    ratio = change.runs_on.element_bytes / change.measured_on.element_bytes
    told = [element_type(str((json.loads(word) or [""])[0])) for word in words]
    usual = anchor.precision.bytes
    return np.array([*((each.bytes if each else usual) * ratio for each in told), usual * ratio], np.float64)


def _of_layers(
    anchor: RecordedJob, change: PlannedChange, graph: TraceGraph, origin: NDArray[np.int32], rank: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return the same where no gradient's shape was recorded: each layer's are ready behind its last kernel."""
    structure, rows, gpu = anchor.about.ranks[rank].structure, graph.rows, graph.gpu
    source = origin[gpu.row]
    works = (rows.kind[gpu.row] == KERNEL) & (rows.family[gpu.row] != COMMUNICATION) & (gpu.call >= 0) & (source >= 0)
    backward = np.flatnonzero(works & (structure.phase[source] == BACKWARD))
    if not len(backward):
        none = np.empty(0, np.int64)
        return none, none.astype(np.int32), none
    new = change.new
    unknown = [name for name in ("hidden", "ffn") if getattr(new, name) is None]
    backward = backward[structure.layer[source[backward]] >= 0]
    if unknown or not len(backward):
        raise refusal(
            anchor.about.job,
            ["dp" if change.old.replicas == 1 else "zero"],
            "the trace does not tell the bytes of the gradients",
            shapes=anchor.records_shapes,
            known=" ".join(f"--known {name}=N" for name in unknown if structure.kind == "transformer"),
            record="record it with PyTorch's record_shapes=True",
            near="nearest is the step as recorded, as if all reductions hid" if change.old.replicas == 1 else "",
        )
    backward = backward[np.argsort(gpu.issued[backward], kind="stable")]
    layer = structure.layer[source[backward]]
    ends = np.append(np.diff(layer) != 0, True)
    place = backward[ends]
    hidden, heads = new.hidden or 1, (new.heads or 1) * (new.head_dim or new.hidden or 1)
    keys = (new.kv_heads or new.heads or 1) * (new.head_dim or new.hidden or 1)
    elements = hidden * (2 * heads + 2 * keys + 2 * (new.ffn or 1)) // (new.tp or 1)
    moved = np.full(len(place), round(elements * change.runs_on.element_bytes))
    return gpu.row[place].astype(np.int64), gpu.call[place], moved
