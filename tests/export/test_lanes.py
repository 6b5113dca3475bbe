"""Where overlapping slices are drawn, against a slow and obvious twin."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.export.kernels.lanes import depths

Slice = tuple[int, int, int]  # (lane, ts, end)
slices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 12)), max_size=30)


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


@settings(max_examples=500, deadline=None)
@given(slices)
def test_depths_equal_their_quadratic_twin(drawn: list[Slice]) -> None:
    rows = sorted(((lane, ts, ts + dur) for lane, ts, dur in drawn), key=lambda row: (row[1], row[1] - row[2]))
    lane, ts, end = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    assert depths(lane, ts, end, 3).tolist() == twin(rows)


def test_more_slices_at_once_than_there_was_room_for() -> None:
    ts = np.arange(100)
    assert depths(np.zeros(100, np.int64), ts, ts + 200, 1).tolist() == list(range(100))
