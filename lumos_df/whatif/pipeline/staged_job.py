"""A job of another number of pipeline stages: which traced rank makes which stage, and their sends and receives."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.collective_instances import ClockSkew, Instances
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, EVENT, NONE
from lumos_df.schema.collective_kinds import POINT_TO_POINT, SEND
from lumos_df.schema.plan_words import DUALPIPE, GPIPE, ONE_F_ONE_B
from lumos_df.whatif.durations.kernel_times import MODELLED, RESCALED
from lumos_df.whatif.durations.operator_times import PlannedChange, Times
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import parameters
from lumos_df.whatif.pipeline import stage_chunks, stage_graph
from lumos_df.whatif.pipeline.cut_ranks import Cut, cut, joined
from lumos_df.whatif.rewrite.host_turns import host_turns
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten, rewritten, without

_ERROR: Final = 0.3
"""Relative error of a modelled send."""
_UNTOLD: Final = 0.05
"""Share of the backward pass's products that may not be told without a warning."""
_IN_TURN: Final = (ONE_F_ONE_B, GPIPE)
"""Schedules that are run so where the traces' is: the others are there to communicate meanwhile."""
_MEASURED_ERROR: Final = 0.1
"""Of one whose like the traces have."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A job in other stages."""

    job: Job
    times: list[Times]
    """One a graph of `job`."""
    sources: list[NDArray[np.int32]]
    """Which row of the original each row of each graph is from, NONE for what was inserted."""
    transfer_error: NDArray[np.float64]
    """Relative error of each collective."""
    makers: list[tuple[int, ...]]
    """Which traces of the original each graph is from; `sources` counts their rows one behind the other."""
    warnings: list[str]


def staged(anchor: RecordedJob, of: PlannedChange, job: Job, times: list[Times], error: NDArray[np.float64]) -> Staged:
    """Return a job in other stages.

    Args:
        anchor: the job.
        of: the change.
        job: the job with its new durations.
        times: how long operators take, one a rank.
        error: relative error of each collective of `job`.

    Raises:
        QueryError: the trace has no layers, or not the ranks that the stages need.
        PlanError: a schedule that cannot be.
    """
    name, new = anchor.about.job, of.new
    if new.layers is None:
        raise QueryError(f"{name}: pp cannot change, because the layers are unknown; tell them with --known layers=N")
    how = stage_chunks.pipeline(of.settings, new, new.layers)
    measured = _measured_send_ns(job)
    sends_ns = measured or round(_send_seconds(of) * 1e9)
    sent = (RESCALED, _MEASURED_ERROR) if measured else (MODELLED, _ERROR)
    in_turn = how.schedule in _IN_TURN and _in_turn(job)
    graphs: list[TraceGraph] = []
    taken: list[Times] = []
    sources: list[NDArray[np.int32]] = []
    made: list[_Made] = []
    stages = _makers(anchor, job, how)
    for number, makers in enumerate(stages):
        for maker in makers:
            sequence = stage_graph.stage(maker, how, number)
            one = _with_parameters(rewritten(maker.graph, maker.blocks, sequence.program), maker, of, how, number)
            again = sequence.early()[one.position] & maker.reductions[one.source]
            one = without(one, again | _passed_on(one.graph))
            what = stage_graph.sends(sequence, stage_graph.ends(one, sequence), in_turn=in_turn)
            graph = stage_graph.with_sends(one.graph, what, sends_ns, host_turns(one, sequence.task))
            rows = replace(graph.rows, rank=len(graphs), world_size=NONE, trace_id=f"{graph.rows.trace_id}-s{number}")
            graphs.append(replace(graph, rows=rows))
            source, many = maker.source[one.source], len(what.kind)
            made.append(_Made(number, maker.ranks, replace(one, source=source), what))
            sources.append(np.append(source, np.full(many, NONE)).astype(np.int32))
            provenance, errors = (
                np.concatenate([getattr(times[rank], column) for rank in maker.ranks])[source]
                for column in ("provenance", "error")
            )
            taken.append(
                Times(
                    graph.own,
                    np.append(provenance, np.full(many, sent[0])).astype(np.int8),
                    np.append(errors, np.full(many, sent[1])),
                )
            )
    sizes = [len(rank.trace) for rank in anchor.about.ranks]
    instances, transfer_error = _instances(
        job.instances, made, sizes, (sends_ns, sent[1]), error, _crossing(anchor, job.instances)
    )
    again_job = Job(graphs, instances, event_graph(graphs, instances))
    return Staged(again_job, taken, sources, transfer_error, [one.ranks for one in made], _warnings(how, stages))


