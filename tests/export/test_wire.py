"""The wire format, against a slow and obvious twin."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lumos_df.export import wire

numbers = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 300), st.sampled_from([1 << 7 * k for k in range(9)])
)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def field(number: int, payload: int | bytes) -> bytes:
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


@given(st.lists(st.none() | numbers), st.integers(1, 1000))
def test_numbers(values: list[int | None], number: int) -> None:
    wanted = [None if value is None else field(number, value) for value in values]
    assert wire.number(number, pa.array(values, pa.int64())).to_pylist() == wanted


@given(st.lists(st.none() | st.booleans()))
def test_booleans(values: list[bool | None]) -> None:
    wanted = [None if value is None else field(27, int(value)) for value in values]
    assert wire.number(27, pa.array(values, pa.bool_())).to_pylist() == wanted


@given(st.lists(st.none() | st.text(max_size=300)))
def test_texts(values: list[str | None]) -> None:
    wanted = [None if value is None else field(2, value.encode()) for value in values]
    assert wire.text(2, pa.array(values, pa.string())).to_pylist() == wanted


@given(st.lists(st.lists(numbers, max_size=5)))
def test_lists_are_packed_and_empty_ones_left_out(values: list[list[int]]) -> None:
    column = pa.array(values, pa.list_(pa.int64()))
    wanted = [field(5, b"".join(map(varint, some))) if some else None for some in values]
    assert wire.packed(5, column.offsets.to_numpy().astype("int64"), column.values.to_numpy()).to_pylist() == wanted


@given(st.lists(st.tuples(st.none() | numbers, st.none() | st.text())))
def test_a_file_is_one_message_behind_another_each_behind_its_length(rows: list[tuple[int | None, str | None]]) -> None:
    columns = (pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows], pa.string()))
    wanted = b""
    for a, b in rows:
        message = (b"" if a is None else field(1, a)) + (b"" if b is None else field(2, b.encode()))
        wanted += varint(len(message)) + message
    assert wire.delimited(wire.message(wire.number(1, columns[0]), wire.text(2, columns[1]))).to_pybytes() == wanted
