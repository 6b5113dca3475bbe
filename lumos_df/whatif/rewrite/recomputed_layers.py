"""Activations that are kept, or computed again: a layer's forward pass, or its attention, before its backward pass.

Attention's core is what lies between its first and its last product, softmax or fused kernel: a scale, a mask and a
dropout with them (Megatron's selective recomputation).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import Job
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import (
    ATTENTION,
    BACKWARD,
    CPU_OP,
    GEMM,
    KERNEL,
    RECOMPUTE,
    RUNTIME,
    SOFTMAX,
    THREAD,
)
from lumos_df.schema.plan_words import RECOMPUTATIONS, RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS, RECOMPUTE_NOTHING
from lumos_df.structure.describe import DescribedRank
from lumos_df.structure.shapes import BATCHED
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, FORWARD_PASS, Blocks, placed

NOTHING, ATTENTIONS, LAYERS = (
    RECOMPUTATIONS[each] for each in (RECOMPUTE_NOTHING, RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS)
)


def recorded(rank: DescribedRank) -> str:
    """Return what a rank computes again, one of `plan_words.RECOMPUTATIONS`."""
    kernels = rank.structure.kernels
    again = rank.structure.phase[kernels.row] == RECOMPUTE
    if not again.any():
        return NOTHING
    plain = (kernels.weight > 0) & ~kernels.attends & ~_attends(rank)[kernels.row]
    return LAYERS if plain[again].any() else ATTENTIONS


def without_recomputation(job: Job, ranks: list[DescribedRank], wanted: str) -> Job:
    """Return a job in which what is computed again takes no time, on the GPU or on the host.

    Args:
        job: the job.
        ranks: what is known of its ranks.
        wanted: what still is computed again; where that is attention, and layers were, its kernels and their host
            work stay.

    Raises:
        QueryError: nothing is computed again, or attention is to be and is not known.
    """
    graphs = []
    for graph, rank in zip(job.graphs, ranks, strict=True):
        rows, again = graph.rows, rank.structure.phase == RECOMPUTE
        works = rows.on_gpu.copy()
        works[graph.atoms.row[graph.atoms.dur > 0]] = True
        if not (again & works).any():
            raise QueryError(f"{rows.job}: rank {rows.rank} computes nothing again, so recompute=none changes nothing")
        if wanted == ATTENTIONS:
            if not rows.on_gpu.any():
                raise QueryError(
                    f"{rows.job}: rank {rows.rank} has no GPU, so its attention is not known apart; nearest is "
                    "recompute=none"
                )
            again &= ~_core(graph, rank, RECOMPUTE)
        gone = again & (works | (rows.kind == RUNTIME))
        # The host's work is what lies between two moments of a thread.
        silent = (graph.edges.kind == THREAD) & again[graph.edges.src] & again[graph.edges.dst]
        edges = replace(graph.edges, lag=np.where(silent, 0, graph.edges.lag))
        graphs.append(replace(graph, own=np.where(gone, 0, graph.own), edges=edges))
    return replace(job, graphs=graphs)


def with_recomputation(
    rank: DescribedRank, blocks: Blocks, sequence: NDArray[np.int64], again: NDArray[np.bool_], back: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a sequence in which blocks of each layer come again in its backward pass, and which do [p].

    Args:
        rank: a rank.
        blocks: its blocks.
        sequence: these in their sequence.
        again: which blocks come again [b].
        back: before the first of which blocks of their layer [b].

    Raises:
        QueryError: the rank has no layers that it could compute again.
    """
    rows = rank.trace.rows
    key = dense(packed(blocks.step, blocks.micro_batch, blocks.layer))
    ahead = np.flatnonzero(again)
    ahead = ahead[np.argsort(key[ahead], kind="stable")]
    of_layer = np.where(back[sequence], key[sequence], -1)
    begins = np.flatnonzero(back[sequence] & (np.diff(of_layer, prepend=-1) != 0))
    wanted = of_layer[begins]
    low = np.searchsorted(key[ahead], wanted)
    count = np.searchsorted(key[ahead], wanted, side="right") - low
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    repeated = ahead[np.repeat(low, count) + within]
    if not len(repeated):
        if not (rank.structure.phase == BACKWARD).any():
            raise QueryError(
                f"{rows.job}: recompute cannot change, because rank {rows.rank} has no backward pass that anything "
                "would be computed again for; record training"
            )
        where = "gpu" if rows.on_gpu.any() else "host"
        raise QueryError(
            f"{rows.job}: recompute cannot change, because rank {rows.rank} has no layers with a forward and a "
            "backward pass, or no attention in them; record training, with annotations layer=N or with_modules=True; "
            f"nearest is --scale kind={where}:1.33, by which the forward pass, a third of training's work, runs once "
            "more"
        )
    at = np.repeat(begins, count)
    return np.insert(sequence, at, repeated), np.insert(np.zeros(len(sequence), np.bool_), at, True)


