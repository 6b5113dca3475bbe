"""Where overlapping slices are drawn, against a slow and obvious twin."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.export.kernels.lanes import depths

Slice = tuple[int, int, int]  # (lane, ts, end)
slices = st.one_of(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 12)), max_size=30),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(0, 300)), min_size=40, max_size=90),
)


def twin(rows: list[Slice]) -> list[int]:
    """Return the first depth of each at which every earlier slice that is still open goes on around it."""
    found: list[int] = []
    for lane, ts, end in rows:
        depth = 0
        while any(
            place == depth and one == lane and ts < until < end
            for (one, _, until), place in zip(rows, found, strict=False)
        ):
            depth += 1
        found.append(depth)
    return found


@settings(max_examples=150, deadline=None)
@given(slices)
def test_depths_equal_their_quadratic_twin(drawn: list[Slice]) -> None:
    rows = sorted(((lane, ts, ts + dur) for lane, ts, dur in drawn), key=lambda row: (row[1], row[1] - row[2]))
    lane, ts, end = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    ts.setflags(write=False)  # as polars gives them: the kernel of the command
    assert depths(lane, ts, end, 3).tolist() == twin(rows)


def test_many_slices_at_once_take_no_longer_each_than_few() -> None:
    count = 200_000  # by looking at each open one, as long as the whole suite
    ts = np.arange(count)
    assert np.array_equal(depths(np.zeros(count, np.int64), ts, ts + 2 * count, 1), ts)


def test_a_lane_with_few_at_once_follows_one_with_many() -> None:
    lane, ts = np.repeat([0, 1], 100), np.tile(np.arange(100), 2)
    end = ts + np.repeat([200, 1], 100)
    assert depths(lane, ts, end, 2).tolist() == [*range(100), *[0] * 100]
