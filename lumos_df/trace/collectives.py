"""Which rows are collectives, and what they move.

NCCL's own arguments say it where the profiler recorded them. Otherwise the kernel's name, and the operators around
its launch: `record_param_comms` (whose inputs hold the sequence number) and `nccl:all_reduce` (whose input shapes
give bytes).
"""

import json
import math
import re
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.trace import classify, record, sweep
from lumos_df.trace.derive import Derived
from lumos_df.trace.kineto import KERNEL, NONE, Operators

_NESTING: Final = 4
"""How deep collective operators are nested: `c10d::allreduce_`, `record_param_comms`, `nccl:all_reduce`; and one."""
_STATED: Final = (
    "Collective name",
    "dtype",
    "Process Group Name",
    "Group size",
    "In msg nelems",
    "Out msg nelems",
    # The last two are read apart.
    "Seq",
    "Concrete Inputs",
)
_GATHERS: Final = ("all_gather", "gather")
_SCATTERS: Final = ("reduce_scatter", "scatter")


@dataclass(slots=True)
class Collectives:
    """One entry a collective row; None is null."""

    rows: NDArray[np.int64]
    collective: list[str]
    group: list[str | None]
    group_size: list[int | None]
    seq: list[int]
    seq_evidence: list[str]
    dtype: list[str | None]
    in_bytes: list[int | None]
    out_bytes: list[int | None]


def collectives(ops: Operators, derived: Derived) -> Collectives:
    """Describe every collective row: communication kernels, and the host operators that are collectives."""
    communication = (
        derived.families.index("communication") if "communication" in derived.families else len(derived.families)
    )
    on_gpu = (ops.kind == KERNEL) & (derived.family == communication)
    named = ops.raw.where(lambda text: bool(classify.COMMUNICATION_OPERATOR.match(text)))
    on_host = named[ops.name] & (derived.family == NONE)
    rows = np.flatnonzero(on_gpu | on_host)
    if not len(rows):
        return Collectives(rows, *([] for _ in fields(Collectives)[1:]))
    place = np.full(len(ops), NONE, np.int64)
    place[rows] = np.arange(len(rows))
    outer = sweep.nearest_marked(on_host, derived.parent)[rows]
    around = np.where(outer >= 0, place[outer], NONE)

    known = {key: _stated(ops, rows, key) for key in _STATED}
    name = ops.name[rows].astype(np.int64)  # in int32 the null of these columns would be 0
    known["operator"] = np.where(on_host[rows] & (name != record.COMM_NAME), name, record.NULL)
    for key, column in (("dims", record.OP_DIMS), ("types", record.OP_TYPES)):
        texts = ops.narrow(column)[rows].astype(np.int64)
        known[key] = np.where(on_host[rows] & (texts != record.NULL32), texts, record.NULL)
    inner = np.flatnonzero(around >= 0)
    for _ in range(_NESTING):
        for values in known.values():
            empty = inner[values[inner] == record.NULL]
            values[empty] = values[around[empty]]

    described = ("operator", "dims", "types", *_STATED[:-2])
    keys = np.stack((name, *(known[key] for key in described)))
    distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
    strings = ops.raw.strings
    facts = [_describe(strings, *column) for column in distinct.T.tolist()]
    chosen = inverse.reshape(-1).tolist()
    group = [facts[k].group for k in chosen]
    seq, evidence = _numbers(strings, group, on_gpu[rows], known["Seq"], known["Concrete Inputs"])
    return Collectives(
        rows,
        [facts[k].collective for k in chosen],
        group,
        [facts[k].group_size for k in chosen],
        seq,
        evidence,
        [facts[k].dtype for k in chosen],
        [facts[k].in_bytes for k in chosen],
        [facts[k].out_bytes for k in chosen],
    )


def _stated(ops: Operators, rows: NDArray[np.int64], key: str) -> NDArray[np.int64]:
    """Return the key's value on each of `rows` (ordered), `record.NULL` where it has none."""
    column = np.full(len(rows), record.NULL, np.int64)
    where, values = ops.sparse(key)
    place = np.searchsorted(rows, where)
    place[place == len(rows)] = 0
    hit = rows[place] == where
    column[place[hit]] = values[hit]
    return column


