"""Embedding tables of a recommender: how many a rank has, how large they are, and the dense parameters beside them."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from lumos_df.base.units import format_count
from lumos_df.schema.codes import CPU_OP, FORWARD
from lumos_df.schema.dtypes import element_type
from lumos_df.structure.facts import Fact, unknown
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.structure.parallelism import collective_rows
from lumos_df.structure.shapes import Shape

_BATCHED: Final = re.compile(r"fbgemm::\w*embedding\w*lookup\w*function")
"""FBGEMM's lookups in several tables, which lie one behind the other in one tensor."""
_SINGLE: Final = re.compile(r"aten::_?embedding_bag$")
_GRADIENT: Final = re.compile(r"CppNode<Split(?:No\w+)?LookupFunction")


def facts(trace: Trace, structure: Structure) -> dict[str, Fact]:
    """Return what is said of a rank's tables, nothing of a model that is no recommender.

    Returns:
        `tables`, `table_params`, `embedding_dim`: those that one rank looks up in, all their elements, and what
        a row has of them; `dense_params`: what the ranks reduce together.
    """
    if structure.kind != "recommender":
        return {}
    steps = max(1, len(np.unique(trace.rows.step[trace.rows.step >= 0])))
    return {**_tables(trace, structure, steps), "dense_params": _dense(trace, steps)}


def _tables(trace: Trace, structure: Structure, steps: int) -> dict[str, Fact]:
    looked_up: Counter[tuple[int, int, int]] = Counter()
    for name, shapes, count in _operators(trace, structure.phase == FORWARD):
        if (told := _told(name, shapes)) is not None:
            looked_up[told] += count
    if not looked_up:
        none = unknown("no lookup in a table records shapes: profile with PyTorch's record_shapes=True")
        return dict.fromkeys(("tables", "table_params", "embedding_dim"), none)
    # Groups of tables that are alike are looked up several times a step.
    times = {told: max(1, round(count / steps)) for told, count in looked_up.items()}
    tables = sum(count * number for (number, _, _), count in times.items())
    elements = sum(count * size for (_, size, _), count in times.items())
    how = f"shapes of {format_count(sum(times.values()), 'lookup')} a step"
    return {
        "tables": Fact(tables, "shape", how),
        "table_params": Fact(elements, "shape", how),
        "embedding_dim": _width(trace, {width for _, _, width in times if width}, tables, steps),
    }


def _width(trace: Trace, told: set[int], tables: int, steps: int) -> Fact:
    """Return the elements of a row: as weights have them, else those of the gradients of all tables together."""
    if len(told) == 1:
        return Fact(told.pop(), "shape", "columns of the tables")
    everywhere = np.ones(len(trace), np.bool_)
    together = sum(
        count * shapes[0][1]
        for name, shapes, count in _operators(trace, everywhere)
        if _GRADIENT.search(name) and shapes and len(shapes[0]) == 2
    )
    if not together or together % (tables * steps):
        return unknown(f"tables are of different widths, {together // steps} elements together")
    how = f"gradients of {together // steps} elements a sample, of {format_count(tables, 'table')}"
    return Fact(together // steps // tables, "shape", how)


def _operators(
    trace: Trace, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Iterator[tuple[str, list[Shape], int]]:
    """Give name, shapes of tensors and count of the kinds of operators that are kept, of nested lookups the outer."""
    rows = trace.rows
    looks_up = rows.named(_SINGLE.match)
    inner = looks_up & (rows.parent >= 0) & looks_up[rows.parent]
    row = np.flatnonzero((rows.kind == CPU_OP) & (trace.dims.code >= 0) & kept & ~inner)
    kinds, count = np.unique(np.stack((rows.name[row], trace.dims.code[row])), axis=1, return_counts=True)
    for (name, dims), times in zip(kinds.T.tolist(), count.tolist(), strict=True):
        text = rows.names[name]
        if _BATCHED.match(text) or _SINGLE.match(text) or _GRADIENT.search(text):
            inputs = json.loads(trace.dims.words[dims])
            yield text, [tuple(shape) for shape in inputs if shape and all(type(size) is int for size in shape)], times


def _told(name: str, shapes: list[Shape]) -> tuple[int, int, int] | None:
    """Return tables, elements and width (0: unknown) of one lookup, None where its shapes tell nothing."""
    if _SINGLE.match(name) and shapes and len(shapes[0]) == 2:
        return 1, shapes[0][0] * shapes[0][1], shapes[0][1]
    sizes = [shape[0] for shape in shapes if len(shape) == 1] if _BATCHED.match(name) else []
    for place, (size, following) in enumerate(pairwise(sizes)):
        # Where each table begins, and then where its columns begin and end.
        if size > 0 and following == size + 1:
            return size, max(sizes[: place + 1]), 0
    return None


def _dense(trace: Trace, steps: int) -> Fact:
    rows = trace.rows
    row = collective_rows(trace)
    reduced = row[rows.of_collective(("all_reduce",))[row]]
    reduced = reduced[rows.in_bytes[reduced] > 0]
    kinds = [element_type(trace.dtype.words[code]) for code in trace.dtype.code[reduced].tolist() if code >= 0]
    if not len(reduced) or len(kinds) < len(reduced) or None in kinds:
        return unknown("no all-reduce tells its bytes and its type")
    elements = sum(
        int(size / kind.bytes) for size, kind in zip(rows.in_bytes[reduced].tolist(), kinds, strict=True) if kind
    )
    how = f"elements of {format_count(len(reduced), 'all-reduce')} in {format_count(steps, 'step')}"
    return Fact(elements // steps, "group", how)
