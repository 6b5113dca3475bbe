"""A job of another number of pipeline stages: which traced rank makes which stage, and their sends and receives."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph import typical_values
from lumos_df.graph.collective_instances import ClockSkew, Instances
from lumos_df.graph.edges.columns import join
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, EVENT, NONE
from lumos_df.schema.collective_kinds import POINT_TO_POINT, SEND
from lumos_df.schema.plan_words import DUALPIPE, EP, GPIPE, ONE_F_ONE_B, PP
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.kernel_times import MODELLED, RESCALED
from lumos_df.whatif.durations.operator_times import PlannedChange, Times, collectives
from lumos_df.whatif.durations.own_links import OwnLinks
from lumos_df.whatif.durations.payloads import sent_bytes
from lumos_df.whatif.job.nearest_setting import refusal
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import parameters
from lumos_df.whatif.pipeline import stage_chunks, stage_graph
from lumos_df.whatif.pipeline.cut_ranks import Cut, cut, joined
from lumos_df.whatif.pipeline.paired_tasks import at_once
from lumos_df.whatif.rewrite.blocks import check_apart
from lumos_df.whatif.rewrite.host_turns import host_turns
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten, rewritten, without

_IN_TURN: Final = (ONE_F_ONE_B, GPIPE)
"""Schedules that are run so where the traces' is: the others are there to communicate meanwhile."""
_MEASURED_ERROR: Final = 0.1
"""Of one whose like the traces have."""
_STAGE: Final = "-s"
"""Stands before the number of a stage in its trace_id."""


def recorded_trace(trace_id: str) -> str:
    """Return the trace in the corpus that the id of a stage is made of; any other id as it is."""
    return trace_id.partition(_STAGE)[0]


def staged(draft: DraftJob) -> DraftJob:
    """Return a job in other stages.

    Raises:
        QueryError: the trace has no layers, or not the ranks that the stages need.
        PlanError: a schedule that cannot be.
    """
    anchor, change, job, times = draft.anchor, draft.change, draft.job, draft.times
    name, new = anchor.about.job, change.new
    if new.layers is None:
        found = all(rank.structure.layers for rank in anchor.about.ranks)
        known = "--known layers=N" if found else ""
        raise refusal(name, ["pp"], "the layers are unknown", shapes=anchor.records_shapes, known=known)
    for graph, rank in zip(job.graphs, anchor.about.ranks, strict=True):
        check_apart(name, graph, rank.structure, "pp")
    pipeline = stage_chunks.pipeline(change.settings, new, new.layers)
    sends_ns, sent = _sends(anchor, change, job)
    in_turn = pipeline.schedule in _IN_TURN and _in_turn(job)
    graphs: list[TraceGraph] = []
    taken: list[Times] = []
    sources: list[NDArray[np.int32]] = []
    slowed: list[NDArray[np.float64]] = []
    made: list[_NewRank] = []
    exchanges = [_exchange_ns(anchor, job, rank) for rank in range(len(job.graphs))]
    stages = _makers(anchor, job, pipeline)
    for number, makers in enumerate(stages):
        for maker in makers:
            sequence = stage_graph.stage(maker, pipeline, number)
            new_rank = _with_parameters(
                rewritten(maker.graph, maker.blocks, sequence.program), maker, change, pipeline, number
            )
            again = sequence.early()[new_rank.position] & maker.reductions[new_rank.source]
            new_rank = without(new_rank, again | _passed_on(new_rank.graph))
            exchange_ns = np.concatenate([exchanges[rank] for rank in maker.ranks])[maker.source[new_rank.source]]
            at = stage_graph.ends(new_rank, sequence)
            paired = at_once(new_rank, sequence, at, exchange_ns)
            new_rank = paired.made
            sends = stage_graph.sends(sequence, paired.at, in_turn=in_turn)
            turns = join([host_turns(new_rank, sequence.task), paired.waits])
            graph = stage_graph.with_sends(new_rank.graph, sends, sends_ns, turns)
            trace_id = f"{graph.rows.trace_id}{_STAGE}{number}"
            rows = replace(graph.rows, rank=len(graphs), world_size=NONE, trace_id=trace_id)
            graphs.append(replace(graph, rows=rows))
            source, added = maker.source[new_rank.source], len(sends.kind)
            made.append(_NewRank(number, maker.ranks, replace(new_rank, source=source), sends))
            sources.append(np.append(source, np.full(added, NONE)).astype(np.int32))
            slowed.append(np.append(paired.slowed, np.zeros(added)))
            provenance, errors, gaps, waits = (
                np.concatenate([getattr(times[rank], column) for rank in maker.ranks])[source]
                for column in ("provenance", "error", "gaps", "waits")
            )
            taken.append(
                Times(
                    graph.own,
                    np.append(provenance, np.full(added, sent[0])).astype(np.int8),
                    np.append(errors, np.full(added, sent[1])),
                    np.append(gaps, np.zeros(added)),
                    np.append(waits, np.zeros((added, 2)), axis=0),
                )
            )
    sizes = [len(rank.trace) for rank in anchor.about.ranks]
    instances, transfer_error = _instances(
        job.instances, made, sizes, (sends_ns, sent[1]), draft.transfer_error, _crossing(anchor, job.instances)
    )
    return replace(
        draft,
        job=Job(graphs, instances, event_graph(graphs, instances)),
        times=taken,
        sources=sources,
        transfer_error=transfer_error,
        makers=[new_rank.ranks for new_rank in made],
        again=[np.zeros(len(graph.rows), np.bool_) for graph in graphs],
        slowed=slowed,
    ).said(*_warnings(pipeline, stages, hides=any(each.any() for each in slowed)))


