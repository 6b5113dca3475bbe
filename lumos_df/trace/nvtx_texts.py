"""What the texts of NVTX ranges say: operators of PyTorch's `emit_nvtx`."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, CPU_OP, NULL

_FIELDS: Final = r"(?s), (?:seq = -?[0-9]|op_id = [0-9]|sizes = \[|input_op_ids = ).*$"
"""`emit_nvtx` writes `aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 2]], input_op_ids = [(1,0), (2,0)]`, by what
it was asked for [PyTorch, torch/csrc/profiler/util.cpp, getNvtxStr]. A pattern a field takes a fifth of one for all,
and one that has to find the end of the sizes more than all others."""
_SEQUENCE: Final = ", seq = (-?[0-9]{1,18})(?:,|$)"
_ID: Final = ", op_id = [0-9]"
_SIZES: Final = ", sizes = "
_INPUTS: Final = ", input_op_ids = "
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
    front, rest = _split(pl.Series("text", texts, pl.String), _SIZES)
    sequence = front.str.extract(_SEQUENCE)
    numbered = sequence.is_not_null() | front.str.contains(_ID).fill_null(False)
    name = _arrow(front.str.replace(_FIELDS, ""))
    # A name stands in many ranges.
    coded = name.dictionary_encode()
    names, place = pl.Series("name", coded.dictionary, pl.String), coded.indices.fill_null(len(coded.dictionary))
    named, mark, backward = (
        np.append(names.str.contains(pattern).to_numpy(), False)[place.to_numpy()]
        for pattern in (_OPERATOR, _MARK, _BACKWARD)
    )
    return NvtxTexts(
        name=name,
        kind=np.where((numbered.to_numpy() | named) & ~mark, CPU_OP, ANNOTATION).astype(np.int8),
        sequence=sequence.cast(pl.Int64).fill_null(NULL).to_numpy(),
        sizes=_arrow(_split(rest, _INPUTS)[0]),
        backward=backward,
    )


def _split(texts: pl.Series, at: str) -> tuple[pl.Series, pl.Series]:
    """Return what stands before and behind the first of a text, null behind where it is not there."""
    before, behind = texts.str.splitn(at, 2).struct.unnest()
    return before, behind


def _arrow(texts: pl.Series) -> pa.Array:
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
