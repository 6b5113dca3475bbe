"""Recorded sizes and types that do not read: unknown, and counted, before anything is derived from them."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lumos_df.base.units import format_count
from lumos_df.schema.codes import KERNEL, NONE
from lumos_df.trace.ordered_operators import OrderedOperators

_MOST_ELEMENTS: Final = (1 << 63) - 1
"""PyTorch counts the elements of a tensor in int64."""
_SHOWN: Final = 60


def without_malformed(ops: OrderedOperators) -> tuple[OrderedOperators, list[str]]:
    """Return the operators with null for what does not read, and a warning for each key of which there is any.

    These are the shapes and types of inputs, and the grid and block of kernels. The raw args keep them. An operator
    without a name has an empty one.
    """
    recording = ops.recording
    mended: dict[str, Any] = {}
    warnings = []
    strings = recording.strings
    nameless = int(np.count_nonzero(ops.name < 0))
    if nameless:
        ops = replace(ops, name=np.where(ops.name < 0, np.int32(len(strings)), ops.name))
        strings = [*strings, ""]
        warnings.append(f"{format_count(nameless, 'operator')} without a name")
    kernels = ops.order[ops.is_kind(KERNEL)]
    every = slice(None) if ops.rank.events is None else ops.order
    for name, (key, of_kernels, is_well_formed) in _COLUMNS.items():
        texts = getattr(recording.operators, name)
        used = recording.used(texts[kernels if of_kernels else every])
        bad = [text for text in used.tolist() if not _reads(recording.strings[text], is_well_formed)]
        if bad:
            places = kernels if of_kernels else ops.order
            malformed = places[np.isin(texts[places], bad)]
            mended[name] = texts.copy()
            mended[name][malformed] = NONE
            shown = " ".join(recording.strings[bad[0]][:_SHOWN].split())
            count = format_count(len(malformed), "operator")
            warnings.append(f"malformed '{key}' of {count} taken as unknown: {shown}")
    if not warnings:
        return ops, []
    operators = replace(recording.operators, **mended)
    return replace(ops, recording=replace(recording, strings=strings, operators=operators)), warnings


def _reads(text: str, is_well_formed: Callable[[Any], bool]) -> bool:
    try:
        return is_well_formed(json.loads(text))
    except (ValueError, RecursionError):
        return False


def _sizes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(type(size) is int and size >= 0 for size in value)
        and math.prod(value) <= _MOST_ELEMENTS
    )


def _shapes(value: Any) -> bool:
    """Whether it lists for each input a tensor's sizes, or nothing; for a list of tensors, such a list."""
    return isinstance(value, list) and all(isinstance(part, list) and (_sizes(part) or _shapes(part)) for part in value)


def _types(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


_COLUMNS: Final[dict[str, tuple[str, bool, Callable[[Any], bool]]]] = {
    "input_dims": ("Input Dims", False, _shapes),
    "input_types": ("Input type", False, _types),
    # Operators that Triton made state a grid, too, in its own words: grid(4096,).
    "grid": ("grid", True, _sizes),
    "block": ("block", True, _sizes),
}
"""Of each column the key of the args, whether it is one of kernels alone, and what reads."""
