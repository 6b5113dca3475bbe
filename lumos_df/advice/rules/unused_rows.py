"""Linear layers of a host of whose rows a single position is used: what if that one had been taken before."""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import outermost, runs_of, with_backward, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.schema.codes import NONE

_LAYER: Final = "aten::linear"
_TAKES: Final = "aten::select"
_VIEWS: Final = (_TAKES, "aten::slice")
"""What may come between a layer and the item that is taken of it, as in `x[:, -1]`."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that layers of a job without a GPU work on the position that is used alone."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_rows(advised, place) for place in range(len(advised.ranks))]
    positions = [least for _, _, least in found if least]
    if not positions:
        return
    part = 1 - 1 / min(positions)
    taken, apply = without_stretches(advised, [call for call, _, _ in found], [run for _, run, _ in found], part=part)
    more = format_ns(round(part * taken / len(advised.steps_ns)))
    yield Remedy(
        rule="unused_rows",
        what=f"a linear layer works on {min(positions)} positions, and one of them is used, "
        f"{more} a step more than for that one: take it before the layer",
        known=Known.MODELLED,
        rests_on=format_count(sum(len(call) for call, _, _ in found), "operator"),
        apply=apply,
    )


def _rows(advised: AdvisedJob, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the layers of a rank of whose output one item is taken at once, with their nodes of the backward pass.

    No other operator of the step works on a tensor of the output's shape: a loop takes more items.

    Returns:
        (the operators in their order [k], the run of each [k], the least number of positions; 0 where there is none).
    """
    rows = advised.ranks[place]
    outer = outermost(rows)
    code, words = advised.texts(place, "input_dims")
    code = code[outer]
    takes = rows.named(lambda text: text == _TAKES)[outer]
    view = rows.named(lambda text: text in _VIEWS)[outer]
    # The layer, a view or two of its output of which the last takes an item, and what goes on with that.
    layer = np.flatnonzero(rows.named(lambda text: text == _LAYER)[outer])
    layer = layer[layer + 3 < len(outer)]
    takes_at = np.where(takes[layer + 1], layer + 1, layer + 2)
    near = view[layer + 1] & takes[takes_at]
    layer, takes_at = layer[near], takes_at[near]
    if not len(layer):
        return layer, layer, 0
    dims = [json.loads(word) for word in words]
    kinds, kind = np.unique(np.stack((code[layer], code[takes_at], code[takes_at + 1])), axis=1, return_inverse=True)
    of_kind = np.array([_positions(*(dims[each] if each >= 0 else [] for each in three)) for three in kinds.T.tolist()])
    positions = of_kind[kind.reshape(-1)]
    shapes = {shape: number for number, shape in enumerate({_sizes(of, 0) for of in dims})}
    shape = np.array([*(shapes[_sizes(of, 0)] for of in dims), NONE])[code]
    works = packed(rows.step[outer], shape)
    others = np.isin(works, works[takes_at]) & ~view
    once = np.bincount(works)[works[takes_at]] == takes_at - layer
    kept = (positions > 1) & once & ~np.isin(works[takes_at], works[others])
    chosen = np.zeros(len(outer), np.bool_)
    chosen[layer[kept]] = chosen[takes_at[kept]] = chosen[takes_at[kept] - 1] = True
    chosen = with_backward(rows, outer, chosen)
    run = runs_of(packed(rows.thread[outer], rows.step[outer]), chosen)
    return outer[chosen], run[chosen], int(positions[kept].min()) if kept.any() else 0


def _positions(layer: Any, taken: Any, then: Any) -> int:
    """Return of how many positions of a layer's output one is taken, by the inputs of these operators; 0 of others."""
    output, left = (*_sizes(layer, 0)[:-1], *_sizes(layer, 1)[:1]), _sizes(then, 0)
    if len(output) < 3 or _sizes(taken, 0)[-1:] != output[-1:]:
        return 0
    return next((output[at] for at in range(len(output) - 1) if (*output[:at], *output[at + 1 :]) == left), 0)


def _sizes(dims: Any, place: int) -> tuple[int, ...]:
    """Return the sizes of the tensor at some place of the inputs, () where there is none."""
    tensor = dims[place] if len(dims) > place and isinstance(dims[place], list) else []
    return tuple(size for size in tensor if isinstance(size, int))
