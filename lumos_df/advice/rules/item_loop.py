"""A host that does the same operators for one item of a tensor after another: what if it did them once, for all."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import runs_of, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import PRODUCT
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import CPU_OP, NONE

_TAKES: Final = "aten::select"
"""What takes an item out of a tensor, as `x[:, t]` does."""
_TAKES_ALL: Final = "aten::unbind"
"""What takes all of them at once, as `for row in x` does."""
_BACKWARD: Final = "autograd::"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """The loop of a rank that takes most of its time."""

    call: NDArray[np.int64]
    """Its operators, and those of its backward pass, in their order, run by run [k]."""
    run: NDArray[np.int64]
    """The run of each: of each step a forward and a backward one [k]."""
    items: int
    """How many times its operators run in a row."""
    most: int
    """As many or more, up to this."""
    operators: int
    """How many they are, each time."""
    work_ns: int
    """What its products take."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that a host without a GPU call operators once for all items of a tensor."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_loop(advised, place) for place in range(len(advised.ranks))]
    loops = [loop for loop in found if loop is not None]
    if not loops:
        return
    nothing = np.empty(0, np.int64)
    call, run = ([nothing if loop is None else getattr(loop, name) for loop in found] for name in ("call", "run"))
    taken, _ = without_stretches(advised, call, run)
    items = min(loop.items for loop in loops)
    # Products of all items take as long as those of each, or next to nothing: they are too small to tell.
    work, once = sum(loop.work_ns for loop in loops), taken / items
    gain = taken - once - min(work, taken - once) / 2
    _, apply = without_stretches(advised, call, run, part=gain / taken if taken else 0.0)
    more = format_ns(round(gain / len(advised.steps_ns)))
    most = max(loop.most for loop in loops)
    often = f"{items}{f' to {most}' if most > items else ''}"
    yield Remedy(
        rule="item_loop",
        what=f"{loops[0].operators} operators run {often} times in a row, for an item of a tensor at a time, {more} a "
        "step more than for all at once: if no item needs the one before, call them once",
        known=Known.MODELLED,
        rests_on=format_count(sum(map(len, call)), "operator"),
        uncertainty=(taken - once - gain) / gain if gain else 0.0,
        apply=apply,
    )


def _loop(advised: AdvisedJob, place: int) -> _Loop | None:
    """Return the loop of a rank that takes most, None where no shapes show one.

    From one round to the next the same operators run, of the same shapes. A round takes an item, and as many are taken
    as the tensor has in one of its dimensions, but for one; or a tensor was taken apart before into as many as there
    are rounds. Layers of a model, which repeat, too, do neither.
    """
    rows, shape = advised.ranks[place], advised.shapes[place]
    operator = rows.kind == CPU_OP
    outer = np.flatnonzero(operator & (rows.step >= 0) & ~np.append(operator, False)[rows.parent])
    outer = outer[np.lexsort((rows.ts[outer], rows.thread[outer]))]
    code = dense(packed(rows.name[outer], shape[outer]))
    takes = rows.named(lambda text: text == _TAKES)[outer]
    apart = rows.named(lambda text: text == _TAKES_ALL)[outer]
    # The last tensor that was taken apart before each operator.
    before = np.maximum.accumulate(np.where(apart, np.arange(len(outer)), NONE))
    at = np.flatnonzero((takes | (before >= 0)) & (shape[outer] >= 0))
    if len(at) < 2:
        return None
    at = at[np.lexsort((at, code[at], rows.step[outer[at]], rows.thread[outer[at]]))]
    same = packed(rows.thread[outer[at]], rows.step[outer[at]], code[at])
    # What runs between two items, as a sum of random numbers, one a distinct operator.
    number = np.random.default_rng(0).integers(1 << 62, size=int(code.max()) + 1)
    total = np.append(0, np.cumsum(number[code]))
    period = at[1:] - at[:-1]
    between = total[at[1:]] - total[at[:-1]]
    follows = (same[1:] == same[:-1]) & (period > 1)
    repeats = follows[1:] & follows[:-1] & (period[1:] == period[:-1]) & (between[1:] == between[:-1])
    bounds = np.flatnonzero(np.diff(np.concatenate(([False], repeats, [False]))))
    first, last = bounds[::2], bounds[1::2] + 1
    items = last - first + 1
    largest, rounds = _sizes(advised, place, outer)
    of_apart = np.where(before[at[first]] == before[at[last]], before[at[first]], NONE)
    rounds = np.where(
        (of_apart >= 0) & (rows.step[outer[of_apart]] == rows.step[outer[at[first]]]), rounds[of_apart], 0
    )
    whole = takes[at[first]] & (items >= largest[at[first]] - 1)
    # Fewer are parts, such as queries, keys and values.
    whole |= (rounds > typical_values.FEW) & (items >= rounds - 1) & (items <= rounds)
    first, last, items = first[whole], last[whole], items[whole]
    if not len(first):
        return None
    # Tensors of other sizes go through the same program.
    kind = dense(packed(rows.name[outer[at[first]]], period[first]))
    lasts = rows.ts[outer[at[last]]] - rows.ts[outer[at[first]]]
    chosen = kind == np.argmax(np.bincount(kind, lasts))
    first, last, items = first[chosen], last[chosen], items[chosen]
    return _of_runs(rows, outer, at[first], at[last] + period[first], items, int(period[first[0]]))


def _sizes(advised: AdvisedJob, place: int, row: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the largest and the first size of the first tensor of some rows [k]."""
    code, words = advised.texts(place, "input_dims")
    first = [[size for size in (json.loads(word) or [[]])[0] if isinstance(size, int)] or [0] for word in words]
    of_word = np.array([*((max(sizes), sizes[0]) for sizes in first), (NONE, NONE)], np.int64)
    return of_word[code[row], 0], of_word[code[row], 1]


def _of_runs(
    rows: Rows,
    outer: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    items: NDArray[np.int64],
    operators: int,
) -> _Loop:
    """Return the loop of some stretches of the outermost operators, from place `low` to before `high` each [r]."""
    edges = np.bincount(low, minlength=len(outer) + 1) - np.bincount(
        np.minimum(high, len(outer)), minlength=len(outer) + 1
    )
    chosen = np.cumsum(edges)[:-1] > 0
    called = np.zeros(len(rows), np.bool_)
    called[outer[chosen]] = True
    forward = np.append(inherited(called, rows.parent), False)
    backward = forward[rows.forward[outer]] & rows.named(lambda text: text.startswith(_BACKWARD))[outer]
    chosen |= backward
    called[outer[backward]] = True
    below = np.flatnonzero((rows.kind == CPU_OP) & (rows.parent >= 0))
    inner = np.bincount(rows.parent[below], rows.dur[below], len(rows))
    multiplies = inherited(called, rows.parent) & rows.named(PRODUCT.match)
    return _Loop(
        call=outer[chosen],
        run=runs_of(packed(rows.thread[outer], rows.step[outer]), chosen)[chosen],
        items=int(items.min()),
        most=int(items.max()),
        operators=operators,
        work_ns=int((rows.dur - inner)[multiplies].sum()),
    )
