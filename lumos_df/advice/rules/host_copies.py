"""A step of a host without a GPU that copies or clears tensors more than it does anything else: what if it did not."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_calls import without_calls
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.distinct_texts import distinct
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import CPU_OP

_COPIES: Final = "aten::copy_"
_CLEARS: Final = ("aten::fill_", "aten::zero_")


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that tensors be neither copied nor cleared by the operator that takes most time, where that does so."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_operators(rows) for rows in advised.ranks]
    names, called = distinct(name for rows in advised.ranks for name in rows.names)
    first = np.cumsum([0, *(len(rows.names) for rows in advised.ranks[:-1])]).tolist()
    kind = [called[low + rows.name[at]] for low, rows, (at, _) in zip(first, advised.ranks, found, strict=True)]
    # A name may stand for what moves tensors and, with other inputs, for what computes.
    key = 2 * np.concatenate(kind) + np.concatenate([moves for _, moves in found])
    if not len(key):
        return
    dur = np.concatenate([rows.dur[at] for rows, (at, _) in zip(advised.ranks, found, strict=True)])
    most = int(np.argmax(np.bincount(key, dur)))
    name, moves = names[most // 2], most % 2
    if not moves:
        return
    row = [
        at[mine]
        for (at, _), mine in zip(found, np.split(key == most, np.cumsum(list(map(len, kind)))[:-1]), strict=True)
    ]
    taken, apply = without_calls(advised, row)
    copies = any(_lies_in(rows, _COPIES, at) for rows, at in zip(advised.ranks, row, strict=True))
    do = (
        "copies tensors for {}: use views, keep one layout, or copy ahead of the step"
        if copies
        else "clears memory for {}: keep the buffer; of an embedding, sparse=True"
    )
    lasts = format_ns(taken // len(advised.steps_ns))
    yield Remedy(
        rule="host_copies",
        what=f"{name} {do.format(f'{lasts} a step, more than any other operator takes')}",
        known=Known.REPLAYED,
        rests_on=format_count(sum(map(len, row)), "call"),
        apply=apply,
    )


def _operators(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the outermost operators of PyTorch, and whether most of each copies or clears tensors, both [k].

    What data loaders run is theirs.
    """
    torch = rows.named(lambda text: text.startswith("aten::")) & (rows.kind == CPU_OP)
    torch &= ~inherited(loader_rows(rows), rows.parent)
    outer = torch & ~np.append(inherited(torch, rows.parent), False)[rows.parent]
    moves = rows.named(lambda text: text in {_COPIES, *_CLEARS}) & torch
    moving = np.flatnonzero(moves & ~np.append(inherited(moves, rows.parent), False)[rows.parent])
    around = np.where(outer[moving], moving, rows.nearest(outer, moving.astype(np.int32)))
    moved = np.bincount(around[around >= 0], rows.dur[moving][around >= 0], len(rows))
    row = np.flatnonzero(outer)
    return row, 2 * moved[row] > rows.dur[row]


def _lies_in(rows: Rows, name: str, row: NDArray[np.int64]) -> bool:
    """Return whether a row of that name is, or lies in, one of some rows."""
    inside = np.zeros(len(rows), np.bool_)
    inside[row] = True
    return bool((inherited(inside, rows.parent) & rows.named(lambda text: text == name)).any())