def whole_layers(blocks: Blocks) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the forward and the backward blocks of layers [b]."""
    inside = blocks.layer >= 0
    return inside & (blocks.kind == FORWARD_PASS), inside & (blocks.kind == BACKWARD_PASS)


def attention_apart(
    graph: TraceGraph, rank: DescribedRank, blocks: Blocks
) -> tuple[Blocks, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the blocks with those of attention apart: which are its forward core, and which its backward on [b].

    Args:
        graph: the graph.
        rank: the rank that it is of.
        blocks: its blocks.
    """
    atoms, gpu = graph.atoms, graph.gpu
    attends = np.zeros(len(atoms.row), np.bool_)
    launched = (gpu.call >= 0) & _attends(rank)[gpu.row]
    attends[gpu.call[launched]] = True
    whose = blocks.of_row[atoms.row]
    at, count = np.arange(len(whose)), len(blocks)
    first, last = np.full(count, len(whose)), np.full(count, -1)
    np.minimum.at(first, whose[attends], at[attends])
    np.maximum.at(last, whose[attends], at[attends])
    part = (at >= first[whose]).astype(np.int64)
    # Backward all that follows stays together.
    part += (at > last[whose]) & (part > 0) & (blocks.kind[whose] == FORWARD_PASS)
    changes = np.flatnonzero((np.diff(whose, prepend=-1) != 0) | (np.diff(part, prepend=-1) != 0))
    of_atom = (np.searchsorted(changes, at, side="right") - 1).astype(np.int32)
    run, part = whose[changes], part[changes]
    fine = Blocks(
        placed(graph, of_atom), blocks.kind[run], blocks.step[run], blocks.micro_batch[run], blocks.layer[run]
    )
    ahead, back = whole_layers(fine)
    return fine, ahead & (part == 1), back & (part == 1)


def _attends(rank: DescribedRank) -> NDArray[np.bool_]:
    """Return the kernels of attention's core: fused ones, batched products, and softmaxes [n]."""
    rows = rank.trace.rows
    batched = rows.named(BATCHED.match) & (rows.kind == CPU_OP)
    kernel = np.flatnonzero((rows.kind == KERNEL) & np.isin(rows.family, (ATTENTION, SOFTMAX, GEMM))).astype(np.int32)
    kernel = kernel[rank.structure.layer[kernel] >= 0]
    product = rows.family[kernel] == GEMM
    attends = np.zeros(len(rows), np.bool_)
    if rank.structure.kind != "transformer":
        return attends
    attends[kernel] = ~product | (rows.nearest(batched, kernel) >= 0)
    return attends


def _core(graph: TraceGraph, rank: DescribedRank, phase: int) -> NDArray[np.bool_]:
    """Return the rows of attention's core in a phase: its kernels, what lies between, and their launches [n]."""
    rows, structure, gpu = graph.rows, rank.structure, graph.gpu
    inside = np.flatnonzero(rows.on_gpu & (structure.phase == phase))
    key = dense(packed(rows.step[inside], structure.micro_batch[inside], structure.layer[inside]))
    attends = _attends(rank)[inside]
    first, last = np.full(len(inside) + 1, np.iinfo(np.int64).max), np.full(len(inside) + 1, -1)
    np.minimum.at(first, key[attends], rows.ts[inside[attends]])
    np.maximum.at(last, key[attends], rows.ts[inside[attends]])
    core = np.zeros(len(rows), np.bool_)
    core[inside] = (rows.ts[inside] >= first[key]) & (rows.ts[inside] <= last[key])
    launched = (gpu.call >= 0) & core[gpu.row]
    core[graph.atoms.row[gpu.call[launched]]] = True
    return core
