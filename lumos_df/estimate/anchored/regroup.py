"""A job of another number of pipeline stages: which traced rank makes which stage, and their sends and receives."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.errors import QueryError
from lumos_df.estimate.anchored import chunks, pipeline
from lumos_df.estimate.anchored.anchor import Anchor
from lumos_df.estimate.anchored.blocks import Blocks, blocks
from lumos_df.estimate.anchored.durations import Plan, Times, reductions
from lumos_df.estimate.anchored.rewrite import Rewritten, rewritten, without
from lumos_df.estimate.anchored.timing import MODELLED
from lumos_df.estimate.anchored.weights import parted
from lumos_df.graph.collectives import Clock, Instances
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.job import Job
from lumos_df.graph.replay import network
from lumos_df.graph.rows import NONE
from lumos_df.model import network as collectives
from lumos_df.structure.kernels import POINT_TO_POINT

_ERROR: Final = 0.3
"""Relative error of a modelled send."""


def staged(
    anchor: Anchor, of: Plan, job: Job, times: list[Times], error: NDArray[np.float64]
) -> tuple[Job, list[Times], list[NDArray[np.int32]], NDArray[np.float64], list[int]]:
    """Return the job in other stages, its durations, sources, errors of collectives, and the rank each is made from.

    Raises:
        QueryError: the trace has no layers, or not the ranks that the stages need.
    """
    name, new = anchor.about.job, of.new
    if new.layers is None:
        raise QueryError(f"{name}: pp cannot change, because the layers are unknown; tell them with --known layers=N")
    how = chunks.pipeline(of.settings, new, new.layers)
    cuts = [_cut(anchor, job, rank, how) for rank in range(len(job.graphs))]
    makers = _makers(anchor, how.stages, [one.blocks for one in cuts])
    sends_ns = round(_send_seconds(of) * 1e9)
    graphs: list[Graph] = []
    taken: list[Times] = []
    sources: list[NDArray[np.int32]] = []
    made: list[tuple[int, int, Rewritten]] = []
    waits: list[pipeline.Sends] = []
    for number, ranks in enumerate(makers):
        for rank in ranks:
            cut = cuts[rank]
            sequence = pipeline.stage(cut.blocks, how, number)
            one = rewritten(cut.graph, cut.blocks, sequence.program)
            one = replace(one, graph=_alone(one.graph), source=cut.source[one.source])
            one = without(one, sequence.early()[one.position] & reductions(anchor, rank)[one.source])
            what = pipeline.sends(sequence, pipeline.ends(one, sequence))
            graph = pipeline.with_sends(one.graph, what, sends_ns)
            rows = replace(graph.rows, rank=len(graphs), world_size=NONE, trace_id=f"{graph.rows.trace_id}-s{number}")
            graphs.append(replace(graph, rows=rows))
            made.append((number, rank, one))
            waits.append(what)
            sources.append(one.source)
            many = len(what.kind)
            time = times[rank]
            taken.append(
                Times(
                    graph.own,
                    np.append(time.provenance[one.source], np.full(many, MODELLED)).astype(np.int8),
                    np.append(time.error[one.source], np.full(many, _ERROR)),
                )
            )
    instances, errors = _instances(job.instances, made, waits, sends_ns, error)
    return Job(graphs, instances, network(graphs, instances)), taken, sources, errors, [rank for _, rank, _ in made]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A traced rank as blocks that stages are made of."""

    graph: Graph
    blocks: Blocks
    source: NDArray[np.int32]
    """Row of the trace that each row of the graph is."""


def _cut(anchor: Anchor, job: Job, rank: int, how: chunks.Pipeline) -> _Cut:
    graph, about = job.graphs[rank], anchor.about.ranks[rank]
    found = blocks(graph, about.structure)
    if not how.parts_gradients:
        return _Cut(graph, found, np.arange(len(graph.rows), dtype=np.int32))
    return _Cut(*parted(graph, found, about.trace, about.structure.phase, reductions(anchor, rank)))


