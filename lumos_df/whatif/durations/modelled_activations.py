"""Layers of a job that ran whole, cut over several ranks: all-reduces of activations, as Megatron has them.

Forward one behind the product out of the heads and one behind that out of the MLP, for which the next kernel waits.
Backward one for the gradient of what goes into either, while its weights' gradient is computed. One more behind the
embedding, and one for the gradient of what goes into the head.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, FORWARD, KERNEL, NONE, RECOMPUTE
from lumos_df.schema.collective_kinds import ALL_REDUCE
from lumos_df.schema.plan_words import TP
from lumos_df.structure.compute_stream import compute_stream
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.durations.added_kernels import ACTIVATIONS, AddedKernels, with_modelled
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.kernel_times import shaped, wide
from lumos_df.whatif.durations.own_links import OwnLinks
from lumos_df.whatif.durations.widths import INTO_HEADS, INTO_MLP, OUT_OF_HEADS, OUT_OF_MLP


def with_activations(draft: DraftJob) -> DraftJob:
    """Return the job with all-reduces of its activations.

    Raises:
        QueryError: the trace does not tell the size of an activation, or the products of a layer.
    """
    anchor, change = draft.anchor, draft.change
    new, name = change.new, anchor.about.job
    if not (new.seq and new.micro_batch and new.hidden):
        raise QueryError(
            f"{name}: tp cannot change from 1, because the trace does not tell how large an activation is; tell it "
            "with --known sequence=N --known micro_batch=N --known hidden=N"
        )
    payload = int(new.seq * new.micro_batch * new.hidden * change.runs_on.element_bytes)
    size = change.groups[1].size[TP]
    each = OwnLinks.of(anchor, change).lasting(ALL_REDUCE, TP, np.array([float(payload)]))
    kinds = {rank: _kinds(anchor.about.ranks[rank]) for rank in set(draft.ranks)}

    def reductions(graph: TraceGraph, origin: NDArray[np.int32], rank: int) -> AddedKernels:
        begins, ends = _places(anchor.about.ranks[rank], kinds[rank], graph, origin)
        if not len(begins):
            raise QueryError(
                f"{name}: tp cannot change from 1, because the products of a layer are not told apart in rank "
                f"{graph.rows.rank}; record it with record_shapes=True and with_modules=True, or with tp=2"
            )
        count = len(begins)
        return AddedKernels(
            name=np.zeros(count, np.int64),
            names=(ACTIVATIONS,),
            collective=("all_reduce",),
            stream=np.zeros(count, np.int64),
            lasts=np.repeat(each.ns, count),
            error=np.repeat(each.error, count),
            group_size=np.full(count, size),
            in_bytes=np.full(count, payload),
            begins=graph.rows.end[begins],
            after=np.stack((begins, np.full(count, NONE, np.int32))),
            lag=np.zeros(count, np.int64),
            before=ends,
        )

    made = with_modelled(draft, reductions)
    return made.said(
        f"tp={size} is modelled, as the job ran with whole layers: {round(made.added(draft) / max(draft.steps, 1))} "
        f"all-reduces of activations a step take what {each.source}, within {each.error[0]:.0%}, and no rank waits for "
        "another; record it with tp=2 to have them measured"
    )


def _kinds(rank: DescribedRank) -> NDArray[np.int8]:
    """Return what the widths of every row of a rank are [n]."""
    rows = rank.trace.rows
    row = np.flatnonzero(rows.on_gpu & ~((rows.kind == KERNEL) & (rows.family == COMMUNICATION))).astype(np.int32)
    return wide(rank.trace, rank.structure, row, shaped(rank.trace, row))


def _places(
    rank: DescribedRank, kinds: NDArray[np.int8], graph: TraceGraph, origin: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the kernels behind which activations are reduced, and those that wait for it, in their order [k]."""
    stream = compute_stream(graph.rows)
    if stream == NONE:
        return np.empty(0, np.int32), np.empty(0, np.int32)
    row = graph.gpu.row[graph.gpu.bounds[stream] : graph.gpu.bounds[stream + 1]]
    source = np.where(origin[row] < len(kinds), origin[row], NONE)
    kind = np.append(kinds, np.int8(0))[source]
    phase = np.append(rank.structure.phase, np.int8(NONE))[source]
    layer = np.append(rank.structure.layer, np.int32(NONE))[source]
    ahead = np.isin(phase, (FORWARD, RECOMPUTE))
    product = np.flatnonzero(np.isin(kind, (INTO_HEADS, OUT_OF_HEADS, INTO_MLP, OUT_OF_MLP)))
    key = np.stack((kind[product], ahead[product], layer[product]))
    differs = (np.diff(key, axis=1) != 0).any(axis=0)
    last = np.flatnonzero(np.append(differs, True)) if len(product) else product
    reduced = last[np.isin(kind[product[last]], (OUT_OF_HEADS, OUT_OF_MLP))]
    end = product[reduced]
    # Of the two products of a backward pass the first is the gradient that is passed on.
    begin = np.where(ahead[end], end, product[np.maximum(reduced - 1, 0)])
    around = _around_layers(phase, layer)
    begin, wait = np.append(begin, around - 1), np.append(end + 1, around)
    inside = (wait < len(row)) & (begin >= 0)
    begin, wait = begin[inside], wait[inside]
    order = np.argsort(begin, kind="stable")
    return row[begin[order]], row[wait[order]]


def _around_layers(phase: NDArray[np.int8], layer: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return where the first layer of a forward pass begins, and the last one of a backward pass [k]."""
    top = int(layer.max(initial=NONE))
    first = (phase == FORWARD) & (layer == 0)
    last = (phase == BACKWARD) & (layer == top)
    # A layer begins anew where work outside of all layers lies before it.
    outside = np.append(True, layer[:-1] < 0)
    return np.flatnonzero((first | last) & outside)
