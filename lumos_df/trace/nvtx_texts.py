"""What the texts of NVTX ranges say: operators of PyTorch's `emit_nvtx`."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, CPU_OP
from lumos_df.trace.kernels import nvtx_fields

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
    """Take the texts of ranges apart.

    `emit_nvtx` writes `aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 2]], input_op_ids = [(1,0), (2,0)]`, by what
    it was asked for [PyTorch, torch/csrc/profiler/util.cpp, getNvtxStr].
    """
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets or b"\0" * 4, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(
        np.int64
    )
    characters = np.frombuffer(data or b"", np.uint8)
    name_end, sequence, numbered, sizes_begin, sizes_end = nvtx_fields.fields(characters, places[:-1], places[1:])
    name = _texts(characters, places[:-1], name_end, np.asarray(texts.is_valid()))
    # A name stands in many ranges.
    coded = name.dictionary_encode()
    names, place = pl.Series("name", coded.dictionary, pl.String), coded.indices.fill_null(len(coded.dictionary))
    named, mark, backward = (
        np.append(names.str.contains(pattern).to_numpy(), False)[place.to_numpy()]
        for pattern in (_OPERATOR, _MARK, _BACKWARD)
    )
    return NvtxTexts(
        name=name,
        kind=np.where((numbered | named) & ~mark, CPU_OP, ANNOTATION).astype(np.int8),
        sequence=sequence,
        sizes=_texts(characters, sizes_begin, sizes_end, sizes_begin >= 0),
        backward=backward,
    )


def _texts(
    data: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64], known: NDArray[np.bool_]
) -> pa.Array:
    """Return parts of texts, null where they are not known: there begin is end."""
    cut, offsets = nvtx_fields.cut(data, begin, end)
    valid = pa.array(known).buffers()[1]
    return pa.StringArray.from_buffers(len(begin), pa.py_buffer(offsets), pa.py_buffer(cut), valid)
