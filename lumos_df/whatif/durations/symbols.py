"""Which dimension of the model each axis of a recorded shape is, and so what the shape becomes in the changed job.

Which axes hold the batch and which the sequence is followed through the operators (`structure.axes`); what else an
axis is, its size tells. Where a size can be several things, the reading is taken that makes the tensor most like those
a transformer has: one sequence, one micro-batch, one width.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from lumos_df.structure.axis_labels import BATCH as OF_BATCH
from lumos_df.structure.axis_labels import (
    LONGER,
    MIXED,
    PAIRS,
    PICKED_ONE,
    Label,
    Labels,
    holds_input,
    with_one_batch,
)
from lumos_df.structure.axis_labels import SEQUENCE as OF_SEQUENCE
from lumos_df.structure.shapes import Shape
from lumos_df.whatif.durations.widths import INTO_HEADS, INTO_MLP, MLP, MODEL, OUT_OF_HEADS, OUT_OF_MLP, UNKNOWN
from lumos_df.whatif.job.settings import Sizes, parameters

TOKENS, SEQUENCE, BATCH, WIDTH, HEADS, GROUPS, HEAD, CONSTANT = range(8)
"""Kinds of axes; GROUPS is micro-batch, or windows, times heads."""
_MOST: Final = 4
"""Threshold, readings. Of one axis the likeliest so many are compared. Evidence: a judgement; all of them together take
too long."""
_LAST_AXES: Final = 5
"""Threshold, axes. Those of a tensor before its last so many stay as they are. Evidence: a judgement; the readings of
all together take too long to compare."""
_STRANGE: Final = 40
"""Threshold, cost. What an axis costs that is nothing known. Evidence: above that of any reading of it alone."""
_SMALL: Final = 4
"""Threshold, elements. An axis of no more is nothing known at no cost."""
_PAIR_COST: Final = {
    frozenset((TOKENS, SEQUENCE)): 30,
    frozenset((TOKENS, BATCH)): 30,
    frozenset((TOKENS, GROUPS)): 30,
    frozenset((GROUPS, BATCH)): 30,
    frozenset((GROUPS, HEADS)): 20,
    frozenset((GROUPS, WIDTH)): 12,
    frozenset((HEAD, WIDTH)): 8,
    frozenset((HEADS, WIDTH)): 6,
}
"""Cost of two kinds of axes in one tensor."""
_ATTENDS: Final = 2
"""Threshold, cost. By how much less heads cost beside their width or two sequences, as scores have. Evidence: four
heads, or a rank's share of more, are few enough to be nothing known at no cost; only attention has such tensors."""
_TWICE_COST: Final = {TOKENS: 30, BATCH: 30, GROUPS: 30, HEADS: 20, HEAD: 12, WIDTH: 3, SEQUENCE: 2, CONSTANT: 0}
_FIRST_SIDE: Final = 2
"""Place of a map's sides, or a convolution's weight's, behind what counts its channels."""
_STACKED: Final = 3
"""Axes of the matrices of several experts."""
_ALL_SHARE: Final = 0.8
"""Threshold, share of a rank's parameters. A vector that is as near to their number is one of all of them.
Evidence: the number leaves out biases, norms and a second table; that of an emulated job is 10 % below its vector."""
_LACK_COST: Final = 5
"""Threshold, cost. What a sequence without a micro-batch costs, or the other way round, and both of them in a
matrix."""


@dataclass(frozen=True, slots=True)
class _Reading:
    kind: int
    new: int
    cost: int
    inputs: str = ""
    """Factors of its size that are inputs of the step, of `structure.axis_labels`, sorted."""


