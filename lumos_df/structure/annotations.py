"""Layers, micro-batches and stages that a name states, as frameworks and people write them."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, CPU_OP, NONE
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace

_GAP: Final = r"[ _.:#=\[-]*"
_PATTERNS: Final = {
    "layer": (rf"\b(?:\w*_)?(?:layers?|blocks?){_GAP}(\d+)\b",),
    # torch.distributed.pipelining: `Forward 3` in GPipe and 1F1B, `PP:0F3` (stage, action, micro-batch) in the others.
    "micro_batch": (
        rf"\bmicro[ _-]?batch{_GAP}(\d+)\b",
        rf"\bmb{_GAP}(\d+)\b",
        r"^(?:Forward|Backward) (\d+)$",
        r"^PP:\d+[A-Z_]+(\d+)",
    ),
    "stage": (rf"\b(?:pipeline[ _-])?stage{_GAP}(\d+)\b", r"^PP:(\d+)[A-Z_]+\d+"),
}
_DIGITS: Final = 6
"""Longer numbers are addresses and the like."""


def stated(name: str, what: str) -> int:
    """Return the number of a layer, micro_batch or stage that an annotation's name states, NONE where it does not."""
    for pattern in _PATTERNS[what]:
        number = re.search(pattern, name, re.IGNORECASE if "PP" not in pattern else 0)
        if number and len(number[1]) <= _DIGITS:
            return int(number[1])
    return NONE


def of_rows(trace: Trace, what: str) -> NDArray[np.int32]:
    """Return what the annotations around every row, or around its launch, state; NONE where none does [n]."""
    rows = trace.rows
    # record_function makes an annotation, and in older versions a CPU operator.
    spoken = np.isin(rows.kind, (ANNOTATION, CPU_OP)) & (rows.thread >= 0)
    numbers = _numbers(rows.names, what)
    itself = np.where(spoken, np.append(numbers, NONE)[rows.name], NONE).astype(np.int32)
    if not (itself >= 0).any():
        return itself
    value: NDArray[np.int32] = inherit(itself, rows.parent, rows.thread)
    return value


def _numbers(names: Sequence[str], what: str) -> NDArray[np.int32]:
    return np.array([stated(name, what) if "::" not in name else NONE for name in names], np.int32)
