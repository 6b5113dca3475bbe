"""Which rows are collectives, and what they move.

NCCL's own arguments say it where the profiler recorded them. Otherwise the kernel's name, and the operators around
its launch: `record_param_comms` (whose inputs hold the sequence number) and `nccl:all_reduce` (whose input shapes
give bytes).
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE, NULL
from lumos_df.schema.collective_kinds import GROWS, UNKNOWN
from lumos_df.schema.dtypes import ElementType, element_type
from lumos_df.trace import classify
from lumos_df.trace.derive import Derived
from lumos_df.trace.kernels import inheritance
from lumos_df.trace.ordered_operators import OrderedOperators
from lumos_df.trace.recording import Attribute

_WRAPPER: Final = "record_param_comms"
"""PyTorch's operator around any collective: its name says nothing of which."""
_DESCRIBING: Final = (
    Attribute.COLLECTIVE,
    Attribute.COLLECTIVE_TYPE,
    Attribute.GROUP,
    Attribute.GROUP_SIZE,
    Attribute.ELEMENTS_IN,
    Attribute.ELEMENTS_OUT,
    Attribute.COLLECTIVE_BYTES,
)
_NUMBERING: Final = (Attribute.COLLECTIVE_NUMBER, Attribute.COLLECTIVE_INPUTS)


class PlacedWords(NamedTuple):
    """A text a row."""

    places: NDArray[np.int32]
    """Place of each row's text in `words`; NONE is unknown."""
    words: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """One entry a collective row; of the numbers NULL is unknown."""

    rows: NDArray[np.int64]
    collective: PlacedWords
    group: PlacedWords
    group_size: NDArray[np.int64]
    seq: NDArray[np.int64]
    seq_evidence: PlacedWords
    dtype: PlacedWords
    in_bytes: NDArray[np.int64]
    out_bytes: NDArray[np.int64]


