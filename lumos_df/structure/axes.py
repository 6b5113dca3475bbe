"""Which axes of recorded shapes hold the batch and which the sequence, followed from operator to operator.

What an operator does to axes is a rule of its name; what it reads is the last tensor of that shape on its thread, or
what its forward partner had. Sizes are compared only where a tensor comes from nowhere, as the inputs of a step do.
"""

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.schema.codes import CPU_OP, NONE, OPTIMIZER
from lumos_df.structure.axis_labels import (
    BATCH,
    CONSTANT,
    LONGER,
    MIXED,
    PAIRS,
    SEQUENCE,
    Label,
    Labels,
    aligned,
    constants,
    cut,
    holds_inputs,
    likeliest,
    said,
    swapped,
    unite,
)
from lumos_df.structure.axis_rules import (
    ANY_ORDER,
    BATCHED,
    CONVOLUTION,
    ELEMENTS,
    FUSED,
    IDLE,
    JOINS,
    LINEAR,
    LOOKUP,
    NORM,
    OVER_CHANNELS,
    POOL,
    PRODUCT,
    SWAPS,
)
from lumos_df.structure.kernels.feeds import MOVED, NEXT, PICKED, feeds
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.operator_kinds import OperatorKind, numbered_kinds, numbered_shapes, read_kind
from lumos_df.structure.parameter_axes import adds_up, of_heads, of_parameters, of_vectors, reads_tokens
from lumos_df.structure.picked_rows import PickedRows, may_be_rows, moved
from lumos_df.structure.product_axes import of_attention, of_products, of_scores, with_one_batch
from lumos_df.structure.shapes import Shape

_ROUNDS: Final = 2
"""Times that all kinds are labelled: a tensor may be read by a kind that came first before its own."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Labels of one rank's shapes."""

    kind: NDArray[np.int32]
    """Kind of every row: operators of one name and shapes, in operators of one name and shapes, and of forward ones;
    NONE without shapes [n]."""
    of_kind: list[tuple[Labels, ...]]
    """Of each kind the labels of its tensors, those in lists as well."""
    of_text: dict[str, tuple[Labels, ...]]
    """Of inputs as recorded JSON what they are in most operators."""

    def labels(self, row: int) -> tuple[Labels, ...]:
        """Return the labels of the tensors that an operator reads; none of NONE, and where nothing is known of it."""
        return self.of_kind[self.kind[row]] if row != NONE and self.kind[row] != NONE else ()


def unknown(trace: Trace) -> Axes:
    """Return that nothing is known of a rank's shapes."""
    return Axes(np.full(len(trace), NONE, np.int32), [], {})


def follow(trace: Trace, phase: NDArray[np.int8], batch: int | None, sequence: int | None) -> Axes:
    """Return what the axes of a rank's shapes are.

    Args:
        trace: the rank.
        phase: phase of every operator [n].
        batch: sequences or samples of a micro-batch; None where it is not known.
        sequence: tokens of one; None where it is not known, or the model has none.
    """
    rows = trace.rows
    works = rows.named(lambda name: not IDLE.match(name))
    row = np.flatnonzero((rows.kind == CPU_OP) & (trace.dims.code >= 0) & works & (rows.thread >= 0))
    if not len(row) or not (batch or sequence):
        return unknown(trace)
    in_turn = row[np.argsort(rows.thread[row], kind="stable")].astype(np.int32)
    partner = inherit(rows.forward, rows.parent, rows.thread)
    kind, example, count = numbered_kinds(trace, in_turn, partner)
    updates = np.bincount(kind[in_turn], phase[in_turn] == OPTIMIZER) * 2 > count
    shown = in_turn[example]
    # The last kind is that of no row.
    of_row = np.append(kind, NONE)
    kinds = list(
        map(
            read_kind,
            [trace] * len(example),
            shown.tolist(),
            count.tolist(),
            updates.tolist(),
            of_row[rows.parent[shown]].tolist(),
            of_row[partner[shown]].tolist(),
        )
    )
    shapes = [shape for each in kinds for shape in (*each.tensors, each.result)]
    first = np.cumsum([0, *(len(each.tensors) + 1 for each in kinds)]).astype(np.int32)
    moves = np.array([moved(each.name, each.rule) for each in kinds])
    rows_at = np.array([may_be for each in kinds for may_be in may_be_rows(each.rule, len(each.tensors))])
    linear = np.array([each.rule == LINEAR for each in kinds])
    numbers = numbered_shapes(shapes)
    told = feeds(in_turn, rows.thread, rows.parent, rows.forward, kind, first, *numbers, moves, rows_at, linear)
    _, tie, times = np.unique(packed(*told), return_index=True, return_counts=True)
    ties: list[list[tuple[int, int, int]]] = [[] for _ in shapes]
    for reader, *source in zip(*(column[tie].tolist() for column in told), times.tolist(), strict=True):
        ties[reader].append((source[0], source[1], source[2]))
    order = np.argsort(example).tolist()
    # Where both are of one size, either may come first in an activation: attention tells.
    followed = [
        _Followed(kinds, first.tolist(), shapes, (batch, sequence), leading).through(order, ties)
        for leading in ((BATCH, SEQUENCE) if batch == sequence else (BATCH,))
    ]
    return max(followed, key=_Followed.attention_over_batches).axes(kind)


