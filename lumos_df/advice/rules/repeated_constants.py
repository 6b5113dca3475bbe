"""Tensors that depend on no parameter and are computed again, such as masks in each layer: what if they were kept."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import learns, outermost, runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import ordinals
from lumos_df.schema.codes import NONE

_MAKES: Final = re.compile(r"aten::(?:arange|eye|full|linspace|logspace|ones|tril_indices|triu_indices|zeros)$")
"""What makes a tensor of nothing but numbers."""
_MOVES: Final = re.compile(
    r"aten::(?:clone|contiguous|detach|expand|fill_|permute|repeat|reshape|select|slice|squeeze|t|to|transpose|unsqueeze"
    r"|view|zero_)$"
)
"""What computes no number."""
_BRINGS: Final = re.compile(
    r"(?!aten::)|aten::(?:bernoulli|copy_|dropout|index_\w+|multinomial|normal|rand|random|scatter|set_|uniform)"
)
"""What brings other numbers into a tensor: of samples, of other ranks, random ones."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that each constant be computed once a step."""
    found = [_again(rows, advised.shapes[place]) for place, rows in enumerate(advised.ranks)]
    if not any(len(call) for call, _ in found):
        return
    taken, apply = without_stretches(advised, [call for call, _ in found], [run for _, run in found])
    lasts = format_ns(round(taken / len(advised.steps_ns)))
    yield Remedy(
        rule="repeated_constants",
        what=f"what comes of {_named(advised, found)}, and no parameter changes, is computed again, {lasts} a step: "
        "once for all layers is enough, or keep it as a buffer",
        known=Known.REPLAYED,
        rests_on=format_count(sum(len(call) for call, _ in found), "operator"),
        apply=apply,
    )


def _again(rows: Rows, shape: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return operators that do again what was done in their step, and the run of each, both [k].

    A run begins with what makes a tensor of nothing but numbers, and goes on as long as no node of the backward pass
    belongs to its operators: no parameter has a part in them. The same run has the same operators, of the same shapes.

    Args:
        rows: the rows of a rank.
        shape: number of the shapes of each, NONE where none were recorded [n].
    """
    outer = outermost(rows)
    node = rows.named(lambda text: text.startswith(NODE)) & (rows.step >= 0)
    ends = np.zeros(int(rows.step.max(initial=-1)) + 2, np.int64)
    np.maximum.at(ends, rows.step[node], rows.ts[node])
    free = ~(learns(rows) | node | rows.named(_BRINGS.match))[outer] & (shape[outer] >= 0)
    free &= rows.ts[outer] < ends[rows.step[outer]]
    # What comes before the first tensor that is made may depend on samples.
    sequence = packed(rows.thread[outer], rows.step[outer])
    run, place = runs_of(sequence, free), np.arange(len(outer))
    begin = np.maximum.accumulate(np.where(np.diff(run, prepend=NONE) != 0, place, 0))
    free &= np.maximum.accumulate(np.where(rows.named(_MAKES.match)[outer], place, NONE)) >= begin
    run = runs_of(sequence, free)[free]
    row = outer[free]
    if not len(row):
        return row, run
    _, first = np.unique(run, return_index=True)
    # A run is what its operators add up to, one random number a distinct name and shapes.
    code = dense(packed(rows.name[row], shape[row]))
    number = np.random.default_rng(0).integers(1 << 32, size=int(code.max()) + 1)
    kind = np.add.reduceat(number[code], first)
    computes = ~(rows.named(_MAKES.match) | rows.named(_MOVES.match))[row]
    again = (ordinals(packed(rows.step[row[first]], kind)) > 0) & np.logical_or.reduceat(computes, first)
    return row[again[run]], run[again[run]]


def _named(advised: AdvisedJob, found: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> str:
    """Name what makes the tensors."""
    names = {
        rows.names[name]
        for rows, (call, _) in zip(advised.ranks, found, strict=True)
        for name in np.unique(rows.name[call]).tolist()
    }
    return " and ".join(sorted(filter(_MAKES.match, names)))
