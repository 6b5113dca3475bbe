"""Gradients of parameters that no optimizer updates: what if these had been frozen."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import ordinals
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import CPU_OP
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

_EVERY: Final = "evaluate_function: torch::autograd::AccumulateGrad"
"""The node around what gives a parameter its gradient, from its end."""

_OF_LISTS: Final = re.compile(r"aten::_(?:foreach|fused)_")
"""What an optimizer calls for a list of tensors."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the backward pass not go further than to the last parameter that is updated."""
    found = [_beyond(advised, place) for place in range(len(advised.ranks))]
    count = sum(len(call) for call, _, _ in found)
    if not count:
        return
    taken, apply = without_stretches(advised, [call for call, _, _ in found], [run for _, run, _ in found])
    unused = max(number for _, _, number in found)
    yield Remedy(
        rule="unused_gradients",
        what=f"the backward pass goes on for {format_ns(round(taken / len(advised.steps_ns)))} a step, to "
        f"{format_count(unused, 'parameter')} that no optimizer updates: freeze them, with requires_grad=False",
        known=Known.REPLAYED,
        rests_on=f"{format_count(count, 'node')} of autograd",
        apply=apply,
    )


def _beyond(advised: AdvisedJob, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the nodes behind the last gradient that is used, the run of each, both [k], and how many are unused.

    Every step has one backward pass, and its optimizers do nothing but update lists of tensors. Their shapes tell which
    gradients these are, where none behind them has such a shape, and no other operator after the backward pass works
    on one of a shape that is not updated.
    """
    rows = advised.ranks[place]
    nothing = np.empty(0, np.int64), np.empty(0, np.int64), 0
    operator = (rows.kind == CPU_OP) & (rows.step >= 0)
    outer = np.flatnonzero(operator & ~np.append(operator, False)[rows.parent])
    outer = outer[np.lexsort((rows.ts[outer], rows.thread[outer]))]
    is_node = rows.named(lambda text: text.startswith(NODE))[outer]
    node = outer[is_node]
    run = runs_of(packed(rows.thread[outer], rows.step[outer]), is_node)[is_node]
    steps, sizes = np.unique(rows.step[node], return_counts=True)
    gives = rows.named(lambda text: text.endswith(_EVERY))[node]
    if len(steps) < 1 or len(np.unique(run)) > len(steps) or len(np.unique(sizes)) > 1 or not gives.any():
        return nothing
    code, words = advised.texts(place, "input_dims")
    given = np.flatnonzero(operator & rows.named(lambda text: text == GRADIENT) & (rows.step == steps[0]) & (code >= 0))
    given = given[np.argsort(rows.ts[given], kind="stable")]
    gradients = [tuple(json.loads(words[each])[0]) for each in code[given].tolist()]
    updated = _updated(rows, outer, code, words, int(steps[0]))
    # Where the last one lies, counting those that come before.
    left = Counter(updated)
    last = 0
    while last < len(gradients) and left.total():
        left[gradients[last]] -= left[gradients[last]] > 0
        last += 1
    behind = set(gradients[last:])
    end = rows.end[node[rows.step[node] == steps[0]]].max()
    late = outer[(rows.ts[outer] >= end) & (rows.step[outer] == steps[0]) & (code[outer] >= 0)]
    others = {tuple(shape) for each in code[late].tolist() for shape in _shapes(json.loads(words[each]))}
    if not updated or left.total() or not behind or behind & ({*updated} | others):
        return nothing
    turn = np.full(len(node), -1)
    turn[gives] = ordinals(packed(rows.step[node[gives]]))
    until = np.zeros(int(steps.max()) + 1, np.int64)
    until[rows.step[node[turn == last - 1]]] = rows.end[node[turn == last - 1]]
    beyond = rows.ts[node] >= until[rows.step[node]]
    return node[beyond], run[beyond], len(gradients) - last


def _updated(
    rows: Rows, outer: NDArray[np.int64], code: NDArray[np.int32], words: list[str], step: int
) -> list[tuple[int, ...]]:
    """Return the shapes of what the optimizers of a step update; none where they do other work, or shapes lack."""
    inside = inherited(rows.named(lambda text: text.startswith(OPTIMIZER_STEP)), rows.parent)
    mine = outer[inside[outer] & (rows.step[outer] == step) & (code[outer] >= 0)]
    called, often = np.unique(np.stack((rows.name[mine], code[mine])), axis=1, return_counts=True)
    lists: dict[str, list[tuple[int, ...]]] = {}
    for (number, text), times in zip(called.T.tolist(), often.tolist(), strict=True):
        first, name = (json.loads(words[text]) or [[]])[0], rows.names[number]
        if first and isinstance(first[0], list):
            lists.setdefault(name, []).extend(tuple(shape) for shape in first * times)
        elif first or _OF_LISTS.match(name):
            # Of long lists no shapes are recorded.
            return []
    whole = [shapes for shapes in lists.values() if any(shapes)]
    return max(whole, key=len, default=[])


def _shapes(dims: Any) -> Iterator[list[int]]:
    """Return the shapes of tensors among some inputs, lists of them included."""
    for each in dims:
        if isinstance(each, list) and each and isinstance(each[0], list):
            yield from _shapes(each)
        elif isinstance(each, list) and each:
            yield each
