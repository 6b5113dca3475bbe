"""What ranks send to one another in each step although nothing learns from it: what if they did not."""

import json
import re
from collections.abc import Iterator
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.half_transfers import may_have_waited
from lumos_df.advice.hooked_collectives import element_bytes
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import DDP_FORWARD, NODE
from lumos_df.base.units import format_bytes, format_count
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import ANNOTATION, CONVOLUTION, CPU_OP, GEMM, NONE
from lumos_df.schema.words import OPTIMIZER_STEP

_CALLS: Final = re.compile(r"(?:_?c10d\w*)::")
_SHARES: Final = rf"FSDP|FullyShardedDataParallel|{re.escape(OPTIMIZER_STEP)}"
_WRAPS: Final = {
    "broadcast": re.compile(rf"{_SHARES}|{re.escape(DDP_FORWARD)}"),
    "all_gather": re.compile(_SHARES),
}
"""By kind annotations within which wrappers of a model send what they keep alike, and optimizers what they updated."""
_SENT: Final = {
    "broadcast": "sent by one rank to all: gradients that all have reduced keep parameters alike, so that once, before "
    "the first step, is enough",
    "all_gather": "gathered, and nothing learns from it: gather what is counted of it, such as the class of each "
    "sample, or in fewer steps",
}
"""What is said of each kind."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to leave out broadcasts of as much as gradients take, and gathers from which nothing learns."""
    for kind, said in _SENT.items():
        found = [_unlearnt(rows, kind) for rows in advised.ranks]
        if kind == "all_gather":
            found = [_unused(advised, place, *each) for place, each in enumerate(found)]
        call, kernel = ([each[column] for each in found] for column in (0, 1))
        if not all(map(len, kernel)):
            continue
        part = [np.ones(len(rows)) for rows in advised.ranks]
        for of_rank, mine in zip(part, call, strict=True):
            of_rank[mine] = 0
        moved = sum(int(rows.in_bytes[mine].sum()) for rows, mine in zip(advised.ranks, kernel, strict=True))
        node = np.concatenate([base + mine for base, mine in zip(advised.event_graph.base[:-1], kernel, strict=True)])
        waits = advised.waits
        yield Remedy(
            rule="unlearnt_exchange",
            what=f"{format_bytes(moved // len(advised.steps_ns))} a step and rank are {said}",
            known=Known.REPLAYED,
            rests_on=f"{format_count(len(node), 'kernel')} of {kind}",
            apply=less_work(advised, part).apply,
            at_most=may_have_waited(advised, np.isin(advised.event_graph.base[waits.trace] + waits.row, node)),
        )


def _unlearnt(rows: Rows, kind: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the operators by which the program itself sends before the backward pass [k], and their kernels [g].

    Gradients are reduced whole in the backward pass: else ranks that share parameters gather or send them. Broadcasts
    of a step are told that have half as many bytes as these reductions, as parameters do; gathers, where nothing in
    the step multiplies without gradients.
    """
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    sends = rows.on_gpu & rows.of_collective((kind,))
    if not sends.any():
        return nothing
    node = rows.named(lambda text: text.startswith(NODE)) & (rows.step >= 0)
    on_gpu = rows.on_gpu & (rows.step >= 0)
    call = rows.nearest(rows.named(_CALLS.match) & (rows.kind == CPU_OP), np.arange(len(rows), dtype=np.int32))
    back = on_gpu & inherited(node, rows.parent)
    reduced = back & rows.of_collective(("all_reduce",))
    shared = rows.on_gpu & rows.of_collective(("reduce_scatter",)) | (back & sends)
    if not reduced.any() or shared.any():
        return nothing
    steps = int(rows.step.max(initial=-1)) + 1
    begins = np.full(steps, np.iinfo(np.int64).max)
    np.minimum.at(begins, rows.step[node], rows.ts[node])
    begins[begins == np.iinfo(np.int64).max] = np.iinfo(np.int64).min
    learnt = np.zeros(len(rows), np.bool_)
    learnt[rows.forward[rows.forward >= 0]] = True
    learnt = inherited(learnt, rows.parent)
    wrapped = inherited((rows.kind == ANNOTATION) & rows.named(_WRAPS[kind].match), rows.parent)
    kernel = np.flatnonzero(on_gpu & sends & (call != NONE))
    at = call[kernel]
    mine = ~wrapped[at] & ~learnt[at] & (rows.ts[at] < begins[rows.step[at]]) & (rows.in_bytes[kernel] > 0)
    kernel = kernel[mine]
    if kind == "broadcast":
        sent, given = (
            np.bincount(rows.step[row], rows.in_bytes[row], steps) for row in (kernel, np.flatnonzero(reduced))
        )
        kernel = kernel[(2 * sent >= given)[rows.step[kernel]]]
    else:
        # A net that nothing goes back through, as that of keys or a teacher, may be what was gathered for, or from.
        product = np.flatnonzero(on_gpu & np.isin(rows.family, (GEMM, CONVOLUTION)) & ~learnt & (rows.parent != NONE))
        product = product[rows.ts[rows.parent[product]] < begins[rows.step[product]]]
        kernel = kernel[~np.isin(rows.step[kernel], rows.step[product])]
    return np.unique(call[kernel]).astype(np.int64), kernel


def _unused(
    advised: AdvisedJob, place: int, call: NDArray[np.int64], kernel: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return those operators and kernels of gathers, as `_unlearnt` does, whose result no loss is made of.

    What was gathered without gradients may still be what others are held against, as in contrastive learning: then an
    operator that something goes back through takes a tensor of as many elements. Without shapes nothing is told.
    """
    rows = advised.ranks[place]
    if not len(kernel):
        return call, kernel
    code, words = advised.texts(place, "input_dims")
    learnt = np.unique(code[np.unique(rows.forward[rows.forward >= 0])])
    shapes = [shape for at in learnt[learnt >= 0].tolist() for shape in json.loads(words[at])]
    taken = {
        prod(shape) for shape in shapes if isinstance(shape, list) and all(isinstance(size, int) for size in shape)
    }
    gathered = rows.in_bytes[kernel] * rows.group_size[kernel] // np.maximum(element_bytes(advised, place, kernel), 1)
    unused = ~np.isin(gathered, np.array(sorted(taken), np.int64)) & bool(taken)
    kernel = kernel[unused]
    issued = rows.nearest(rows.named(_CALLS.match) & (rows.kind == CPU_OP), kernel.astype(np.int32))
    return np.intersect1d(call, issued), kernel
