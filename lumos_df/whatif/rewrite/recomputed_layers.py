"""Activations that are kept, or computed again: each layer's forward pass runs once more before its backward pass."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import Job
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.schema.codes import RECOMPUTE, RUNTIME, THREAD
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, FORWARD_PASS, Blocks


def without_recomputation(job: Job, ranks: list[DescribedRank]) -> Job:
    """Return a job in which what is computed again takes no time, on the GPU or on the host.

    Raises `QueryError` where nothing is computed again.
    """
    graphs = []
    for graph, rank in zip(job.graphs, ranks, strict=True):
        rows, again = graph.rows, rank.structure.phase == RECOMPUTE
        if not (again & rows.on_gpu).any():
            raise QueryError(f"{rows.job}: rank {rows.rank} computes nothing again, so recompute=none changes nothing")
        gone = again & (rows.on_gpu | (rows.kind == RUNTIME))
        # The host's work is what lies between two moments of a thread.
        silent = (graph.edges.kind == THREAD) & again[graph.edges.src] & again[graph.edges.dst]
        edges = replace(graph.edges, lag=np.where(silent, 0, graph.edges.lag))
        graphs.append(replace(graph, own=np.where(gone, 0, graph.own), edges=edges))
    return replace(job, graphs=graphs)


def with_recomputation(
    rank: DescribedRank, blocks: Blocks, sequence: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a sequence in which each layer's forward blocks come again before its backward blocks, and which do [p].

    Args:
        rank: a rank.
        blocks: its blocks.
        sequence: these in their sequence.

    Raises:
        QueryError: the rank computes something again already, or has no layers that it could.
    """
    rows = rank.trace.rows
    if (rank.structure.phase == RECOMPUTE).any():
        raise QueryError(
            f"{rows.job}: rank {rows.rank} computes something again already; recompute=none tells what that costs"
        )
    key = dense(packed(blocks.step, blocks.micro_batch, blocks.layer))
    inside = blocks.layer >= 0
    ahead = np.flatnonzero(inside & (blocks.kind == FORWARD_PASS))
    ahead = ahead[np.argsort(key[ahead], kind="stable")]
    back = inside[sequence] & (blocks.kind[sequence] == BACKWARD_PASS)
    of_layer = np.where(back, key[sequence], -1)
    begins = np.flatnonzero(back & (np.diff(of_layer, prepend=-1) != 0))
    wanted = of_layer[begins]
    low = np.searchsorted(key[ahead], wanted)
    count = np.searchsorted(key[ahead], wanted, side="right") - low
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    again = ahead[np.repeat(low, count) + within]
    if not len(again):
        raise QueryError(
            f"{rows.job}: recompute cannot change, because rank {rows.rank} has no layers with a forward and a "
            "backward pass; record training, with annotations layer=N or with_modules=True"
        )
    at = np.repeat(begins, count)
    return np.insert(sequence, at, again), np.insert(np.zeros(len(sequence), np.bool_), at, True)
