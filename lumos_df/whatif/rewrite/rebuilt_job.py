"""A job with other layers and micro-batches, or with forward passes that its backward passes run again."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.schema.codes import NONE
from lumos_df.whatif.durations import operator_times
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.rewrite.block_sequence import early, program, turns
from lumos_df.whatif.rewrite.blocks import blocks, check_apart, check_batches_apart
from lumos_df.whatif.rewrite.host_turns import in_turn
from lumos_df.whatif.rewrite.paused_copies import paused_once
from lumos_df.whatif.rewrite.recomputed_layers import (
    ATTENTIONS,
    attention_apart,
    whole_layers,
    with_recomputation,
)
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten, rewritten, without


def rebuilt(draft: DraftJob) -> DraftJob:
    """Return the job with other layers and micro-batches, or with forward passes that the backward one runs again."""
    anchor, change, job = draft.anchor, draft.change, draft.job
    layers = change.old.layers or 1, change.new.layers or 1
    batch = change.old.batch or 1, change.new.batch or 1
    made: list[Rewritten] = []
    again: list[NDArray[np.bool_]] = []
    for graph, rank in zip(job.graphs, anchor.about.ranks, strict=True):
        rank_blocks, wanted = blocks(graph, rank.structure), change.settings.recompute
        if layers[0] != layers[1] or draft.repeats:
            name = "layers" if layers[0] != layers[1] else f"recompute={wanted}"
            check_apart(anchor.about.job, graph, rank.structure, name)
        if batch[0] != batch[1]:
            check_batches_apart(anchor.about.job, graph, rank.structure)
        if layers[0] != layers[1] and not (rank_blocks.layer >= 0).any():
            raise QueryError(
                f"{anchor.about.job}: layers cannot change, because none were found in rank {graph.rows.rank}; "
                "name them in the trace with annotations layer=N, or record with_modules=True"
            )
        ahead, back = whole_layers(rank_blocks)
        if wanted == ATTENTIONS:
            rank_blocks, ahead, back = attention_apart(graph, rank, rank_blocks)
        sequence = program(rank_blocks, layers, batch)
        repeats = np.zeros(len(sequence), np.bool_)
        if draft.repeats:
            sequence, repeats = with_recomputation(rank, rank_blocks, sequence, ahead, back)
        new_rank = paused_once(rewritten(graph, rank_blocks, sequence))
        if batch[0] != batch[1]:
            new_rank = in_turn(new_rank, turns(rank_blocks, sequence))
            earlier = (
                early(rank_blocks, sequence)[new_rank.position]
                & operator_times.reductions(anchor, len(made))[new_rank.source]
            )
            new_rank = without(new_rank, earlier)
        made.append(new_rank)
        again.append(repeats[new_rank.position])
    graphs = [new_rank.graph for new_rank in made]
    instances, origin = _copied(job.instances, made) if job.instances else (None, np.empty(0, np.int64))
    return replace(
        draft,
        job=Job(graphs, instances, event_graph(graphs, instances)),
        times=[
            operator_times.Times(
                new_rank.graph.own,
                time.provenance[new_rank.source],
                time.error[new_rank.source],
                time.gaps[new_rank.source],
                time.waits[new_rank.source],
            )
            for new_rank, time in zip(made, draft.times, strict=True)
        ],
        sources=[new_rank.source for new_rank in made],
        transfer_error=draft.transfer_error[origin],
        again=again,
    )


def _copied(instances: Instances, made: list[Rewritten]) -> tuple[Instances, NDArray[np.int64]]:
    """Return the collectives of rewritten graphs, and of which old one each is: copies meet their like."""
    parts: list[tuple[NDArray[np.int64], ...]] = []
    for rank, new_rank in enumerate(made):
        mine = instances.trace == rank
        instance = np.full(int(new_rank.source.max(initial=0)) + 1, NONE, np.int64)
        rows = instances.row[mine]
        inside = rows < len(instance)
        instance[rows[inside]] = instances.instance[mine][inside]
        row = np.flatnonzero((instance[new_rank.source] >= 0) & (new_rank.copy != NONE))
        parts.append(
            (instance[new_rank.source[row]], new_rank.copy[row].astype(np.int64), np.full(len(row), rank), row)
        )
    old, copy, trace, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    key = old << 24 | copy
    number, first, instance = np.unique(key, return_index=True, return_inverse=True)
    instance = instance.reshape(-1)
    order = np.lexsort((trace, instance))
    origin = old[first]
    return (
        replace(
            instances,
            instance=instance[order].astype(np.int32),
            trace=trace[order].astype(np.int32),
            row=row[order].astype(np.int32),
            transfer=instances.transfer[origin],
        ),
        origin if len(number) else np.empty(0, np.int64),
    )
