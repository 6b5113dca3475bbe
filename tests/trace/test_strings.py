"""The string table is a dict from text to number."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lumos_df.trace.json.kernels.interning import FULL, KEY_SLOTS, find, find_key, intern, key_slot
from lumos_df.trace.json.kernels.simd import PADDING
from lumos_df.trace.json.strings import Strings, decode, grow, new_strings

texts = st.text(st.sampled_from("ab\0é"), max_size=3) | st.text(max_size=40) | st.text("x", max_size=40)


def number(text: str, table: Strings, before: bytes, behind: bytes) -> tuple[int, int]:
    """Return what `find` and then `intern` answer for a text between other bytes."""
    raw = text.encode()
    buffer = np.frombuffer(before + raw + behind + bytes(PADDING), np.uint8)
    span = buffer, len(before), len(before) + len(raw), table
    return int(find(*span)), int(intern(*span))


@settings(max_examples=200, deadline=None)
@given(st.lists(texts, max_size=60), st.binary(max_size=9), st.binary(max_size=9))
def test_equals_a_dict_whatever_lies_around_the_text_and_however_it_grows(
    drawn: list[str], before: bytes, behind: bytes
) -> None:
    table, known = new_strings(4, 8), dict[str, int]()
    for text in drawn:
        found, got = number(text, table, before, behind)
        assert found == known.get(text, -1)
        while got == FULL:
            table = grow(table, len(text.encode()))
            _, got = number(text, table, before, behind)
        assert got == known.setdefault(text, len(known))
    assert decode(table) == list(known)


def test_every_length_and_every_place_of_a_difference() -> None:
    words = ["x" * size for size in range(41)]
    words += [f"{'x' * place}y{'x' * (size - place - 1)}" for size in range(1, 41) for place in range(size)]
    table = new_strings(1 << 12)
    assert [number(word, table, b"", b"junk") for word in words] == [(-1, k) for k in range(len(words))]
    assert [number(word, table, b"x", b"x") for word in words] == [(k, k) for k in range(len(words))]


def test_the_beginning_of_a_key_is_not_the_key_though_it_falls_into_its_slot() -> None:
    def place(text: str) -> tuple[NDArray[np.uint8], int, int]:
        return np.frombuffer(text.encode() + bytes(PADDING), np.uint8), 0, len(text)

    key, beginning = next(
        (key, key[:size])
        for key in map("key {}".format, range(10_000))
        for size in range(1, len(key))
        if key_slot(*place(key)) == key_slot(*place(key[:size]))
    )
    table, slots = new_strings(4, 16), np.full(KEY_SLOTS, -1, np.int16)
    slots[key_slot(*place(key))] = intern(*place(key), table)
    assert find_key(*place(key), slots, table) == 0
    assert find_key(*place(beginning), slots, table) == -1


def test_a_full_table_says_so_and_keeps_what_it_has() -> None:
    table = new_strings(8, 16)
    answers = [number(text, table, b"", b"")[1] for text in ("a", "b", "c", "d", "e", "a")]
    assert answers == [0, 1, 2, 3, FULL, 0]
    assert number("x" * 13, new_strings(8, 12), b"", b"")[1] == FULL
    assert decode(grow(table, 0)) == ["a", "b", "c", "d"]