def _exchange_ns(anchor: RecordedJob, job: Job, rank: int) -> NDArray[np.int64]:
    """Return what each row of a rank that exchanges tokens with experts takes without waiting, ns, 0 of others [n]."""
    row, degree = collectives(anchor, rank)
    row = row[degree == EP]
    own = job.graphs[rank].own
    if job.instances is not None and len(job.instances.transfer):
        instance = _instance_of(job.instances, rank, len(own))
        own = np.where(instance >= 0, job.instances.transfer[np.maximum(instance, 0)], own)
    lasts = np.zeros(len(own), np.int64)
    lasts[row] = own[row]
    return lasts


def _warnings(pipeline: stage_chunks.Pipeline, stages: list[list[Cut]], *, hides: bool) -> list[str]:
    """Return what a reader should know of the schedule; `hides`: whether all-to-alls run behind compute."""
    warnings = []
    untold = max(maker.untold for makers in stages for maker in makers)
    if 100 * untold > typical_values.LEAST_PCT:
        warnings.append(
            f"{untold:.0%} of the time of the backward pass's products is not told to be of weights or of inputs, and "
            "does not move: the schedule gains less than it would; record with PyTorch's record_shapes=True"
        )
    if pipeline.schedule == DUALPIPE:
        warnings.append(
            "of a forward and a backward that dualpipe overlaps, all-to-alls of the one run behind compute of the "
            "other; no trace tells how much slower that is then, so the interval holds that nothing is gained"
            if hides
            else "the forward and the backward that dualpipe overlaps run one after the other: no all-to-all of "
            "experts has a stream of its own"
        )
    return warnings


@dataclass(frozen=True, slots=True)
class _NewRank:
    """One rank of the new job."""

    number: int
    """Of its stage."""
    ranks: tuple[int, ...]
    """Those that it is made from."""
    rewritten: Rewritten
    """Without sends; its sources are rows of those ranks, one behind the other."""
    waits: stage_graph.Sends