class _Followed:
    """Labels of places, found by following tensors from one to the next."""

    def __init__(
        self,
        kinds: list[OperatorKind],
        first: list[int],
        shapes: list[Shape | None],
        sizes: tuple[int | None, int | None],
        leading: str,
    ) -> None:
        """Take what the places are.

        Args:
            kinds: kinds of operators.
            first: first place of each: one a tensor and one for the result.
            shapes: shape at every place.
            sizes: batch and sequence.
            leading: which of both comes first where they are of one size.
        """
        self._kinds, self._first, self._shapes, self._leading = kinds, first, shapes, leading
        self._kind_at = np.repeat(np.arange(len(kinds)), np.diff(first)).tolist()
        self._labels: list[Labels | None] = [None] * len(shapes)
        self._parameters: dict[str, set[Shape]] = {CONSTANT: set(), MIXED: set()}
        """Shapes of what layers have been seen to read beside their input: of a width, and of tokens."""
        batch, sequence = (size or 1 for size in sizes)
        self._size = {BATCH: batch, SEQUENCE: sequence, LONGER: sequence + 1, PAIRS: sequence * (sequence + 1) // 2}
        words = [LONGER + BATCH, SEQUENCE + BATCH, PAIRS, LONGER, SEQUENCE, BATCH]
        if sequence == 1:
            words = [BATCH]
        self._inputs_of = {prod(self._size[kind] for kind in word): word for word in words}

    def through(self, order: list[int], ties: list[list[tuple[int, int, int]]]) -> "_Followed":
        """Label all places.

        Args:
            order: kinds in the order of their first operators.
            ties: of each place where its tensor was before, how it is tied to that, and how often.
        """
        holds_batch = frozenset(size for size, word in self._inputs_of.items() if BATCH in word)
        picked = PickedRows(ties, self._shapes, holds_batch)
        for _ in range(_ROUNDS):
            for number in order:
                kind, low = self._kinds[number], self._first[number]
                inputs, beside = [], []
                for place, shape in enumerate(kind.tensors):
                    # Of as many of each, a tensor of the same shape is the likelier one.
                    arrived = [
                        (self._arrived(shape, origin, tie, picked), tie, times)
                        for origin, tie, times in sorted(ties[low + place], key=_how)
                        if origin != NONE
                    ]
                    inputs.append(likeliest((labels, times) for labels, tie, times in arrived if tie != NEXT))
                    beside.append(likeliest((labels, times) for labels, tie, times in arrived if tie == NEXT))
                labelled = self._ruled(kind, self._of_linear(kind, inputs), beside)
                self._labels[low : low + len(labelled)] = labelled
                if kind.rule in (LINEAR, CONVOLUTION, NORM) and not kind.updates:
                    for labels, shape in zip(labelled[1:], kind.tensors[1:], strict=True):
                        mixes = any(word == MIXED for label in labels[:1] for word, _ in label or ())
                        self._parameters[MIXED if mixes else CONSTANT].add(shape)
                # By size alone the places of a lookup, of one sample, look like a width.
                told = kind.rule != LOOKUP or holds_inputs(labelled[1:2])
                if kind.sources is not None and told:
                    self._labels[low + len(labelled)] = tuple(labelled[tensor][axis] for tensor, axis in kind.sources)
        return self

    def attention_over_batches(self) -> int:
        """Return how many batched products and fused attentions are as many as the batch, or a multiple of it."""
        leading = (self._labels[low] for low in self._first[:-1])
        return sum(
            kind.count
            for kind, labels in zip(self._kinds, leading, strict=True)
            if kind.rule in (BATCHED, FUSED) and labels and any(word == BATCH for word, _ in labels[0] or ())
        )

    def axes(self, kind_of_row: NDArray[np.int32]) -> Axes:
        """Return the labels of all kinds; `kind_of_row`: the kind of every row [n]."""
        of_kind: list[tuple[Labels, ...]] = []
        of_text: dict[str, list[tuple[int, tuple[Labels, ...]]]] = {}
        for low, kind in zip(self._first[:-1], self._kinds, strict=True):
            labels = tuple(each for each in self._labels[low : low + len(kind.tensors)] if each is not None)
            of_kind.append(labels)
            of_text.setdefault(kind.text, []).append((kind.count, labels))
        return Axes(
            kind_of_row, of_kind, {text: max(known, key=lambda each: each[0])[1] for text, known in of_text.items()}
        )

    def _of_linear(self, kind: OperatorKind, inputs: list[Labels | None]) -> list[Labels | None]:
        """Return the labels of a product's tensors: of one in a linear layer, or of the backward of a product, theirs.

        Parameters may have the sizes of an activation, so that shapes alone do not tell which of both a product reads.
        """
        if kind.rule != PRODUCT or len(kind.tensors) < 2:
            return inputs
        told = self._in_linear(kind) or self._of_gradient(kind)
        return [*inputs[:-2], *told] if told else inputs

    def _in_linear(self, kind: OperatorKind) -> tuple[Labels, Labels] | None:
        """Return the labels of a product inside a linear layer, or inside one of more axes."""
        around = self._kinds[kind.around] if kind.around != NONE else kind
        if around is kind or around.rule not in (LINEAR, PRODUCT) or len(around.tensors) < 2:
            return None
        turned = around.rule == LINEAR
        place = 0 if turned else len(around.tensors) - 2
        given, matrix = (self._labels_of(kind.around, place + each) for each in (0, 1))
        (before, weight), (left, right) = around.tensors[place : place + 2], kind.tensors[-2:]
        if (
            given is None
            or matrix is None
            or right != (weight[::-1] if turned else weight)
            or prod(left) != prod(before)
        ):
            return None
        flat = given if left == before else cut(given, before, left)
        return None if flat is None else (flat, matrix[::-1] if turned else matrix)

    def _of_gradient(self, kind: OperatorKind) -> tuple[Labels, Labels] | None:
        forward = kind.forward
        if forward == NONE or len(self._kinds[forward].tensors) < 2:
            return None
        product = self._of_forward(forward)
        if product is None:
            return None
        (rows, inner, columns), (left, right) = product
        result = (left[0], right[1])
        given, (asked, matrix) = self._kinds[forward].tensors[0], kind.tensors[-2:]
        if len(asked) > 2 and asked[:-1] == given[:-1] and (asked[-1], matrix) == (columns, (columns, inner)):
            return (*(self._labels_of(forward, 0) or ())[:-1], right[1]), right[::-1]
        # Gradients of the left matrix, and of the right one as it is and transposed.
        ways = (
            (((rows, columns), (columns, inner)), (result, right[::-1])),
            (((inner, rows), (rows, columns)), (left[::-1], result)),
            (((columns, rows), (rows, inner)), (result[::-1], left)),
        )
        # Where several have these sizes, one of the three that a product runs over is the inputs' in each.
        return next((labels for shapes, labels in ways if shapes == kind.tensors[-2:]), None)

    def _of_forward(self, number: int) -> tuple[tuple[int, int, int], tuple[Labels, Labels]] | None:
        """Return the sizes of a forward product of matrices, rows, inner and columns, and the labels of both."""
        kind = self._kinds[number]
        if kind.rule not in (PRODUCT, LINEAR):
            return None
        place = 0 if kind.rule == LINEAR else len(kind.tensors) - 2
        left, right = self._labels_of(number, place), self._labels_of(number, place + 1)
        if left is None or right is None:
            return None
        first, second = kind.tensors[place : place + 2]
        if kind.rule == PRODUCT:
            return ((*first, second[1]), (left, right)) if len(first) == len(second) == 2 else None
        flat = (prod(first[:-1]), first[-1])
        rows = cut(left, first, flat)
        return None if rows is None else ((*flat, second[0]), (rows, right[::-1]))

    def _labels_of(self, number: int, place: int) -> Labels | None:
        return self._labels[self._first[number] + place]

    def _around(self, kind: OperatorKind) -> OperatorKind | None:
        return None if kind.around == NONE else self._kinds[kind.around]

    def _arrived(self, shape: Shape, origin: int, tie: int, picked: PickedRows) -> Labels | None:
        """Return the labels that a tensor has from where it was before."""
        labels, was, number = self._labels[origin], self._shapes[origin], self._kind_at[origin]
        if adds_up(self._kinds[number], self._around(self._kinds[number])):
            # An activation may have as many elements as a parameter, and is none.
            return None
        if tie == NEXT:
            places = self._labels[self._first[number] : self._first[number + 1]]
            labels = max((aligned(each, shape) for each in places if each is not None), key=said, default=None)
        elif tie == PICKED:
            kind = self._kinds[number]
            labels = picked.labels(origin, kind.name, kind.tensors, labels, shape)
        elif tie == MOVED and labels is not None and was is not None:
            if self._kinds[number].rule == SWAPS:
                two = not ANY_ORDER.match(self._kinds[number].name)
                in_turn = swapped(labels, was, shape, self._leading, two=two)
                labels = labels if in_turn is None and was == shape else in_turn
            elif was != shape:
                labels = cut(labels, was, shape)
        return labels

    def _ruled(self, kind: OperatorKind, inputs: list[Labels | None], beside: list[Labels | None]) -> list[Labels]:
        """Return the labels of an operator's tensors: what came in, what its name says, and of the rest their sizes.

        Args:
            kind: the operator.
            inputs: labels of each tensor where it was before.
            beside: labels of axes of the same sizes in the operator before.
        """
        shapes = kind.tensors
        if kind.updates:
            mixes = self._parameters[MIXED] - self._parameters[CONSTANT]
            return [constants(shape, MIXED if shape in mixes else CONSTANT) for shape in shapes]
        blank = [(None,) * len(shape) for shape in shapes]
        labels: list[list[Label]] = [[*(known or none)] for known, none in zip(inputs, blank, strict=True)]
        if shapes:
            of_parameters(kind, self._around(kind), labels, self._size[SEQUENCE])
            self._of_samples(kind, labels)
            of_vectors(kind, labels, self._inputs_of)
            of_heads(kind, labels)
            of_products(kind, labels)
            of_attention(kind, labels, self._size[BATCH], self._size[SEQUENCE])
            of_scores(kind, labels, self._size[SEQUENCE])
        if len(shapes) > 1 and ((kind.rule == ELEMENTS and kind.sources is not None) or JOINS.match(kind.name)):
            unite(labels, shapes)
        for known, other, shape in zip(labels, beside, shapes, strict=True):
            guesses = other and self._of_length(other, shape)
            known[:] = [
                label if label is not None else guess for label, guess in zip(known, guesses or known, strict=True)
            ]
        told = with_one_batch(kind, list(map(self._by_size, shapes, labels)))
        return [told[0], *map(self._of_places, told[1:2]), *told[2:]] if kind.rule == LOOKUP else told

    def _of_places(self, labels: Labels) -> Labels:
        """Return the labels of what is looked up: places in a table have no width, what looked like one is tokens."""
        size = self._size[SEQUENCE]
        if size == 1 or holds_inputs([tuple(label for label in labels if label != ((BATCH, self._size[BATCH]),))]):
            return labels
        constant = ((CONSTANT, size),)
        return tuple(((SEQUENCE, size),) if label == constant else label for label in labels)

    def _of_samples(self, kind: OperatorKind, labels: list[list[Label]]) -> None:
        """Label the first axis of operators that take samples, or multiples of them, and their channels."""
        shape = kind.tensors[0]
        over_channels = kind.rule in (CONVOLUTION, POOL) or bool(OVER_CHANNELS.match(kind.name))
        if len(shape) < 3 or not (over_channels or kind.rule == FUSED):
            return
        if 1 < self._size[BATCH] <= shape[0] and shape[0] % self._size[BATCH] == 0:
            labels[0][0] = ((BATCH, shape[0]),)
        if over_channels and not reads_tokens(kind, labels[0], 1, self._size[SEQUENCE]):
            labels[0][1] = constants(shape)[1]

    def _of_length(self, labels: Labels, shape: Shape) -> Labels:
        """Return guesses less those that an axis in front of a width, as long as a sequence, is a constant.

        Where a model is as wide as a sequence is long, the axis beside is as likely the width.
        """
        size = self._size[SEQUENCE]
        if len(shape) < 3 or size == 1:
            return labels
        return (*(None if label == ((CONSTANT, size),) else label for label in labels[:-1]), labels[-1])

    def _by_size(self, shape: Shape, labels: list[Label]) -> Labels:
        """Return labels in which an axis of which nothing is known is what has its size."""
        held = {letter for label in labels for kind, _ in label or () for letter in kind}
        found: list[Label] = []
        for place, (size, label) in enumerate(zip(shape, labels, strict=True)):
            word = self._inputs_of.get(size, "") if label is None and size > 1 else ""
            if word == BATCH in held and size == self._size[SEQUENCE]:
                word = SEQUENCE
            square = place > 0 and found[-1] == ((SEQUENCE, size),)
            last = place == len(shape) - 1
            # There is one batch, and one sequence but for each token with each; what has no batch ends in a width.
            if word in held or (word == SEQUENCE and last and not held):
                word = SEQUENCE if word == SEQUENCE and square else ""
            held.update(word)
            read = tuple((kind, self._size[kind] if len(word) > 1 else size) for kind in word)
            found.append(label if label is not None else read or constants((size,))[0])
        return tuple(found)


def _how(tie: tuple[int, int, int]) -> int:
    return tie[1]
