"""Protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding/) over whole columns.

A column is a pyarrow binary array with the bytes of one field, or of one message, a row; a null is a field that is not
there. The `protobuf` package encodes one message after another: a million nodes took it 6.4 s of processor time, its
own C code and a loop in Python around it; columns take 2.0 s.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_VARINT, _BYTES = 0, 2
_LONGEST: Final = 10
"""Bytes of the longest varint."""


def varints(values: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return (offsets [n + 1], bytes) of n numbers as varints: seven bits a byte, the lowest first."""
    size = np.ones(len(values), np.int64)
    for k in range(1, _LONGEST):
        size += values >= np.uint64(1 << 7 * k)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
    written = np.empty(int(offsets[-1]), np.uint8)
    for k in range(int(size.max(initial=0))):
        long = size > k
        more = np.where(size[long] > k + 1, 0x80, 0)
        written[offsets[:-1][long] + k] = (values[long] >> np.uint64(7 * k) & np.uint64(0x7F)) | more.astype(np.uint64)
    return offsets, written


def number(field: int, values: pa.Array) -> pa.Array:
    """Return a field of integers (also bool, and enumerations); a negative one is its 64-bit two's complement."""
    filled = pc.fill_null(values, False if pa.types.is_boolean(values.type) else 0)
    codes = filled.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return _where(pc.is_valid(values), _join(_tag(field, _VARINT), _column(*varints(codes))))


def text(field: int, values: pa.Array) -> pa.Array:
    """Return a field of strings, bytes or messages."""
    values = values.cast(pa.binary())
    size = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.uint64)
    return pc.binary_join_element_wise(
        _tag(field, _BYTES), _column(*varints(size)), values, b"", null_handling="emit_null"
    )


def packed(field: int, offsets: NDArray[np.int64], values: NDArray[np.int64]) -> pa.Array:
    """Return a repeated field of integers: row i has values[offsets[i]:offsets[i + 1]], and no field without any."""
    starts, written = varints(values.view(np.uint64))
    bounds = starts[offsets]
    return text(
        field, _where(pa.array(np.diff(offsets) > 0), _column(bounds - bounds[0], written[bounds[0] : bounds[-1]]))
    )


def each_once(encode: Callable[[pa.Array], pa.Array], values: pa.Array) -> pa.Array:
    """Return `encode(values)` where many values are alike: every distinct one is encoded once; null stays null."""
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.binary())
    coded = values.dictionary_encode()
    return encode(coded.dictionary).take(coded.indices)


def message(*fields: pa.Array) -> pa.Array:
    """Return messages of these fields; what is null is left out."""
    return _join(*([field for field in fields if field.null_count < len(field)] or fields))


def delimited(messages: pa.Array) -> pa.Buffer:
    """Return messages one after another, each behind its length, as `google.protobuf`'s delimited streams have them."""
    size = pc.binary_length(messages).to_numpy().astype(np.uint64)
    framed = _join(_column(*varints(size)), messages)
    _, bounds, written = framed.buffers()
    low, high = np.frombuffer(bounds, np.int32)[[framed.offset, framed.offset + len(framed)]].tolist()
    return written.slice(low, high - low)


def _tag(field: int, wire_type: int) -> pa.Scalar:
    _, written = varints(np.array([field << 3 | wire_type], np.uint64))
    return pa.scalar(written.tobytes(), pa.binary())


def _column(offsets: NDArray[np.int64], written: NDArray[np.uint8]) -> pa.Array:
    parts = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(written)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, parts)


def _join(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def _where(valid: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(valid, values, pa.scalar(None, pa.binary()))
