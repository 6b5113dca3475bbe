"""Which axes of an operator's tensors hold no input of the step: those of parameters, and widths that they meet."""

from typing import Final

from lumos_df.structure.axis_labels import BATCH, CONSTANT, MIXED, SEQUENCE, Label, constants, holds_batch, holds_input
from lumos_df.structure.axis_rules import (
    ADDS_UP,
    ATTENDS,
    BACK,
    CONVOLUTION,
    ELEMENTS,
    GROUPED,
    LINEAR,
    LOOKUP,
    NORM,
    OVER_CHANNELS,
)
from lumos_df.structure.operator_kinds import OperatorKind

_MIXED_AXES: Final = 3
"""Axes of samples with their tokens and their width, in which order ever."""
_CHANNELS: Final = 2
"""Axes of a filter that count channels; the others are its sides."""


def of_parameters(kind: OperatorKind, around: OperatorKind | None, labels: list[list[Label]], sequence: int) -> None:
    """Label parameters, their gradients, and widths that they meet.

    Args:
        kind: the operators.
        around: those that they are in.
        labels: of each tensor, changed in place.
        sequence: tokens.
    """
    shapes = kind.tensors
    if kind.rule in (LINEAR, CONVOLUTION):
        # A layer of tokens reads them where others read a width.
        tokens = reads_tokens(kind, labels[0], 1 if kind.rule == CONVOLUTION else -1, sequence)
        labels[1:] = [
            # What a filter looks at is as large for any channels.
            [*constants(shape[:_CHANNELS], MIXED if tokens else CONSTANT), *constants(shape[_CHANNELS:], MIXED)]
            for shape in shapes[1:]
        ]
    elif kind.rule == GROUPED:
        labels[:] = [
            [*constants(shape)] if len(shape) > 2 else label for shape, label in zip(shapes, labels, strict=True)
        ]
    elif kind.rule == NORM:
        for number, shape in enumerate(shapes[1:], 1):
            labels[number] = [*constants(shape)] if len(shape) == 1 else labels[number]
        if len(shapes) > 1 and shapes[0][-1:] == shapes[1] and not OVER_CHANNELS.match(kind.name):
            labels[0][-1] = labels[1][0]
    elif kind.rule == LOOKUP:
        labels[0] = [*constants(shapes[0])]
    elif adds_up(kind, around):
        labels[:] = [[*constants(shape)] for shape in shapes]


def adds_up(kind: OperatorKind, around: OperatorKind | None) -> bool:
    """Return whether operators add up gradients of parameters, or are in others that do."""
    return any(ADDS_UP.match(each.name) for each in (kind, around) if each is not None)


def reads_tokens(kind: OperatorKind, labels: list[Label], place: int, sequence: int) -> bool:
    """Return whether an axis that a layer's parameters meet is of tokens, or what these were mixed to.

    Patches of an image come as constants, so as many as there are tokens counts, where no other axis has as many.
    Where one has, the axis that holds the sequence tells, and the other must be known to hold none.

    Args:
        kind: the layers.
        labels: of the tensor that they read.
        place: the axis.
        sequence: tokens.
    """
    shape, label = kind.tensors[0], labels[place]
    # A convolution along one axis is called as one of maps a row high.
    axes = len(shape) - (kind.rule == CONVOLUTION and 1 in shape[2:])
    if axes != _MIXED_AXES or sequence == 1 or label is None or len(label) != 1:
        return False
    beside = labels[len(shape) - 2 if place == -1 else -1]
    of_tokens = label == ((SEQUENCE, sequence),) and beside is not None and not holds_input(beside)
    return of_tokens or label[0][0] == MIXED or (label[0][1] == sequence and shape.count(sequence) == 1)


def of_vectors(kind: OperatorKind, labels: list[list[Label]], inputs_of: dict[int, str]) -> None:
    """Label vectors along the last axis of a tensor in which an axis in front may be the batch: they hold none.

    A norm that is written in elements has weights as long as a micro-batch has tokens, where the model is as wide.

    Args:
        kind: the operators.
        labels: of each tensor, changed in place.
        inputs_of: by sizes what inputs of the step they may be.
    """
    largest = max(kind.tensors, key=len)
    in_front = any(BATCH in inputs_of.get(size, "") for size in largest[:-1] if size > 1)
    if len(largest) < 3 or not in_front or kind.rule not in (ELEMENTS, BACK):
        return
    for label, shape in zip(labels, kind.tensors, strict=True):
        if shape == largest[-1:] and holds_batch(label[0]):
            label[:] = constants(shape)


def of_heads(kind: OperatorKind, labels: list[list[Label]]) -> None:
    """Label the last axis of what fused attention takes, a head's width, also where it is as long as a sequence."""
    if not ATTENDS.match(kind.name):
        return
    taken = [shape for shape in kind.tensors[:3] if len(shape) > 3]
    for label, shape in zip(labels, kind.tensors, strict=True):
        if shape in taken:
            label[-1] = constants(shape)[-1]
