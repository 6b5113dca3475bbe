"""Numbers for rows of several columns: the same as the rows, in the same order, whatever their values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lumos_df.graph.packed_keys import dense, packed

SMALL = st.integers(-2, 3)
LARGE = st.sampled_from((-(1 << 63), -1, 0, 1 << 40, (1 << 63) - 1))
"""Three columns of these do not fit into one number side by side."""


def places(rows: list[tuple[int, ...]]) -> list[int]:
    distinct = sorted(set(rows))
    return [distinct.index(row) for row in rows]


@given(st.lists(st.tuples(SMALL | LARGE, SMALL | LARGE, SMALL | LARGE), min_size=1, max_size=12))
def test_packed_numbers_are_the_same_and_in_the_same_order_as_rows(rows: list[tuple[int, int, int]]) -> None:
    key = packed(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    assert key.min() >= 0
    assert places([(number,) for number in key.tolist()]) == places(list(rows))


@given(st.lists(SMALL | LARGE, max_size=12))
def test_dense_numbers_are_places_among_distinct_values(values: list[int]) -> None:
    assert dense(np.array(values, np.int64)).tolist() == places([(value,) for value in values])


def test_columns_may_be_narrow_and_empty() -> None:
    assert packed(np.array([2, 0, 2], np.int8), np.array([True, True, False])).tolist() == [5, 1, 4]
    assert packed(np.empty(0, np.int32), np.empty(0, np.int32)).tolist() == []
