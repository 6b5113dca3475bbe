"""Which kernels work on a share of the tokens where tensor-parallel ranks share the sequence (Megatron's).

Between a product out of the heads or the MLP and the next one into either, a norm, a dropout or a residual needs no
other token than its own, so each rank does those of its part; the products need all tokens.
"""

import json
from math import prod

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import (
    ATTENTION,
    BACKWARD,
    COMMUNICATION,
    EMBEDDING,
    FORWARD,
    GEMM,
    NONE,
    RECOMPUTE,
    SOFTMAX,
)
from lumos_df.structure.describe import DescribedRank
from lumos_df.structure.operator_kinds import tensors
from lumos_df.whatif.durations.kernel_times import shaped
from lumos_df.whatif.durations.pass_kernels import PassKernels, kinds_of, pass_kernels
from lumos_df.whatif.durations.widths import INTO_HEADS, INTO_MLP, OUT_OF_HEADS, OUT_OF_MLP
from lumos_df.whatif.job.settings import Sizes

_PRODUCTS = (ATTENTION, SOFTMAX, GEMM, EMBEDDING, COMMUNICATION)


def enters(along: PassKernels) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the places of products, which of them take all tokens in, and which give a sum over the ranks [k].

    Forward the first of attention and MLP take them in, and the last give the sum; backward the other way round. The
    head takes them in, and its gradient is such a sum.
    """
    head = (along.family == GEMM) & (along.layer < 0)
    entering = np.isin(along.kind, (INTO_HEADS, INTO_MLP)) | (head & (along.phase == FORWARD))
    leaving = np.isin(along.kind, (OUT_OF_HEADS, OUT_OF_MLP)) | (head & (along.phase == BACKWARD))
    place = np.flatnonzero(entering | leaving)
    return place, entering[place], leaving[place]


def between_products(rank: DescribedRank, graph: TraceGraph, sizes: Sizes) -> NDArray[np.bool_]:
    """Return which rows of a recorded rank work on a share of the tokens once those are shared [n].

    Args:
        rank: the rank.
        graph: its graph.
        sizes: those of the job as recorded.
    """
    trace = rank.trace
    rows = trace.rows
    kept = np.zeros(len(rows), np.bool_)
    along = pass_kernels(rank, kinds_of(rank), graph, np.arange(len(rows), dtype=np.int32))
    if not (len(along.row) and sizes.rank_seq and sizes.micro_batch and sizes.hidden):
        return kept
    place, entering, _ = enters(along)
    following = np.searchsorted(place, np.arange(len(along.row)))
    inside = np.append(entering, True)[following] & np.isin(along.phase, (FORWARD, BACKWARD, RECOMPUTE))
    tokens = sizes.rank_seq * sizes.micro_batch * sizes.hidden // ((sizes.tp or 1) if sizes.sp else 1)
    largest = np.array([*(max(map(prod, tensors(json.loads(word))), default=0) for word in trace.dims.words), 0])
    operator = shaped(trace, along.row)
    elements = largest[np.where(operator >= 0, trace.dims.code[operator], NONE)]
    kept[along.row] = inside & (elements == tokens) & ~np.isin(along.family, _PRODUCTS)
    return kept