def collectives(ops: OrderedOperators, derived: Derived) -> Collectives:
    """Describe every collective row: communication kernels, and the host operators that are collectives."""
    strings = ops.recording.strings
    on_gpu = (ops.kind == KERNEL) & (derived.family == COMMUNICATION)
    communicates = ops.recording.where(lambda text: bool(classify.COMMUNICATION_OPERATOR.match(text)))
    stated, _ = ops.attribute(Attribute.COLLECTIVE)
    communicating = communicates.take(ops.name)
    communicating[stated] = True
    on_host = communicating & (derived.family == NONE)
    rows = np.flatnonzero(on_gpu | on_host)
    place = np.full(len(ops), NONE, np.int64)
    place[rows] = np.arange(len(rows))
    outer = inheritance.nearest_marked(on_host, derived.parent)[rows]
    around = np.where(outer >= 0, place[outer], NONE).astype(np.int32)

    name = ops.name[rows].astype(np.int64)  # in int32 the null of these columns would be 0
    is_wrapper = ops.recording.where(lambda text: text == _WRAPPER)[name]
    operator = np.where(on_host[rows] & ~is_wrapper, name, NULL)
    places = ops.order[rows]
    dims, types = (
        np.where(on_host[rows] & (column[places] >= 0), column[places], np.int64(NULL))
        for column in (ops.recording.operators.input_dims, ops.recording.operators.input_types)
    )
    describing = [ops.attribute_at(attribute, rows) for attribute in _DESCRIBING]
    numbering = [ops.attribute_at(attribute, rows) for attribute in _NUMBERING]
    # What an operator says holds for those inside it, until one says otherwise.
    for values in (operator, dims, types, *describing, *numbering):
        says = inheritance.nearest_marked(values != NULL, around)
        empty = (values == NULL) & (says >= 0)
        values[empty] = values[says[empty]]

    distinct, inverse = np.unique(np.stack((name, operator, dims, types, *describing)), axis=1, return_inverse=True)
    facts = [_describe(strings, *column) for column in distinct.T.tolist()]
    fact_of_row = inverse.reshape(-1).astype(np.int64)

    def texts(field: Callable[[_Facts], str | None]) -> PlacedWords:
        place_of: dict[str, int] = {}
        places = [NONE if word is None else place_of.setdefault(word, len(place_of)) for word in map(field, facts)]
        return PlacedWords(np.array(places, np.int32)[fact_of_row], list(place_of))

    def numbers(field: Callable[[_Facts], int | None]) -> NDArray[np.int64]:
        known = [NULL if number is None else number for number in map(field, facts)]
        return np.array(known, np.int64)[fact_of_row]

    numbers_of_groups = {fact.group or "": number for number, fact in enumerate(facts)}
    group = np.array([numbers_of_groups[fact.group or ""] for fact in facts], np.int64)[fact_of_row]
    seq, unknown = _numbers(strings, group, on_gpu[rows], *numbering)
    return Collectives(
        rows=rows,
        collective=texts(lambda fact: fact.collective),
        group=texts(lambda fact: fact.group),
        group_size=numbers(lambda fact: fact.group_size),
        seq=seq,
        seq_evidence=PlacedWords(unknown.astype(np.int32), ["recorded", "inferred"]),
        dtype=texts(lambda fact: fact.dtype),
        in_bytes=numbers(lambda fact: fact.in_bytes),
        out_bytes=numbers(lambda fact: fact.out_bytes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    collective: str
    group: str | None
    group_size: int | None
    dtype: str | None
    in_bytes: int | None
    out_bytes: int | None


def _describe(strings: list[str], *numbers: int) -> _Facts:
    """Turn one distinct combination of recorded values into what is known of the collective."""
    name, operator, dims, types, stated, stated_type, group, size, elements_in, elements_out, message = (
        None if number in {NULL, NONE} else number for number in numbers
    )
    words = [strings[number] for number in (stated, operator, name) if number is not None]
    collective = next((word for text in words if (word := classify.collective(text)) != UNKNOWN), UNKNOWN)
    shapes = _shapes(strings, dims, types)
    dtype = (
        (element_type(strings[stated_type]) if stated_type is not None else None)
        or (shapes[0][1] if shapes else None)
        or (classify.kernel_dtype(strings[name]) if name is not None else None)
    )
    bytes_in: int | None = None
    bytes_out: int | None = None
    if dtype is not None and elements_in is not None and elements_out is not None:
        bytes_in, bytes_out = elements_in * dtype.bytes, elements_out * dtype.bytes
    elif shapes:
        bytes_in = sum(elements * kind.bytes for elements, kind in shapes)
        bytes_out = _bytes_out(collective, bytes_in, size)
    elif message is not None:
        shrinks = GROWS.get(collective, 0) < 0
        bytes_in = message * size if shrinks and size else None if shrinks else message
        bytes_out = message if shrinks else _bytes_out(collective, message, size)
    return _Facts(
        collective=collective,
        group=strings[group] if group is not None else None,
        group_size=schema.within(size, 32),
        dtype=dtype.name if dtype else None,
        in_bytes=schema.within(bytes_in, 64),
        out_bytes=schema.within(bytes_out, 64),
    )


def _bytes_out(collective: str, bytes_in: int, size: int | None) -> int | None:
    grows = GROWS.get(collective, 0)
    if not grows:
        return bytes_in
    if not size:
        return None
    return bytes_in * size if grows > 0 else bytes_in // size


def _shapes(strings: list[str], dims: int | None, types: int | None) -> list[tuple[int, ElementType]]:
    """Return (elements, element type) of every tensor among an operator's inputs, tensor lists opened."""
    if dims is None or types is None:
        return []
    try:
        shapes, kinds = json.loads(strings[dims]), json.loads(strings[types])
    except ValueError:
        return []
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return []
    tensors: list[tuple[int, ElementType]] = []
    for shape, kind in zip(shapes, kinds, strict=False):
        dtype = element_type(kind) if isinstance(kind, str) else None
        if dtype:
            tensors.extend((elements, dtype) for elements in _elements(shape))
    return tensors


def _elements(shape: Any) -> list[int]:
    if not isinstance(shape, list):
        return []
    if any(isinstance(size, list) for size in shape):
        return [elements for part in shape for elements in _elements(part)]
    return [math.prod(size for size in shape if isinstance(size, int))]


def _numbers(
    strings: list[str],
    group: NDArray[np.int64],
    on_gpu: NDArray[np.bool_],
    stated: NDArray[np.int64],
    inputs: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each collective's number in its group, and whether nobody recorded it.

    `record_param_comms` holds the number as its second input (`"66"`, or `"(66, False)"` with a point-to-point flag).
    What nobody recorded is counted in the order of the rows, GPU rows and host rows each for themselves.
    """
    distinct, inverse = np.unique(inputs, return_inverse=True)
    numbers = [_sequence_input(strings, text) for text in distinct.tolist()]
    seq = np.where(stated != NULL, stated, np.array(numbers, np.int64)[inverse.reshape(-1)])
    unknown = seq == NULL
    bucket = 2 * group + on_gpu
    order = np.argsort(bucket, kind="stable")
    starts = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    counted = np.zeros(len(seq), np.int64)
    counted[order] = np.arange(len(seq)) - np.repeat(starts, np.diff(np.append(starts, len(seq))))
    seq[unknown] = counted[unknown]
    return seq, unknown


def _sequence_input(strings: list[str], text: int) -> int:
    match = _SEQUENCE_INPUT.match(strings[text]) if text != NULL else None
    return int(match[1]) if match else NULL


_SEQUENCE_INPUT: Final = re.compile(r'\[\s*"[^"]*",\s*"\(?(\d{1,18})(?!\d)')
