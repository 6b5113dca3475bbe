"""What the texts of NVTX ranges say: operators of PyTorch's `emit_nvtx`."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, CPU_OP, NULL

_FIELDS: Final = r"(?s), (?:seq = -?[0-9]|op_id = [0-9]|sizes = \[|input_op_ids = ).*$"
"""`emit_nvtx` writes `aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 2]], input_op_ids = [(1,0), (2,0)]`, by what
it was asked for [PyTorch, torch/csrc/profiler/util.cpp, getNvtxStr]. A pattern a field takes a fifth of one for all."""
_SEQUENCE: Final = ", seq = (-?[0-9]{1,18})(?:,|$)"
_ID: Final = ", op_id = [0-9]"
_SIZES: Final = r", sizes = (\[.*?\])(?:, input_op_ids = |$)"
_OPERATOR: Final = r"^[A-Za-z_]\w*::\w|^\w+Backward[0-9]*$"
_MARK: Final = r"^(?:ProfilerStep#[0-9]|Optimizer\.|enumerate\(DataLoader\))"
"""Ranges of `record_function` that Kineto calls annotations, too."""
_BACKWARD: Final = r"^autograd::engine::evaluate_function|^\w+Backward[0-9]*$|^torch::autograd::"


class NvtxTexts(NamedTuple):
    """What the texts of n ranges say."""

    name: pa.Array
    """The text without what follows."""
    kind: NDArray[np.int8]
    """`cpu_op` for operators, `annotation` for any other range."""
    sequence: NDArray[np.int64]
    """Autograd's number, NULL where none is said."""
    sizes: pa.Array
    """JSON list of the inputs' shapes, null where they are not said."""
    backward: NDArray[np.bool_]
    """Which are nodes of the backward pass."""


def parts(texts: pa.Array) -> NvtxTexts:
    """Take the texts of ranges apart."""
    whole = pl.Series("text", texts, pl.String)
    name = whole.str.replace(_FIELDS, "")
    sequence = whole.str.extract(_SEQUENCE)
    is_operator = sequence.is_not_null() | whole.str.contains(_ID) | name.str.contains(_OPERATOR)
    is_operator &= ~name.str.contains(_MARK)
    return NvtxTexts(
        name=_arrow(name),
        kind=np.where(is_operator.fill_null(False).to_numpy(), CPU_OP, ANNOTATION).astype(np.int8),
        sequence=sequence.cast(pl.Int64).fill_null(NULL).to_numpy(),
        sizes=_arrow(whole.str.extract(_SIZES)),
        backward=name.str.contains(_BACKWARD).fill_null(False).to_numpy(),
    )


def _arrow(texts: pl.Series) -> pa.Array:
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