def _makers(anchor: Anchor, stages: int, found: list[Blocks]) -> list[list[int]]:
    """Return which traced ranks make each stage."""
    name, before = anchor.about.job, anchor.sizes.pp or 1
    if not all((one.layer >= 0).any() for one in found):
        raise QueryError(f"{name}: pp cannot change, because no layers were found; name them with annotations layer=N")
    if before == 1:
        return [list(range(len(found)))] * stages
    of_stage: dict[int, list[int]] = {}
    for rank, one in enumerate(anchor.about.ranks):
        if one.stage.number is not None:
            of_stage.setdefault(one.stage.number, []).append(rank)
    if 0 not in of_stage or before - 1 not in of_stage:
        raise QueryError(
            f"{name}: pp cannot change, because the corpus lacks a rank of the first or the last stage; "
            "ingest one of each"
        )
    if stages == 1:
        raise QueryError(f"{name}: one stage has both embedding and head, which no rank of this job had; take pp=2")
    middle = of_stage[min(1, before - 1) if before > 2 else 0]
    return [of_stage[0], *([middle] * (stages - 2)), of_stage[before - 1]]


def _alone(graph: Graph) -> Graph:
    """Return a graph whose old sends and receives take no time: new ones take their place."""
    rows = graph.rows
    word = np.array([*(one in POINT_TO_POINT for one in rows.collectives), False])
    return replace(graph, own=np.where(word[rows.collective] & rows.on_gpu, 0, graph.own))


def _send_seconds(of: Plan) -> float:
    """Return the time of sending an activation to the next stage."""
    new, links = of.new, of.links[1]
    payload = float((new.seq or 1) * (new.micro_batch or 1) * (new.hidden or 1) * of.runs_on.element_bytes)
    stride = (new.tp or 1) * (new.dp or 1)
    return links.seconds(collectives.POINT_TO_POINT, payload, 2, stride)


def _instances(
    found: Instances | None,
    made: list[tuple[int, int, Rewritten]],
    waits: list[pipeline.Sends],
    sends_ns: int,
    error: NDArray[np.float64],
) -> tuple[Instances, NDArray[np.float64]]:
    """Return the collectives inside stages, as they were, and the sends from stage to stage."""
    key: list[NDArray[np.int64]] = []
    trace: list[NDArray[np.int64]] = []
    row: list[NDArray[np.int64]] = []
    for k, (number, rank, one) in enumerate(made):
        if found is not None:
            mine = found.trace == rank
            instance = np.full(int(one.source.max(initial=0)) + 1, NONE, np.int64)
            inside = found.row[mine] < len(instance)
            instance[found.row[mine][inside]] = found.instance[mine][inside]
            here = np.flatnonzero((instance[one.source] >= 0) & (one.copy != NONE))
            key.append((instance[one.source[here]] << 32 | one.copy[here]) << 12 | number)
            trace.append(np.full(len(here), k))
            row.append(here)
        what, begin = waits[k], len(one.source)
        # What is sent over a link meets what is received over it, of the same micro-batch and the same way.
        same_rank = sum(1 for other, _, _ in made[:k] if other == number)
        key.append(-1 - (((what.micro_batch << 12 | what.link) << 12 | same_rank) << 1 | what.kind // 2))
        trace.append(np.full(len(what.kind), k))
        row.append(begin + np.arange(len(what.kind)))
    keys, traces, rows_ = np.concatenate(key), np.concatenate(trace), np.concatenate(row)
    names, instance, many = np.unique(keys, return_inverse=True, return_counts=True)
    instance = instance.reshape(-1)
    kept = (many > 1)[instance]
    _, instance = np.unique(instance[kept], return_inverse=True)
    traces, rows_ = traces[kept], rows_[kept]
    origin = np.where(names[many > 1] >= 0, names[many > 1] >> 44, NONE)
    transfer = np.full(len(origin), sends_ns, np.int64)
    errors = np.full(len(origin), _ERROR)
    if found is not None:
        transfer[origin >= 0] = found.transfer[origin[origin >= 0]]
        errors[origin >= 0] = error[origin[origin >= 0]]
    order = np.lexsort((traces, instance.reshape(-1)))
    clocks = tuple(Clock(0, 0.0, 0, 0) for _ in made)
    return (
        Instances(
            instance.reshape(-1)[order].astype(np.int32),
            traces[order].astype(np.int32),
            rows_[order].astype(np.int32),
            transfer,
            clocks,
            (),
        ),
        errors,
    )
