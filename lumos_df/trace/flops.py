"""Floating-point operations of host operators, from their input shapes.

A multiply and an add are two. Only leaves are counted (`aten::mm`, not the `aten::linear` around it), so that a sum
over operators counts nothing twice; attention is counted in full, as if not causal: forward 4 b h s t d
[Korthikanti 2022, appendix A].
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.schema.codes import CPU_OP, NULL
from lumos_df.trace.ordered_operators import OrderedOperators

Shapes = list[Any]


def _product(a: list[int], b: list[int]) -> int:
    """[..., m, k] by [..., k, n]."""
    return 2 * math.prod(a) * b[-1]


def _attention(query: list[int], key: list[int]) -> int:
    """[b, heads, s, d] by [b, heads, t, d]: two products of s t d."""
    return 4 * math.prod(query[:-1]) * key[-2] * query[-1]


OPERATORS: Final[Mapping[str, Callable[[Shapes], int]]] = {
    "aten::mm": lambda x: _product(x[0], x[1]),
    "aten::addmm": lambda x: _product(x[1], x[2]),
    "aten::_addmm_activation": lambda x: _product(x[1], x[2]),
    "aten::bmm": lambda x: _product(x[0], x[1]),
    "aten::baddbmm": lambda x: _product(x[1], x[2]),
    "aten::_scaled_mm": lambda x: _product(x[0], x[1]),
    "aten::_scaled_dot_product_flash_attention": lambda x: _attention(x[0], x[1]),
    "aten::_scaled_dot_product_efficient_attention": lambda x: _attention(x[0], x[1]),
    "aten::_scaled_dot_product_cudnn_attention": lambda x: _attention(x[0], x[1]),
    # Backward recomputes the scores and makes four more products: 2.5 times the forward.
    "aten::_scaled_dot_product_flash_attention_backward": lambda x: 5 * _attention(x[1], x[2]) // 2,
    "aten::_scaled_dot_product_efficient_attention_backward": lambda x: 5 * _attention(x[1], x[2]) // 2,
    "aten::_scaled_dot_product_cudnn_attention_backward": lambda x: 5 * _attention(x[1], x[2]) // 2,
}
"""Operators whose operations are known from their shapes, by name."""


def flops(ops: OrderedOperators) -> NDArray[np.int64]:
    """Return the operations of each row, NULL where they are not known; int64 [n]."""
    column = np.full(len(ops), NULL, np.int64)
    strings = ops.recording.strings
    counted = ops.recording.where(lambda text: text in OPERATORS)
    rows = np.flatnonzero((ops.kind == CPU_OP) & counted.take(ops.name))
    dims = ops.recording.operators.input_dims[ops.order[rows]]
    rows, dims = rows[dims >= 0], dims[dims >= 0]
    if not len(rows):
        return column
    distinct, inverse = np.unique(ops.name[rows].astype(np.int64) << 32 | dims, return_inverse=True)
    counts = [count(strings[pair >> 32], strings[pair & 0xFFFFFFFF]) for pair in distinct.tolist()]
    column[rows] = np.array([NULL if known is None else known for known in counts], np.int64)[inverse.reshape(-1)]
    return column


def count(name: str, shapes: str) -> int | None:
    """Return the operations of one operator of `OPERATORS`, from the JSON list of its inputs' shapes.

    None where they do not fit its signature, or would not fit a column.
    """
    try:
        return schema.within(OPERATORS[name](json.loads(shapes)), 64)
    except (ValueError, IndexError, TypeError):
        return None
