"""Enclosing rows and the order of ties, against slow and obvious twins."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.trace.kernels.intervals import enclosing, lanes, order_ties, time_beneath

times = st.integers(0, 12)
spans = st.lists(st.tuples(times, times, st.integers(-1, 2)), max_size=25)  # (ts, dur, track)


def ordered(drawn: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return sorted(drawn, key=lambda row: (row[0], -row[1]))


def twin(rows: list[tuple[int, int, int]], tolerance: int) -> list[int]:
    """Return for each row the last earlier one of its track that is still open when it starts and outlasts it.

    An empty row is open for another empty row at the same point only.
    """

    def encloses(outer: tuple[int, int, int], inner: tuple[int, int, int]) -> bool:
        (start, dur, track), (ts, length, own) = outer, inner
        opened = start + dur > ts or (start == ts and dur == length == 0)
        return track == own >= 0 and opened and start + dur + tolerance >= ts + length

    return [max((j for j in range(k) if encloses(rows[j], row)), default=-1) for k, row in enumerate(rows)]


@settings(max_examples=500, deadline=None)
@given(spans, st.sampled_from([0, 1, 3]))
def test_enclosing_equals_its_quadratic_twin(drawn: list[tuple[int, int, int]], tolerance: int) -> None:
    rows = ordered(drawn)
    ts, dur, track = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    assert enclosing(ts, dur, track.astype(np.int32), 3, tolerance).tolist() == twin(rows, tolerance)


@settings(max_examples=300, deadline=None)
@given(spans, st.sampled_from([0, 3]), st.randoms())
def test_the_time_beneath_a_row_is_each_instant_of_it_in_which_a_row_beneath_ran(
    drawn: list[tuple[int, int, int]], tolerance: int, random: Random
) -> None:
    rows = ordered(drawn)
    parent = twin(rows, tolerance)
    counts = [random.random() < 0.8 for _ in rows]

    def instants(row: int) -> set[int]:
        return set(range(rows[row][0], rows[row][0] + rows[row][1]))

    expected = [
        len(instants(k) & set().union(*(instants(j) for j, above in enumerate(parent) if above == k and counts[j])))
        for k in range(len(rows))
    ]
    ts, dur, _ = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    found = time_beneath(ts, dur, np.array(parent, np.int32), np.array(counts, np.bool_))
    assert found.tolist() == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=200))
def test_ties_are_put_in_order_of_falling_duration_and_else_stay(drawn: list[tuple[int, int]]) -> None:
    ts, dur = np.array(drawn, np.int64).reshape(-1, 2).T.copy()
    order = np.argsort(ts, kind="stable")
    order_ties(order, ts, dur)
    assert order.tolist() == sorted(range(len(drawn)), key=lambda k: (drawn[k][0], -drawn[k][1]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(times, times), max_size=25))
def test_rows_of_a_lane_do_not_overlap_and_no_lane_is_without_need(drawn: list[tuple[int, int]]) -> None:
    rows = sorted(drawn)
    ts, dur = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    of_rows = list(zip(rows, lanes(ts, dur).tolist(), strict=True))
    for place, ((start, _), lane) in enumerate(of_rows):
        open_lanes = {other for (ts, dur), other in of_rows[:place] if ts + dur > start}
        assert lane == min(set(range(len(rows))) - open_lanes)
