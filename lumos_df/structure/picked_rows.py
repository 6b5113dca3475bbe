"""Rows that an operator takes out of a tensor as its data says, such as the tokens of one expert.

No size of the model tells how many they are; as a share of the axis that they are taken from they stay. Of samples data
picks more where there are more, also if a job trains on one batch again and again, so that it picks always as many. A
number that does not come from the data does not grow with that axis, so there must be a sign that it does: the operator
gave several numbers, or a multiple of all rows. Of one sample's tokens data may pick a number of the program's: where
that is always the same, either may be so. Rows may be taken in several groups, so that two axes take the place of one:
as many groups are taken as the program has, so the longer one grows. A mask picks from several axes at once.
"""

import re
from collections import defaultdict
from math import prod
from typing import Final

from lumos_df.structure.axis_labels import BATCH, CONSTANT, PICKED_ONE, Labels, constants, holds_inputs
from lumos_df.structure.axis_rules import BATCHED, CONVOLUTION, LINEAR, LOOKUP, NORM, PRODUCT, RESHAPES, SWAPS
from lumos_df.structure.kernels.feeds import CUT, PICKED, PICKS, SPLITS, SWAPPED
from lumos_df.structure.shapes import Shape

_TAKES: Final = re.compile(
    r"aten::(?:index(?:_select)?|masked_select|unsafe_split\w*|split\w*|chunk|slice|narrow|cat|concat)$"
)
"""Operators whose result has all axes of their first tensor, and one of them longer or shorter."""
_DATA: Final = re.compile(r"aten::(?:index(?:_select)?|masked_select)$")
"""Those to which data says which rows."""
_JOINS: Final = re.compile(r"aten::(?:cat|concat)$")
_SPLITS: Final = re.compile(r"aten::(?:unsafe_split\w*|split\w*|chunk)$")
"""Those that make several."""
_CUTS: Final = re.compile(r"aten::(?:unsafe_split\w*|split\w*|chunk|slice|narrow)$")


def moved(name: str, rule: int) -> int:
    """Return what an operator does to the axes of its first tensor, for `feeds`.

    Args:
        name: its name.
        rule: one of `axis_rules`.
    """
    if _SPLITS.match(name):
        return SPLITS
    return PICKS if _TAKES.match(name) else {SWAPS: SWAPPED, RESHAPES: CUT}.get(rule, 0)


def may_be_rows(rule: int, tensors: int) -> list[bool]:
    """Return which of an operator's tensors, and its result, may be rows that were taken; parameters are none.

    Args:
        rule: what it does, one of `axis_rules`.
        tensors: how many it reads.
    """
    places = range(tensors + 1)
    if rule in (PRODUCT, BATCHED):
        return [place == tensors - 2 for place in places]
    if rule in (LINEAR, CONVOLUTION, NORM):
        return [place == 0 for place in places]
    return [rule not in (SWAPS, LOOKUP)] * len(places)


def takes_from_table(name: str, labels: tuple[Labels, ...]) -> bool:
    """Return whether an operator takes rows of a tensor that holds no input, so that data alone says how many.

    Args:
        name: the operator.
        labels: of its tensors; nothing is known of an operator without.
    """
    return bool(labels and _DATA.match(name)) and not holds_inputs(labels)


class PickedRows:
    """How many rows operators took."""

    def __init__(
        self, ties: list[list[tuple[int, int, int]]], shapes: list[Shape | None], batches: frozenset[int]
    ) -> None:
        """Take what is read behind operators that take rows.

        Args:
            ties: of each place where its tensor was before, how it is tied to that, and how often.
            shapes: shape at every place.
            batches: sizes that are the batch, or hold it.
        """
        self._batches = batches
        self._sizes: dict[tuple[int, int], set[int]] = defaultdict(set)
        for shape, each in zip(shapes, ties, strict=True):
            for origin, tie, _ in each:
                if tie == PICKED and (places := _places(shapes[origin], shape)) and shape is not None:
                    self._sizes[origin, places[0].start].add(prod(shape[places[1]]))

    def labels(
        self, origin: int, name: str, tensors: tuple[Shape, ...], known: Labels | None, shape: Shape
    ) -> Labels | None:
        """Return the labels of a tensor of rows that were taken, None where they are a number of the program.

        Args:
            origin: place of the tensor that they were taken from.
            name: the operator that took them.
            tensors: shapes that it read.
            known: labels of the first of these.
            shape: sizes of what it took.
        """
        places = _places(tensors[0], shape)
        if known is None or places is None:
            return None
        axis, axes = places[0].start, shape[places[1]]
        label = tuple(factor for each in known[places[0]] for factor in each or ())
        was, size = prod(tensors[0][places[0]]), prod(axes)
        if len(axes) > 1 and not _DATA.match(name):
            return None
        inputs = "".join(sorted({kind for kind, _ in label if kind}))
        if not inputs:
            return None
        if _JOINS.match(name):
            # A row more, which is there for what is left out.
            grows = size == was + 1 == sum(each[axis] for each in tensors if len(each) == len(shape))
        elif _CUTS.match(name):
            # Of a tensor that is cut once the program may say how long one part is, and the other is the rest.
            grows = bool(self._sizes[origin, axis] - {size, was - size})
        else:
            of_samples = BATCH in inputs and size not in self._batches
            grows = of_samples or len(self._sizes[origin, axis]) > 1 or size % was == 0
        longest = max(axes)
        if grows:
            taken = (*label, (CONSTANT, longest // was)) if longest % was == 0 else ((inputs, longest),)
        elif _DATA.match(name) and size not in self._batches:
            taken = ((PICKED_ONE, longest),)
        else:
            return None
        groups = list(constants(axes))
        groups[axes.index(longest)] = taken
        return (*known[:axis], *groups, *known[places[0].stop :])


def _places(was: Shape | None, shape: Shape | None) -> tuple[slice, slice] | None:
    """Return the axes of a shape that another has others for, and those; None where none or several may be.

    One axis is taken from, or several at once, as a mask over samples and tokens does.
    """
    if was is None or shape is None or was == shape or not prod(was) or not prod(shape):
        return None
    more = len(shape) - len(was)
    old, new = 1 + max(-more, 0), 1 + max(more, 0)
    differ = [
        axis
        for axis in range(len(was) - old + 1)
        if shape[:axis] == was[:axis] and shape[axis + new :] == was[axis + old :]
    ]
    return (slice(differ[0], differ[0] + old), slice(differ[0], differ[0] + new)) if len(differ) == 1 else None
