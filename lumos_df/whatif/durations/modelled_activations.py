"""Layers of a job that ran whole, cut over several ranks: all-reduces of activations, as Megatron has them.

Forward one behind the product out of the heads and one behind that out of the MLP, for which the next kernel waits.
Backward one for the gradient of what goes into either, while its weights' gradient is computed. One more behind the
embedding, and one for the gradient of what goes into the head.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, FORWARD, KERNEL, NONE, RECOMPUTE
from lumos_df.schema.collective_kinds import ALL_REDUCE
from lumos_df.schema.plan_words import TP
from lumos_df.structure.compute_stream import compute_stream
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.durations import kernel_times
from lumos_df.whatif.durations.added_kernels import ACTIVATIONS, AddedKernels, with_kernels
from lumos_df.whatif.durations.kernel_times import shaped, wide
from lumos_df.whatif.durations.operator_times import PlannedChange, Times
from lumos_df.whatif.durations.widths import INTO_HEADS, INTO_MLP, OUT_OF_HEADS, OUT_OF_MLP
from lumos_df.whatif.job.recorded_job import RecordedJob


def with_activations(
    anchor: RecordedJob,
    change: PlannedChange,
    job: Job,
    times: list[Times],
    sources: list[NDArray[np.int32]],
    ranks: list[int],
) -> tuple[Job, list[Times], list[NDArray[np.int32]], list[str]]:
    """Return the job with all-reduces of its activations, durations and sources with theirs, and what to tell of it.

    Args:
        anchor: the job as recorded.
        change: the change, whose groups and links hold.
        job: the changed job.
        times: durations, one a graph of it.
        sources: row of the original of each row, one a graph.
        ranks: place of the recorded rank that each graph is from.

    Raises:
        QueryError: the trace does not tell the size of an activation, or the products of a layer.
    """
    new, name = change.new, anchor.about.job
    if not (new.seq and new.micro_batch and new.hidden):
        raise QueryError(
            f"{name}: tp cannot change from 1, because the trace does not tell how large an activation is; tell it "
            "with --known sequence=N --known micro_batch=N --known hidden=N"
        )
    payload = int(new.seq * new.micro_batch * new.hidden * change.runs_on.element_bytes)
    size, stride = change.groups[1].size[TP], change.groups[1].stride[TP]
    lasts = round(change.links[1].seconds(ALL_REDUCE, float(payload), size, stride) * 1e9)
    kinds = {rank: _kinds(anchor.about.ranks[rank]) for rank in set(ranks)}
    graphs, after, origins = [], [], []
    steps = total = 0
    for graph, time, origin, rank in zip(job.graphs, times, sources, ranks, strict=True):
        begins, ends = _places(anchor.about.ranks[rank], kinds[rank], graph, origin)
        if not len(begins):
            raise QueryError(
                f"{name}: tp cannot change from 1, because the products of a layer are not told apart in rank "
                f"{graph.rows.rank}; record it with record_shapes=True and with_modules=True, or with tp=2"
            )
        count = len(begins)
        total += count
        steps += max(1, len(np.unique(graph.rows.step[graph.rows.step >= 0])))
        extended = with_kernels(
            graph,
            AddedKernels(
                np.zeros(count, np.int64),
                (ACTIVATIONS,),
                ("all_reduce",),
                np.zeros(count, np.int64),
                np.full(count, lasts),
                np.full(count, size),
                np.full(count, payload),
                graph.rows.end[begins],
                np.stack((begins, np.full(count, NONE, np.int32))),
                np.zeros(count, np.int64),
                ends,
            ),
        )
        graphs.append(extended)
        origins.append(np.append(origin, np.full(count, NONE)).astype(np.int32))
        after.append(time.with_modelled(extended.own, kernel_times.MODELLED_ERROR))
    told = (
        f"tp={size} is modelled, as the job ran with whole layers: {round(total / max(steps, 1))} all-reduces of "
        f"activations a step take what the network model says, within {kernel_times.MODELLED_ERROR:.0%}, and no rank "
        "waits for another; record it with tp=2 to have them measured"
    )
    return replace(job, graphs=graphs, event_graph=event_graph(graphs, job.instances)), after, origins, [told]


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