def _warnings(how: stage_chunks.Pipeline, stages: list[list[Cut]]) -> list[str]:
    """Return what a reader should know of the schedule."""
    found = []
    untold = max(maker.untold for makers in stages for maker in makers)
    if untold > _UNTOLD:
        found.append(
            f"{untold:.0%} of the time of the backward pass's products is not told to be of weights or of inputs, and "
            "does not move: the schedule gains less than it would; record with record_shapes=True"
        )
    if how.schedule == DUALPIPE:
        found.append(
            "the forward and the backward that dualpipe overlaps run one after the other: no trace tells what both "
            "take at once"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Made:
    """One rank of the new job."""

    number: int
    """Of its stage."""
    ranks: tuple[int, ...]
    """Those that it is made from."""
    rewritten: Rewritten
    """Without sends; its sources are rows of those ranks, one behind the other."""
    waits: stage_graph.Sends


def _makers(anchor: RecordedJob, job: Job, how: stage_chunks.Pipeline) -> list[list[Cut]]:
    """Return what each stage is made from, one a rank of it."""
    name, before = anchor.about.job, anchor.sizes.pp or 1
    every = [cut(anchor, graph, rank, parts_gradients=how.parts_gradients) for rank, graph in enumerate(job.graphs)]
    if not all((one.blocks.layer >= 0).any() for one in every):
        raise QueryError(f"{name}: pp cannot change, because no layers were found; name them with annotations layer=N")
    if before == 1:
        return [every] * how.stages
    of_stage: dict[int, list[Cut]] = {}
    for rank, one in enumerate(anchor.about.ranks):
        if one.stage.number is not None:
            of_stage.setdefault(one.stage.number, []).append(every[rank])
    if 0 not in of_stage or before - 1 not in of_stage:
        raise QueryError(
            f"{name}: pp cannot change, because the corpus lacks a rank of the first or the last stage; "
            "ingest one of each"
        )
    first, last = of_stage[0], of_stage[before - 1]
    # The head is between the passes of a micro-batch and is left out without anything that a stage does once a step.
    middle = of_stage.get(1, last) if before > 2 else last
    found = []
    for stage in range(how.stages):
        ends = {how.place(stage, chunk) for chunk in range(how.chunks)} & {0, how.places - 1}
        if len(ends) == 2 or how.places == 1:
            pairs = zip(first, last, strict=False)
            found.append([joined(one, other, len(anchor.about.ranks[one.ranks[0]].trace)) for one, other in pairs])
        else:
            found.append(first if 0 in ends else last if ends else middle)
    return found


def _passed_on(graph: TraceGraph) -> NDArray[np.bool_]:
    """Return which rows are the old sends and receives: new ones take their place."""
    rows = graph.rows
    word = np.array([*(one in POINT_TO_POINT for one in rows.collectives), False])
    found: NDArray[np.bool_] = word[rows.collective] & rows.on_gpu
    return found


def _with_parameters(
    one: Rewritten, of: Cut, plan: PlannedChange, how: stage_chunks.Pipeline, number: int
) -> Rewritten:
    """Return a stage whose work on all parameters is that on its own: only the ends have tables of the vocabulary."""
    places = [how.place(number, chunk) for chunk in range(how.chunks)]
    tables = sum(place in (0, how.places - 1) for place in places)
    share = parameters(plan.new, tables) / parameters(plan.new)
    own = one.graph.own
    own = np.where(of.updates[one.source], np.round(own * share).astype(np.int64), own)
    return replace(one, graph=replace(one.graph, own=own))


def _measured_send_ns(job: Job) -> int | None:
    """Return what a send and its receive take without waiting, as the traces have it; None where they have none."""
    found = job.instances
    if found is None:
        return None
    passed = np.zeros(len(found.transfer), np.bool_)
    for k, graph in enumerate(job.graphs):
        mine = found.trace == k
        passed[found.instance[mine][_passed_on(graph)[found.row[mine]]]] = True
    return round(float(np.median(found.transfer[passed]))) if passed.any() else None


def _in_turn(job: Job) -> bool:
    """Return whether ranks compute and communicate in turns, as Megatron does: their sends hold kernels.

    Half of them are enough: of a send and a receive that are waited for together, the later one holds what follows.
    """
    many = held = 0
    for graph in job.graphs:
        rows, found = graph.rows, graph.edges
        word = np.array([*(one == "send" for one in rows.collectives), False])
        sent = np.flatnonzero(word[rows.collective] & rows.on_gpu)
        holds = (found.kind == EVENT) & rows.on_gpu[found.dst] & (rows.family[found.dst] != COMMUNICATION)
        many += len(sent)
        held += int(np.isin(sent, found.src[holds]).sum())
    return 0 < many <= 2 * held


def _crossing(anchor: RecordedJob, found: Instances | None) -> NDArray[np.bool_]:
    """Return which collectives have ranks of several stages."""
    if found is None:
        return np.empty(0, np.bool_)
    stage = np.array([one.stage.number or 0 for one in anchor.about.ranks], np.int64)[found.trace]
    low, high = (np.full(len(found.transfer), value) for value in (len(stage), NONE))
    np.minimum.at(low, found.instance, stage)
    np.maximum.at(high, found.instance, stage)
    return low < high


def _send_seconds(of: PlannedChange) -> float:
    """Return the time of sending an activation to the next stage."""
    new, links = of.new, of.links[1]
    payload = float((new.seq or 1) * (new.micro_batch or 1) * (new.hidden or 1) * of.runs_on.element_bytes)
    stride = (new.tp or 1) * (new.dp or 1)
    return links.seconds(SEND, payload, 2, stride)


def _instances(
    found: Instances | None,
    made: list[_Made],
    sizes: list[int],
    sends: tuple[int, float],
    error: NDArray[np.float64],
    crossing: NDArray[np.bool_],
) -> tuple[Instances, NDArray[np.float64]]:
    """Return the collectives inside stages and of all of them, as they were, and the sends from stage to stage.

    Args:
        found: the collectives of the original.
        made: the new ranks.
        sizes: operators of each trace of the original.
        sends: what a send takes, ns, and the relative error of that.
        error: relative error of each collective of the original.
        crossing: which of those had ranks of several stages.
    """
    key: list[NDArray[np.int64]] = []
    trace: list[NDArray[np.int64]] = []
    row: list[NDArray[np.int64]] = []
    for k, of in enumerate(made):
        one, what = of.rewritten, of.waits
        if found is not None:
            instance = np.concatenate([_instance_of(found, rank, sizes[rank]) for rank in of.ranks])
            here = np.flatnonzero((instance[one.source] >= 0) & (one.copy != NONE))
            own = instance[one.source[here]]
            key.append((own << 32 | one.copy[here]) << 12 | np.where(crossing[own], 0, of.number))
            trace.append(np.full(len(here), k))
            row.append(here)
        # What is sent over a link meets what is received over it, of the same micro-batch and the same way.
        same_rank = sum(1 for other in made[:k] if other.number == of.number)
        key.append(-1 - (((what.micro_batch << 12 | what.link) << 12 | same_rank) << 1 | what.kind // 2))
        trace.append(np.full(len(what.kind), k))
        row.append(len(one.source) + np.arange(len(what.kind)))
    keys, traces, rows_ = np.concatenate(key), np.concatenate(trace), np.concatenate(row)
    names, instance, many = np.unique(keys, return_inverse=True, return_counts=True)
    instance = instance.reshape(-1)
    kept = (many > 1)[instance]
    _, instance = np.unique(instance[kept], return_inverse=True)
    traces, rows_ = traces[kept], rows_[kept]
    origin = np.where(names[many > 1] >= 0, names[many > 1] >> 44, NONE)
    transfer = np.full(len(origin), sends[0], np.int64)
    errors = np.full(len(origin), sends[1])
    if found is not None:
        transfer[origin >= 0] = found.transfer[origin[origin >= 0]]
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


def _instance_of(found: Instances, rank: int, many: int) -> NDArray[np.int64]:
    """Return the collective of each row of a rank, or NONE [many]."""
    mine = found.trace == rank
    instance = np.full(many, NONE, np.int64)
    instance[found.row[mine]] = found.instance[mine]
    return instance
