"""Kinds of operators whose shapes were recorded: those of one name and shapes, in the same, are read once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.schema.codes import NONE
from lumos_df.structure.axis_rules import LINEAR, LOOKS_UP, LOOKUP, PRODUCT, RULES, TAKES_ROWS, sources
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.shapes import Shape


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """Operators of one name and shapes, in operators of one name and shapes, and of such forward ones."""

    name: str
    text: str
    """Their inputs as recorded JSON."""
    rule: int
    """What they do to axes, as in `axis_rules`."""
    tensors: tuple[Shape, ...]
    """Shapes of the tensors that they read."""
    sources: tuple[tuple[int, int], ...] | None
    """Tensor and axis that each axis of the result is from; None where shapes do not tell the result."""
    count: int
    """How many they are."""
    updates: bool
    """Whether they belong to the optimizer."""
    around: int
    """Kind of the operators that they are in, NONE of none with shapes."""
    forward: int
    """Kind of the forward operators that they are the backward of, NONE where that is not known."""

    @property
    def result(self) -> Shape | None:
        """Shape of the result; None where it is not known."""
        return None if self.sources is None else tuple(self.tensors[tensor][axis] for tensor, axis in self.sources)


def numbered_kinds(
    trace: Trace, row: NDArray[np.int32], partner: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the kind of every row [n], and of each kind the place of its first among some rows, and their number.

    Those of one kind have the same name and shapes, and so have the operators that they are in, and the forward ones
    (`partner`, NONE where there is none [n]).
    """
    rows = trace.rows
    columns = (
        np.where(of >= 0, column[of], NONE)
        for of in (rows.parent[row], partner[row])
        for column in (rows.name, trace.dims.code)
    )
    key = packed(rows.name[row], trace.dims.code[row], *columns)
    _, example, inverse, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    kind = np.full(len(rows), NONE, np.int32)
    kind[row] = inverse.reshape(-1)
    return kind, example, count


def numbered_shapes(
    shapes: list[Shape | None],
) -> tuple[NDArray[np.int32], ...]:
    """Return the shape at every place as a number, and of each shape numbers of its elements, sizes and last size."""
    number = {shape: place for place, shape in enumerate(dict.fromkeys(shape for shape in shapes if shape is not None))}
    elements: dict[int, int] = {}
    sizes: dict[Shape, int] = {}
    widths: dict[int, int] = {}
    of_elements = [elements.setdefault(prod(shape), len(elements)) for shape in number]
    of_sizes = [sizes.setdefault(tuple(sorted(shape)), len(sizes)) for shape in number]
    at = [NONE if shape is None else number[shape] for shape in shapes]
    above = len(elements) + len(sizes)
    of_widths = [above + widths.setdefault(shape[-1], len(widths)) if len(shape) > 1 else NONE for shape in number]
    columns = at, of_elements, [len(elements) + each for each in of_sizes], of_widths
    return tuple(np.array(column, np.int32) for column in columns)


def read_kind(
    trace: Trace,
    row: int,
    count: int,
    updates: bool,  # noqa: FBT001 - mapped over columns
    within: int,
    forward: int,
) -> OperatorKind:
    """Return the kind of an operator by what else is known of it."""
    name, text = trace.rows.names[trace.rows.name[row]], trace.dims.words[trace.dims.code[row]]
    shapes = tuple(tensors(json.loads(text)))
    rule = next(rule for rule, pattern in RULES if pattern.match(name))
    if rule == LINEAR and not (len(shapes) > 1 and len(shapes[0]) > 1 and shapes[0][-1] == shapes[1][-1]):
        # Some record it as the product that it is made of.
        rule = PRODUCT
    around = trace.rows.parent[row]
    if TAKES_ROWS.match(name) and around >= 0 and LOOKS_UP.match(trace.rows.names[trace.rows.name[around]]):
        rule = LOOKUP
    return OperatorKind(name, text, rule, shapes, sources(rule, shapes), count, updates, within, forward)


def tensors(inputs: Sequence[Any]) -> list[Shape]:
    """Return the shapes in an operator's inputs, those in lists as well; what is no tensor has none."""
    shapes: list[Shape] = []
    for entry in inputs:
        if isinstance(entry, list) and entry:
            if all(type(size) is int for size in entry):
                shapes.append(tuple(entry))
            else:
                shapes += tensors(entry)
    return shapes
