"""What the axes of a tensor are made of, and what becomes of that when they are moved, cut or put together.

A label is the factors of one axis, the outermost first: 1056 tokens are (SEQUENCE, 66), (BATCH, 16), a width is
(CONSTANT, 128).
"""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, islice, permutations, product
from math import prod
from typing import Final

from lumos_df.structure.shapes import Shape

CONSTANT, BATCH, SEQUENCE, LONGER, PAIRS, PICKED_ONE, MIXED = "", "b", "s", "t", "p", "o", "m"
"""What a factor is: no size of a step's inputs; the batch; the sequence; that and a token more; pairs of tokens; rows
that data picked, always as many, of which nothing tells whether they grow; what tokens are mixed to, or parameters that
mix them, which are no size of the model, either.
Several together are a number that grows with each of them, such as the tokens of one expert."""

Factor = tuple[str, int]
Label = tuple[Factor, ...] | None
"""Factors of an axis, none of one element; None where nothing tells."""
Labels = tuple[Label, ...]

_UNKNOWN: Final = "?"
_MOST_AXES: Final = 5
"""Axes of the largest tensor whose orders are compared."""
_MOST_ORDERS: Final = 100
"""Orders of factors that are tried: those of a tensor are far fewer, but for one made to have more."""


def holds_inputs(labels: Iterable[Labels]) -> bool:
    """Return whether any axis of some tensors is known to hold a size of the step's inputs."""
    return any(holds_input(label) for each in labels for label in each)


def holds_input(label: Label) -> bool:
    """Return whether an axis is known to hold a size of the step's inputs."""
    return any(kind not in (CONSTANT, MIXED) for kind, _ in label or ())


def holds_batch(label: Label) -> bool:
    """Return whether an axis is known to hold samples."""
    return any(BATCH in kind for kind, _ in label or ())


def holds_one_number(labels: Iterable[Labels]) -> bool:
    """Return whether any axis of some tensors is of rows that data picked, always as many."""
    return any(PICKED_ONE in kind for each in labels for label in each for kind, _ in label or ())


def constants(shape: Shape, kind: str = CONSTANT) -> Labels:
    """Return the labels of a tensor that holds no size of the inputs; `kind`: what its factors are instead."""
    return tuple(((kind, size),) if size > 1 else () for size in shape)


def likeliest(arrived: Iterable[tuple[Labels | None, int]]) -> Labels | None:
    """Return the labels that say most, of those that say as much the commonest; each comes with its count."""
    votes: Counter[Labels] = Counter()
    for labels, times in arrived:
        if labels is not None:
            votes[labels] += times
    return max(votes, key=lambda labels: (said(labels), votes[labels])) if votes else None


def with_one_batch(labels: Labels) -> Labels:
    """Return the labels of a tensor with the batch in its outermost place alone.

    Samples do not meet one another, so no tensor holds a number for each two of them: what else is as large as the
    batch, such as 64 rows of an image at a batch of 64, is a size by accident.
    """
    found = False
    each: list[Label] = []
    for label in labels:
        factors: list[Factor] = []
        for kind, size in label or ():
            factors.append((kind.replace(BATCH, "") if found else kind, size))
            found = found or BATCH in kind
        each.append(None if label is None else tuple(factors))
    return tuple(each)


def said(labels: Labels) -> int:
    """Return of how many axes something is known."""
    return sum(label is not None for label in labels)


def unite(labels: list[list[Label]], shapes: tuple[Shape, ...]) -> None:
    """Give axes that meet in an element-wise operator one label: what is known of one tensor holds for the others."""
    for place in range(1, max(map(len, shapes)) + 1):
        meet = [number for number, shape in enumerate(shapes) if len(shape) >= place]
        for size in {shapes[number][-place] for number in meet}:
            alike = [number for number in meet if shapes[number][-place] == size]
            known = Counter(label for number in alike if (label := labels[number][-place]) is not None)
            if known:
                varying = [label for label in known if holds_input(label)]
                label = max(varying or known, key=lambda each: known[each])
                for number in alike:
                    labels[number][-place] = label