def _makers(anchor: RecordedJob, job: Job, pipeline: stage_chunks.Pipeline) -> list[list[Cut]]:
    """Return what each stage is made from, one a rank of it."""
    name, before = anchor.about.job, anchor.sizes.pp or 1
    every = [
        cut(anchor, graph, rank, parts_gradients=pipeline.parts_gradients) for rank, graph in enumerate(job.graphs)
    ]
    if not all((maker.blocks.layer >= 0).any() for maker in every):
        raise refusal(name, ["pp"], "no layers were found", shapes=anchor.records_shapes)
    if before == 1:
        return [every] * pipeline.stages
    of_stage: dict[int, list[Cut]] = {}
    for rank, described in enumerate(anchor.about.ranks):
        if described.stage.number is not None:
            of_stage.setdefault(described.stage.number, []).append(every[rank])
    if 0 not in of_stage or before - 1 not in of_stage:
        raise QueryError(
            f"{name}: pp cannot change, because the corpus lacks a rank of the first or the last stage; "
            "ingest one of each"
        )
    first, last = of_stage[0], of_stage[before - 1]
    # The head is between the passes of a micro-batch and is left out without anything that a stage does once a step.
    middle = of_stage.get(1, last) if before > 2 else last
    makers = []
    for stage in range(pipeline.stages):
        ends = {pipeline.place(stage, chunk) for chunk in range(pipeline.chunks)} & {0, pipeline.places - 1}
        if len(ends) == 2 or pipeline.places == 1:
            pairs = zip(first, last, strict=False)
            makers.append(
                [
                    joined(embedding_rank, head_rank, len(anchor.about.ranks[embedding_rank.ranks[0]].trace))
                    for embedding_rank, head_rank in pairs
                ]
            )
        else:
            makers.append(first if 0 in ends else last if ends else middle)
    return makers