class Symbols:
    """The sizes that axes of one rank can have, before and after a change."""

    def __init__(self, old: Sizes, new: Sizes, batch: tuple[int, int] | None = None) -> None:
        """Take what is known.

        Args:
            old: the job as it ran.
            new: the job as it shall be.
            batch: for a model that is no transformer, its batch before and after.
        """
        self._readings: dict[int, list[_Reading]] = {}
        self.batch = batch
        self._routing = old.routing, new.routing
        self._cache: dict[tuple[Shape, int, Labels], Shape] = {}
        before, after = batch or (old.micro_batch or 1, new.micro_batch or 1)
        self._samples = after if before == 1 and (batch or old.micro_batch) else 1
        """Samples where there was one, of which shapes show nothing."""
        tokens, new_tokens = old.rank_seq or 1, new.rank_seq or 1
        self.context = new.cp / old.cp
        """How many times as long the keys are as the queries of a rank."""
        self._grown = {
            OF_BATCH: (before, after),
            OF_SEQUENCE: (tokens, new_tokens),
            LONGER: (tokens + 1, new_tokens + 1),
            PAIRS: (tokens * (tokens + 1), new_tokens * (new_tokens + 1)),
            PICKED_ONE: (1, 1),
            MIXED: (1, 1),
        }
        self._share = _cut(old.ffn, old.tp)
        if self._share != old.hidden:
            self._share = None
        self._widths = new.hidden or 1, _cut(new.ffn, new.tp) or 1
        # With tp no matrix of parameters is the model's width both ways.
        self._both = self._share is not None and (old.tp or 1) > 1
        # Heads that were not cut are as wide as the model: only the place in the layer tells which axis is theirs.
        projection = _projection(old)
        self._heads = (projection, _projection(new) or 1) if (old.tp or 1) == 1 < (new.tp or 1) else None
        if projection != old.hidden:
            self._heads = None
        self._tokens = _times(old.rank_seq, old.micro_batch)
        self._has_maps = old.layers is None or old.heads is None
        # No reading tells one sample.
        counted = new if self._samples == 1 else replace(new, micro_batch=1)
        for kind, cost, before, after, inputs in _values(old, counted):
            if before > 1:
                self._readings.setdefault(before, []).append(_Reading(kind, after, cost, inputs))
        for readings in self._readings.values():
            readings.sort(key=lambda reading: reading.cost)

    def rescaled(self, shape: Shape, wide: int = UNKNOWN, labels: Labels = ()) -> Shape:
        """Return what a shape becomes.

        Args:
            shape: sizes of a tensor.
            wide: what its width is, one of `widths`'s kinds.
            labels: what is known of its axes; of none where empty.
        """
        known = self._cache.get((shape, wide, labels))
        if known is None:
            told = with_one_batch(labels)
            if self.batch:
                known = self._leading(shape) if not told else tuple(map(self._scaled, shape, told))
            else:
                known = self._read(shape, wide, told or (None,) * len(shape))
            if self._samples > 1:
                known = self._of_samples(shape, known, told)
            known = self._routed(shape, known)
            self._cache[shape, wide, labels] = known
        return known

    def rescaled_text(self, text: str, labels: tuple[Labels, ...] = ()) -> str:
        """Return what the JSON list of an operator's inputs becomes: shapes, lists of shapes, and what is neither.

        Args:
            text: the inputs.
            labels: what is known of the axes of each tensor in it; nothing where empty.
        """
        return json.dumps(self._nested(json.loads(text), iter(labels)))

    def _nested(self, value: Any, labels: Iterator[Labels]) -> Any:
        if isinstance(value, list) and value and all(type(size) is int for size in value):
            return list(self.rescaled(tuple(value), UNKNOWN, next(labels, ())))
        return [self._nested(entry, labels) for entry in value] if isinstance(value, list) else value

    def _scaled(self, size: int, label: Label) -> int:
        """Return an axis whose factors are known, in the changed job."""
        for kind in "".join(kind for kind, _ in label or ()):
            before, after = self._grown[kind]
            size = max(1, round(size * after / before))
        return size

    def operands(
        self, shapes: tuple[Shape | None, ...], wide: int, labels: tuple[Labels, ...] = ()
    ) -> tuple[Shape | None, ...]:
        """Return what the inputs of an operator become; the two sizes of a product's matrices may differ.

        Args:
            shapes: those of its inputs, None where one is no tensor.
            wide: what their widths are, one of `widths`'s kinds.
            labels: what is known of the axes of each tensor; nothing where empty.
        """
        of_tensor = iter(labels)
        known = [() if shape is None else next(of_tensor, ()) for shape in shapes]
        changed = [
            None if shape is None else self.rescaled(shape, wide, label)
            for shape, label in zip(shapes, known, strict=True)
        ]
        matrices = [place for place, shape in enumerate(shapes) if shape is not None and len(shape) == 2]
        if wide in (INTO_MLP, OUT_OF_MLP) and len(matrices) > 1:
            last, shape = matrices[-1], shapes[matrices[-1]] or ()
            if shape.count(self._share or 0) == 1:
                # Of a gradient of parameters each matrix has one of the sizes.
                changed[last] = self.rescaled(shape, MLP if wide == INTO_MLP else MODEL, known[last])
        if self._heads and wide in (INTO_HEADS, OUT_OF_HEADS):
            self._cut_heads(shapes, changed, wide)
        return tuple(changed)

    def _cut_heads(self, shapes: tuple[Shape | None, ...], changed: list[Shape | None], wide: int) -> None:
        """Cut the width of the heads in a product that has the model's width, too."""
        whole, share = self._heads or (1, 1)
        matrices = [(place, shape) for place, shape in enumerate(shapes) if shape is not None and len(shape) > 1]
        if len(matrices) < 2:
            return
        (left, first), (right, second) = matrices[-2:]
        new_first, new_second = [*(changed[left] or ())], [*(changed[right] or ())]
        # A gradient of parameters contracts over tokens, so that its last size is cut.
        if wide == OUT_OF_HEADS and first[-1] == whole != self._tokens:
            new_first[-1] = new_second[-2] = share
        elif second[-1] == whole:
            new_second[-1] = share
        changed[left], changed[right] = tuple(new_first), tuple(new_second)

    def _routed(self, shape: Shape, changed: Shape) -> Shape:
        """Return a shape with those axes changed that tokens of experts have, and matrices of experts."""
        before, after = self._routing
        if before is None or after is None:
            return changed
        new = list(changed)
        if shape[0] == before.rows != before.tokens:
            new[0] = after.rows or shape[0]
        if len(shape) > 2 and shape[0] == before.local_experts and {shape[1:], shape[:0:-1]} & before.weights:
            new[0] = after.local_experts or shape[0]
        if shape[:2] == (before.tokens, before.experts):
            new[1] = after.experts
        if len(shape) > 1 and shape[:2] == (before.tokens, before.top_k):
            new[1] = after.top_k or shape[1]
        return tuple(new)

    def groups(self, shapes: tuple[Shape | None, ...], changed: tuple[Shape | None, ...]) -> tuple[Shape | None, ...]:
        """Return the inputs of a grouped product: what its matrices have in common are the experts' rows."""
        before, after = self._routing
        if before is None or after is None or after.rows is None:
            return changed
        new = [
            (after.local_experts or 1,) if shape == (before.local_experts,) else each
            for shape, each in zip(shapes, changed, strict=True)
        ]
        matrices = [place for place, shape in enumerate(shapes) if shape and len(shape) == 2]
        of_rows = any(shape and len(shape) == _STACKED for shape in shapes)
        for number, place in enumerate(matrices):
            shape, known = shapes[place] or (), changed[place] or ()
            # The gradient of matrices contracts over the rows: the last axis of the first, the first of the second.
            axis = 0 if of_rows or number else 1
            if shape[axis] == before.rows:
                new[place] = (*known[:axis], after.rows, *known[axis + 1 :])
        return tuple(new)

    def _of_samples(self, shape: Shape, changed: Shape, labels: Labels) -> Shape:
        """Return a tensor of several samples where it is of one: an axis of one element is theirs, else its tokens.

        Nothing tells masks and tables of positions apart, which do not grow.
        """
        tokens = [
            place
            for place, (size, label) in enumerate(zip(shape, labels or (None,) * len(shape), strict=True))
            if holds_input(label) or (label is None and size == self._grown[OF_SEQUENCE][0] > 1)
        ]
        if len(shape) < 2 or not (tokens or shape[0] == 1):
            return changed
        place = shape.index(1) if 1 in shape else tokens[0] if len(shape) == 2 else 0
        return (*changed[:place], changed[place] * self._samples, *changed[place + 1 :])

    def _leading(self, shape: Shape) -> Shape:
        before, after = self.batch or (1, 1)
        if len(shape) < 2 or before == 1 or shape[0] % before:
            return shape
        return (max(1, shape[0] * after // before), *shape[1:])

    def _choices(self, size: int, label: Label) -> list[_Reading]:
        """Return what an axis may be: of its size, and of the inputs that it is known to hold."""
        readings = self._readings.get(size, [])
        if label is None:
            return [*readings[:_MOST], _Reading(CONSTANT, size, _cost_of_constant(size))]
        inputs = "".join(sorted(kind for kind, _ in label))
        if inputs == MIXED:
            return [_Reading(CONSTANT, size, 0)]
        known = [reading for reading in readings if reading.inputs == inputs][:_MOST]
        if inputs:
            return known[:1] or [_Reading(_KIND_OF_INPUTS.get(inputs, TOKENS), self._scaled(size, label), 0)]
        return [*known, _Reading(CONSTANT, size, _cost_of_constant(size))]

    def _read(self, shape: Shape, wide: int, labels: Labels) -> Shape:
        choices = list(map(self._choices, shape, labels))
        if self._has_maps and _has_sides(shape, choices):
            choices[_FIRST_SIDE:] = [[_Reading(CONSTANT, size, 0)] for size in shape[_FIRST_SIDE:]]
        best = min(product(*choices[-_LAST_AXES:]), key=_cost)
        new = [*shape[: len(shape) - len(best)], *(reading.new for reading in best)]
        if self._share is not None:
            model, mlp = self._widths
            same = [place for place, size in enumerate(shape) if size == self._share and not holds_input(labels[place])]
            first, other = {MLP: (mlp, mlp), INTO_MLP: (model, mlp), OUT_OF_MLP: (mlp, model)}.get(wide, (model, model))
            if (
                wide in (UNKNOWN, MODEL, MLP, INTO_HEADS, OUT_OF_HEADS)
                and self._both
                and same == [0, 1]
                and len(shape) == 2
            ):
                first, other = model, mlp
            for place in same:
                new[place] = first if place == same[0] else other
        return tuple(new)


def is_all(shapes: list[object], sizes: Sizes) -> bool:
    """Return whether the first of an operator's inputs is a vector of all parameters of a rank, or their gradients."""
    first = shapes[0] if shapes else None
    if not (isinstance(first, list) and len(first) == 1 and isinstance(first[0], int)):
        return False
    return _ALL_SHARE < first[0] / parameters(sizes) < 1 / _ALL_SHARE


def _has_sides(shape: Shape, choices: list[list[_Reading]]) -> bool:
    """Return whether a tensor is of maps, channels and then sides, or of images whose sides are as long as a width."""
    wide = [any(reading.kind == WIDTH for reading in readings) for readings in choices]
    is_image = len(shape) == _FIRST_SIDE + 2 and shape[1] <= _SMALL and shape[2] == shape[3]
    return len(shape) > _FIRST_SIDE + 1 and (wide[1] or (is_image and wide[_FIRST_SIDE]))


def _cost_of_constant(size: int) -> int:
    return 0 if size <= _SMALL else _STRANGE


def _cost(readings: tuple[_Reading, ...]) -> int:
    total = sum(reading.cost for reading in readings)
    kinds = [reading.kind for reading in readings]
    for place, kind in enumerate(kinds):
        for other in kinds[:place]:
            total += _TWICE_COST[kind] if kind == other else _PAIR_COST.get(frozenset((kind, other)), 0)
    if HEADS in kinds and (HEAD in kinds or kinds.count(SEQUENCE) > 1):
        total -= _ATTENDS
    if (SEQUENCE in kinds) != (BATCH in kinds) and TOKENS not in kinds and GROUPS not in kinds:
        total += _LACK_COST
    # Of two axes a matrix of parameters is likelier than a mask.
    if len(readings) == 2 and SEQUENCE in kinds and BATCH in kinds:
        total += _LACK_COST
    return total


def _values(old: Sizes, new: Sizes) -> Iterator[tuple[int, int, int, int, str]]:
    """Give (kind, cost, before, after, inputs) of all that a rank's axis may be."""
    for kind, cost, value, inputs in _FUNCTIONS:
        before, after = value(old), value(new)
        if before is not None and after is not None:
            yield kind, cost, before, after, inputs
    for size in old.channels:
        # They follow what else has their size: the FFN's, or a share of the heads.
        yield WIDTH, 5, size, max(1, round(size * (new.hidden or 1) / (old.hidden or 1))), ""


def _times(*factors: int | None) -> int | None:
    total = 1
    for factor in factors:
        if factor is None:
            return None
        total *= factor
    return total


def _cut(whole: int | None, parts: int | None) -> int | None:
    return None if whole is None else -(-whole // (parts or 1))


def _more(value: int | None, by: int) -> int | None:
    return None if value is None else value + by


def _pairs(seq: int | None) -> int | None:
    return None if seq is None else seq * (seq + 1) // 2


def _projection(sizes: Sizes) -> int | None:
    return _cut(_times(sizes.heads, sizes.head_dim), sizes.tp)


def _qkv(sizes: Sizes) -> int | None:
    if sizes.heads is None or sizes.kv_heads is None:
        return None
    return _cut(_times(sizes.heads + 2 * sizes.kv_heads, sizes.head_dim), sizes.tp)


_TOKENS_OF: Final = OF_BATCH + OF_SEQUENCE
_FUNCTIONS: Final = (
    (TOKENS, 1, lambda sizes: _times(sizes.rank_seq, sizes.micro_batch), _TOKENS_OF),
    (SEQUENCE, 1, lambda sizes: sizes.rank_seq, OF_SEQUENCE),
    (BATCH, 1, lambda sizes: sizes.micro_batch, OF_BATCH),
    (WIDTH, 1, lambda sizes: sizes.hidden, ""),
    (WIDTH, 2, lambda sizes: _cut(sizes.ffn, sizes.tp), ""),
    (WIDTH, 2, _qkv, ""),
    (WIDTH, 2, _projection, ""),
    (WIDTH, 3, lambda sizes: _cut(sizes.vocab, sizes.tp), ""),
    (WIDTH, 3, lambda sizes: _times(2, _cut(sizes.ffn, sizes.tp)), ""),
    (WIDTH, 4, lambda sizes: _times(2, _projection(sizes)), ""),
    (HEADS, 1, lambda sizes: _cut(sizes.heads, sizes.tp), ""),
    (HEADS, 2, lambda sizes: _cut(sizes.kv_heads, sizes.tp), ""),
    (GROUPS, 1, lambda sizes: _times(sizes.windows, sizes.micro_batch, _cut(sizes.heads, sizes.tp)), OF_BATCH),
    (GROUPS, 2, lambda sizes: _times(_cut(sizes.heads, sizes.tp), sizes.rank_seq, sizes.micro_batch), _TOKENS_OF),
    (GROUPS, 7, lambda sizes: _times(sizes.micro_batch, sizes.hidden), OF_BATCH),
    (HEAD, 1, lambda sizes: sizes.head_dim, ""),
    (HEAD, 3, lambda sizes: _times(3, sizes.head_dim), ""),
    (SEQUENCE, 5, lambda sizes: _cut(sizes.rank_seq, sizes.tp), OF_SEQUENCE),
    (TOKENS, 5, lambda sizes: _cut(_times(sizes.rank_seq, sizes.micro_batch), sizes.tp), _TOKENS_OF),
    (SEQUENCE, 6, lambda sizes: _more(sizes.rank_seq, 1), LONGER),
    (TOKENS, 6, lambda sizes: _times(_more(sizes.rank_seq, 1), sizes.micro_batch), OF_BATCH + LONGER),
    (SEQUENCE, 7, lambda sizes: _pairs(sizes.rank_seq), PAIRS),
)
"""What an axis may be: kind, cost of that reading, its size on one rank, and what of the step's inputs it holds."""
_KIND_OF_INPUTS: Final = {OF_BATCH: BATCH, OF_SEQUENCE: SEQUENCE, LONGER: SEQUENCE, PAIRS: SEQUENCE}