def aligned(labels: Labels, shape: Shape) -> Labels:
    """Return what the axes of a shape are that have the same sizes in the same order; others are unknown."""
    sizes = [None if label is None else prod(size for _, size in label) for label in labels]
    if len(sizes) == len(shape):
        return tuple(label if size == other else None for label, size, other in zip(labels, sizes, shape, strict=True))
    found: list[Label] = []
    at = 0
    for size in shape:
        is_there = size > 1 and size in sizes[at:]
        at = sizes.index(size, at) + 1 if is_there else at
        found.append(labels[at - 1] if is_there else None)
    return tuple(found)


def swapped(labels: Labels, was: Shape, shape: Shape, first: str, *, two: bool) -> Labels | None:
    """Return the labels of a tensor whose axes come in another order, None where they do not.

    Args:
        labels: those of the tensor.
        was: its sizes.
        shape: its sizes in the other order.
        first: which of batch and sequence comes first where they are of one size.
        two: whether two axes changed places, and no other moved.
    """
    if len(was) > _MOST_AXES or sorted(was) != sorted(shape):
        return None
    orders = [each for each in permutations(range(len(was))) if tuple(was[place] for place in each) == shape]
    orders = [each for each in orders if _moved(each)]
    if two:
        orders = [each for each in orders if _moved(each) <= 2] or orders
    moved = {each: tuple(labels[place] for place in each) for each in orders}
    # An order that is written down takes few axes out of their row.
    told = min((each for each in orders if not _turned(moved[each], first)), key=_inversions, default=None)
    return None if told is None else moved[told]


def _moved(order: tuple[int, ...]) -> int:
    return sum(place != old for place, old in enumerate(order))


def _inversions(order: tuple[int, ...]) -> int:
    return sum(later < earlier for earlier, later in combinations(order, 2))


def _turned(labels: Labels, first: str) -> bool:
    """Return whether batch and sequence are of one size and come the other way round."""
    inputs = [label[0] for label in labels if label and len(label) == 1 and label[0][0] in (BATCH, SEQUENCE)]
    kinds = [kind for kind, _ in inputs]
    return sorted(kinds) == [BATCH, SEQUENCE] and inputs[0][1] == inputs[1][1] and kinds[0] != first


def cut(labels: Labels, was: Shape, shape: Shape) -> Labels | None:
    """Return the labels of a tensor whose elements, in their order, are cut into other axes, None where they do not.

    A size of the inputs stays whole where it can: 288 tokens that are cut into 3 and 96 are 3 sequences of 96,
    whichever of both was thought to come first. Axes of one size may have changed places before, which no shape shows.

    Args:
        labels: those of the tensor.
        was: its sizes.
        shape: the other sizes.
    """
    known = [label if label is not None else ((_UNKNOWN, size),) for label, size in zip(labels, was, strict=True)]
    alike = (
        each
        for each in permutations(range(len(was)))
        if all(was[place] == size for place, size in zip(each, was, strict=True))
    )
    orders = (order for places in alike for order in product(*(permutations(known[place]) for place in places)))
    tried = islice(orders, _MOST_ORDERS)
    whole = (_cut([factor for label in order for factor in label], shape, parts=False) for order in tried)
    told = next((axes for axes in whole if axes is not None), None)
    return told or _cut([factor for label in known for factor in label], shape, parts=True)


def _cut(factors: list[Factor], shape: Shape, *, parts: bool) -> Labels | None:
    """Return the factors of each axis of a shape, None where they do not fill it; `parts`: inputs may be cut, too."""
    left_over = factors[::-1]
    axes: list[Label] = []
    for size in shape:
        axis: list[Factor] = []
        left = size
        while left > 1:
            if not left_over:
                return None
            kind, length = left_over.pop()
            divides = kind in (CONSTANT, _UNKNOWN) or (parts and left == size)
            if length > left and length % left == 0 and divides:
                # Of a batch in parts the outer one grows.
                left_over.append((kind if kind == _UNKNOWN else CONSTANT, length // left))
                length = left
            if left % length:
                return None
            left //= length
            if axis and kind == axis[-1][0] == CONSTANT:
                length *= axis.pop()[1]
            if length > 1:
                axis.append((kind, length))
        axes.append(None if any(kind == _UNKNOWN for kind, _ in axis) else tuple(axis))
    return tuple(axes)