@dataclass(frozen=True, slots=True)
class _Facts:
    collective: str
    group: str | None
    group_size: int | None
    dtype: str | None
    in_bytes: int | None
    out_bytes: int | None


def _describe(strings: list[str], *numbers: int) -> _Facts:
    """Turn one distinct combination of recorded values into what is known of the collective."""
    own, operator, dims, types, stated, stated_type, group, size, elements_in, elements_out = (
        None if number in {record.NULL, NONE} else number for number in numbers
    )
    words = [strings[number] for number in (stated, operator, own) if number is not None]
    collective = next((word for text in words if (word := classify.collective(text)) != "unknown"), "unknown")
    shapes = _shapes(strings, dims, types)
    dtype = classify.dtype(strings[stated_type]) if stated_type is not None else None
    dtype = (
        dtype
        or (shapes[0][1] if shapes else None)
        or (classify.kernel_dtype(strings[own]) if own is not None else None)
    )
    width = classify.dtype_bytes(dtype) if dtype else None
    bytes_in: int | None = None
    bytes_out: int | None = None
    if width is not None and elements_in is not None and elements_out is not None:
        bytes_in, bytes_out = elements_in * width, elements_out * width
    elif shapes:
        bytes_in = sum(elements * classify.dtype_bytes(kind) for elements, kind in shapes)
        bytes_out = _bytes_out(collective, bytes_in, size)
    return _Facts(
        collective,
        strings[group] if group is not None else None,
        schema.within(size, 32),
        dtype,
        schema.within(bytes_in, 64),
        schema.within(bytes_out, 64),
    )


def _bytes_out(collective: str, bytes_in: int, size: int | None) -> int | None:
    if collective in _GATHERS:
        return bytes_in * size if size else None
    if collective in _SCATTERS:
        return bytes_in // size if size else None
    return bytes_in


def _shapes(strings: list[str], dims: int | None, types: int | None) -> list[tuple[int, str]]:
    """Return (elements, type) of every tensor among an operator's inputs, tensor lists opened."""
    if dims is None or types is None:
        return []
    try:
        shapes, kinds = json.loads(strings[dims]), json.loads(strings[types])
    except ValueError:
        return []
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return []
    found: list[tuple[int, str]] = []
    for shape, kind in zip(shapes, kinds, strict=False):
        dtype = classify.dtype(kind) if isinstance(kind, str) else None
        if dtype:
            found.extend((elements, dtype) for elements in _elements(shape))
    return found


def _elements(shape: Any) -> list[int]:
    if not isinstance(shape, list):
        return []
    if any(isinstance(size, list) for size in shape):
        return [elements for part in shape for elements in _elements(part)]
    return [math.prod(size for size in shape if isinstance(size, int))]


def _numbers(
    strings: list[str],
    group: list[str | None],
    on_gpu: NDArray[np.bool_],
    stated: NDArray[np.int64],
    inputs: NDArray[np.int64],
) -> tuple[list[int], list[str]]:
    """Return each collective's number in its group and whether it was recorded.

    `record_param_comms` holds the number as its second input (`"66"`, or `"(66, False)"` with a point-to-point flag).
    What no one recorded is counted in the order of the rows, GPU rows and host rows each for themselves.
    """
    recorded: dict[int, int] = {}
    for number in np.unique(inputs[inputs != record.NULL]).tolist():
        if match := _SEQUENCE_INPUT.match(strings[number]):
            recorded[number] = int(match.group(1))
    from_inputs = np.array([recorded.get(number, record.NULL) for number in inputs.tolist()], np.int64)
    seq = np.where(stated != record.NULL, stated, from_inputs)
    unknown = seq == record.NULL
    _, group_number = np.unique(np.array([name or "" for name in group]), return_inverse=True)
    counted = np.zeros(len(seq), np.int64)
    bucket = 2 * group_number.reshape(-1) + on_gpu
    order = np.argsort(bucket, kind="stable")
    starts = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    counted[order] = np.arange(len(seq)) - np.repeat(starts, np.diff(np.append(starts, len(seq))))
    seq[unknown] = counted[unknown]
    return seq.tolist(), np.where(unknown, "inferred", "recorded").tolist()


_SEQUENCE_INPUT: Final = re.compile(r'\[\s*"[^"]*",\s*"\(?(\d+)')
