"""Tensors that products read, without those that they write to.

Code that torch.compile makes hands a product the tensor for its result (`out=`), which is recorded as one more input.
"""

import json
import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import Rows
from lumos_df.structure.texts import Texts

_READ: Final = (
    (re.compile(r"aten::(?:mm|bmm|_int_mm|_scaled_mm)$"), 2),
    (re.compile(r"aten::(?:addmm|baddbmm|_addmm_activation)$"), 3),
)
"""Products, and how many tensors each reads, first of all its inputs; what scales both is no matter of its size."""


def read_tensors(rows: Rows, dims: Texts, types: Texts) -> tuple[Texts, Texts]:
    """Return the shapes and types of operators' inputs in which products have those alone that they read.

    Args:
        rows: the operators of a trace.
        dims: the shapes of their inputs, as JSON.
        types: the types of these, as JSON.
    """
    for pattern, count in _READ:
        row = np.flatnonzero(rows.named(pattern.match) & (dims.code >= 0))
        dims, types = (_cut(texts, row, count, nothing) for texts, nothing in ((dims, []), (types, "")))
    return dims, types


def _cut(texts: Texts, row: NDArray[np.int64], count: int, nothing: Any) -> Texts:
    """Return the words in which some rows have nothing behind so many entries."""
    used, which = np.unique(texts.code[row], return_inverse=True)
    words = [texts.words[code] if code >= 0 else None for code in used.tolist()]
    cut = [word and _without(word, count, nothing) for word in words]
    if cut == words:
        return texts
    code = texts.code.copy()
    code[row] = np.where(used >= 0, len(texts.words) + np.arange(len(used)), used)[which]
    return Texts(code, [*texts.words, *(word or "" for word in cut)])


def _without(word: str, count: int, nothing: Any) -> str:
    entries = json.loads(word)
    if len(entries) <= count or all(entry == nothing for entry in entries[count:]):
        return word
    return json.dumps([*entries[:count], *[nothing] * (len(entries) - count)])
