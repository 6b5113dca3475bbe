"""Which axes of a product's tensors are the same, and what those of attention's products hold."""

from math import prod

from lumos_df.structure.axis_labels import BATCH, SEQUENCE, Label, Labels, constants, holds_batch
from lumos_df.structure.axis_rules import BATCHED, LINEAR, PRODUCT, SOFTMAX
from lumos_df.structure.operator_kinds import OperatorKind


def of_products(kind: OperatorKind, labels: list[list[Label]]) -> None:
    """Give the sizes that a product runs over one label, and those of batches of matrices."""
    shapes = kind.tensors
    if kind.rule not in (LINEAR, PRODUCT, BATCHED) or len(shapes) < 2:
        return
    left, right = (0, 1) if kind.rule == LINEAR else (len(shapes) - 2, len(shapes) - 1)
    inner = -1 if kind.rule == LINEAR else max(-2, -len(shapes[right]))
    if shapes[left][-1] == shapes[right][inner]:
        labels[left][-1] = labels[right][inner] = labels[right][inner] or labels[left][-1]
    if kind.rule == BATCHED and len(shapes[left]) == len(shapes[right]) == 3:
        for number in range(len(shapes)):
            if shapes[number][:1] == shapes[left][:1]:
                labels[number][0] = labels[left][0] or labels[right][0]


def with_one_batch(kind: OperatorKind, told: list[Labels]) -> list[Labels]:
    """Return the labels of a product's matrices with the batch in one of the three sizes that it runs over.

    Samples do not meet: no result holds a number for each two of them. Where several sizes are as long as the tokens,
    as those of a square matrix of a model as wide as a micro-batch has tokens, they are the rows of the left matrix if
    they can be, as forward; which of the three grows makes no difference to the operations.
    """
    shapes = kind.tensors[-2:]
    if kind.rule != PRODUCT or [len(shape) for shape in shapes] != [2, 2]:
        return told
    (rows, inner), (also_inner, columns) = told[-2:]
    held = [label for label in (rows, inner, also_inner, columns) if holds_batch(label)]
    meet = holds_batch(inner) != holds_batch(also_inner)
    if not held or (not meet and len(held) - holds_batch(inner) == 1):
        return told
    (left_rows, _), (_, right_columns) = shapes
    left, right = (
        [constant if holds_batch(label) else label for label, constant in zip(known, constants(shape), strict=True)]
        for known, shape in zip(told[-2:], shapes, strict=True)
    )
    size = prod(length for _, length in held[0] or ())
    if left_rows == size:
        left[0] = held[0]
    elif right_columns == size:
        right[1] = held[0]
    else:
        left[1] = right[0] = held[0]
    return [*told[:-2], tuple(left), tuple(right)]


def of_attention(kind: OperatorKind, labels: list[list[Label]], batch: int, sequence: int) -> None:
    """Label what a batch of products has where it runs over the sequence two ways of three: these are queries and keys.

    In front are the heads of all samples. Where a head is as wide as a sequence is long, any of the three may be the
    head's: the operations are as many.

    Args:
        kind: the operators.
        labels: of each tensor, changed in place.
        batch: sequences of a micro-batch.
        sequence: tokens of one.
    """
    shapes = kind.tensors[-2:]
    if kind.rule not in (PRODUCT, BATCHED) or [len(shape) for shape in shapes] != [3, 3] or sequence == 1:
        return
    (heads, rows, inner), (_, _, columns) = shapes
    ways = (rows, inner, columns).count(sequence)
    if ways < 2:
        return
    tokens, head = ((SEQUENCE, sequence),), constants((sequence,))[0]
    of_samples = batch > 1 and heads % batch == 0
    for known, shape in zip(labels[-2:], shapes, strict=True):
        if known[0] is None and of_samples:
            known[0] = ((BATCH, heads),)
        if ways == 2:
            # What was cut and turned before may be told wrongly; the sizes of a batch of heads are not.
            was = [*constants(shape[1:])] if of_samples else known[1:]
            known[1:] = [
                tokens if size == sequence and (of_samples or label is None) else label
                for size, label in zip(shape[1:], was, strict=True)
            ]
    if ways > 2 and of_samples:
        labels[-2][1:], labels[-1][1:] = [tokens, head], [head, tokens]


def of_scores(kind: OperatorKind, labels: list[list[Label]], sequence: int) -> None:
    """Label what a softmax runs over where it is as long as the axis in front, and the sequence: each token with each.

    Args:
        kind: the operators.
        labels: of each tensor, changed in place.
        sequence: tokens.
    """
    if sequence == 1 or not SOFTMAX.match(kind.name):
        return
    for known, shape in zip(labels, kind.tensors, strict=True):
        if len(shape) > 2 and shape[-2:] == (sequence, sequence):
            known[-2:] = [((SEQUENCE, sequence),)] * 2
