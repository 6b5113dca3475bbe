"""Which GPU rows were issued before the recording began, of literal streams and against a slow, obvious count."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lumos_df.graph.issued_before import before_first_issued


def early(stream: list[int], known: list[int]) -> list[int]:
    told: list[int] = before_first_issued(np.array(stream, np.int32), np.array(known, bool)).astype(int).tolist()
    return told


def counted(stream: list[int], known: list[int]) -> list[int]:
    """Say so stream by stream."""
    told = [0] * len(stream)
    for number in set(stream):
        rows = [place for place, each in enumerate(stream) if each == number]
        first = next((turn for turn, place in enumerate(rows) if known[place]), len(rows))
        later = [known[place] for place in rows[first:]]
        if 2 * sum(later) > len(later):
            for place in rows[:first]:
                told[place] = 1
    return told


def test_rows_in_front_of_the_first_launched_one_of_their_stream_are_early() -> None:
    assert early([7, 7, 9, 7, 9, 7], [0, 0, 1, 1, 0, 1]) == [1, 1, 0, 0, 0, 0]


def test_a_stream_of_which_few_launches_were_recorded_says_nothing() -> None:
    assert early([7, 7, 7, 7], [0, 1, 0, 0]) == [0, 0, 0, 0]
    assert early([7, 7, 9], [0, 0, 1]) == [0, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12))
def test_it_is_as_counted_stream_by_stream(rows: list[tuple[int, int]]) -> None:
    stream, known = [number for number, _ in rows], [each for _, each in rows]
    assert early(stream, known) == counted(stream, known)