def _passed_on(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return which rows are the old sends and receives: new ones take their place."""
    return graph.rows.of_collective(POINT_TO_POINT) & graph.rows.on_gpu


def _with_parameters(
    new_rank: Rewritten,
    maker: Cut,
    change: PlannedChange,
    pipeline: stage_chunks.Pipeline,
    number: int,
) -> Rewritten:
    """Return a stage whose work on all parameters is that on its own: only the ends have tables of the vocabulary."""
    places = [pipeline.place(number, chunk) for chunk in range(pipeline.chunks)]
    tables = sum(place in (0, pipeline.places - 1) for place in places)
    share = parameters(change.new, tables) / parameters(change.new, change.tables)
    durations = new_rank.graph.own
    durations = np.where(maker.updates[new_rank.source], np.round(durations * share).astype(np.int64), durations)
    return replace(new_rank, graph=replace(new_rank.graph, own=durations))


def _measured_send_ns(job: Job) -> int | None:
    """Return what a send and its receive take without waiting, as the traces have it; None where they have none."""
    instances = job.instances
    if instances is None:
        return None
    passed = np.zeros(len(instances.transfer), np.bool_)
    for rank, graph in enumerate(job.graphs):
        mine = instances.trace == rank
        passed[instances.instance[mine][_passed_on(graph)[instances.row[mine]]]] = True
    return round(float(np.median(instances.transfer[passed]))) if passed.any() else None


def _in_turn(job: Job) -> bool:
    """Return whether ranks compute and communicate in turns, as Megatron does: their sends hold kernels."""
    total = held = 0
    for graph in job.graphs:
        rows, edges = graph.rows, graph.edges
        sent = np.flatnonzero(rows.of_collective(("send",)) & rows.on_gpu)
        holds = (edges.kind == EVENT) & rows.on_gpu[edges.dst] & (rows.family[edges.dst] != COMMUNICATION)
        total += len(sent)
        held += int(np.isin(sent, edges.src[holds]).sum())
    # Of a send and a receive that are waited for together, the later one holds what follows.
    return 0 < total <= 2 * held


def _crossing(anchor: RecordedJob, instances: Instances | None) -> NDArray[np.bool_]:
    """Return which collectives have ranks of several stages."""
    if instances is None:
        return np.empty(0, np.bool_)
    stage = np.array([rank.stage.number or 0 for rank in anchor.about.ranks], np.int64)[instances.trace]
    low, high = (np.full(len(instances.transfer), value) for value in (len(stage), NONE))
    np.minimum.at(low, instances.instance, stage)
    np.maximum.at(high, instances.instance, stage)
    return low < high


def _sends(anchor: RecordedJob, change: PlannedChange, job: Job) -> tuple[int, tuple[int, float]]:
    """Return what sending an activation to the next stage takes, ns, with its provenance and relative error."""
    measured = _measured_send_ns(job)
    if measured:
        return measured, (RESCALED, _MEASURED_ERROR)
    each = OwnLinks.of(anchor, change).lasting(SEND, PP, np.array([round(sent_bytes(change))]))
    return int(each.ns[0]), (MODELLED, float(each.error[0]))


def _instances(
    recorded: Instances | None,
    made: list[_NewRank],
    sizes: list[int],
    sends: tuple[int, float],
    error: NDArray[np.float64],
    crossing: NDArray[np.bool_],
) -> tuple[Instances, NDArray[np.float64]]:
    """Return the collectives inside stages and of all of them, as they were, and the sends from stage to stage.

    Args:
        recorded: the collectives of the original.
        made: the new ranks.
        sizes: operators of each trace of the original.
        sends: what a send takes, ns, and the relative error of that.
        error: relative error of each collective of the original.
        crossing: which of those had ranks of several stages.
    """
    parts: list[NDArray[np.int64]] = []
    trace: list[NDArray[np.int64]] = []
    row: list[NDArray[np.int64]] = []
    for place, new_rank in enumerate(made):
        rows, added = new_rank.rewritten, new_rank.waits
        if recorded is not None:
            instance = np.concatenate([_instance_of(recorded, rank, sizes[rank]) for rank in new_rank.ranks])
            here = np.flatnonzero((instance[rows.source] >= 0) & (rows.copy != NONE))
            member_of = instance[rows.source[here]]
            stage = np.where(crossing[member_of], 0, new_rank.number)
            none = np.zeros(len(here), np.int64)
            parts.append(np.stack((member_of, rows.copy[here], stage, none, none)))
            trace.append(np.full(len(here), place))
            row.append(here)
        # What is sent over a link meets what is received over it, of the same micro-batch and the same way.
        same_rank = sum(1 for other in made[:place] if other.number == new_rank.number)
        no_instance = np.full(len(added.kind), NONE)
        turn = np.full(len(added.kind), same_rank)
        parts.append(np.stack((no_instance, -added.micro_batch, -added.link, -turn, -(added.kind // 2))))
        trace.append(np.full(len(added.kind), place))
        row.append(len(rows.source) + np.arange(len(added.kind)))
    # The instance of the original, NONE for a send, and what tells its copies, or sends, apart.
    columns, traces, rows_ = np.concatenate(parts, axis=1), np.concatenate(trace), np.concatenate(row)
    _, first, instance, counts = np.unique(packed(*columns), return_index=True, return_inverse=True, return_counts=True)
    instance = instance.reshape(-1)
    kept = (counts > 1)[instance]
    _, instance = np.unique(instance[kept], return_inverse=True)
    traces, rows_ = traces[kept], rows_[kept]
    origin = columns[0][first[counts > 1]]
    transfer = np.full(len(origin), sends[0], np.int64)
    errors = np.full(len(origin), sends[1])
    if recorded is not None:
        transfer[origin >= 0] = recorded.transfer[origin[origin >= 0]]
        errors[origin >= 0] = error[origin[origin >= 0]]
    order = np.lexsort((traces, instance.reshape(-1)))
    clocks = tuple(ClockSkew(0, 0.0, 0, 0) for _ in made)
    return (
        Instances(
            instance=instance.reshape(-1)[order].astype(np.int32),
            trace=traces[order].astype(np.int32),
            row=rows_[order].astype(np.int32),
            transfer=transfer,
            clocks=clocks,
            warnings=(),
        ),
        errors,
    )


def _instance_of(instances: Instances, rank: int, row_count: int) -> NDArray[np.int64]:
    """Return the collective of each row of a rank, or NONE [n]."""
    mine = instances.trace == rank
    instance = np.full(row_count, NONE, np.int64)
    instance[instances.row[mine]] = instances.instance[mine]
    return instance
