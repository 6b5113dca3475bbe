"""The loops over the host's threads against slow twins that say what they mean."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.graph.simulate import threads
from lumos_df.graph.simulate.forward import UNSET, forward_star
from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME

spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12), st.sampled_from((CPU_OP, RUNTIME))),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)  # the first call compiles
@given(spans)
def test_boundaries_come_in_order_of_time(found: list[tuple[int, int, int, int]]) -> None:
    found.sort(key=lambda span: (span[0], span[1], -span[2]))
    thread, ts, dur, kind = (np.array(column) for column in zip(*found, strict=True))
    bounds = np.searchsorted(thread, np.arange(4))
    boundaries = threads.boundaries(np.arange(len(ts), dtype=np.int32), bounds, ts, ts + dur, kind.astype(np.int8))
    for first, stop in pairwise(bounds.tolist()):
        at, gap, next_start, in_operator = (column[2 * first : 2 * stop] for column in boundaries)
        # (time, beginnings last, inner ends first and outer beginnings first, row)
        order = sorted(
            [(int(ts[row]), True, row, row) for row in range(first, stop)]
            + [(int(ts[row] + dur[row]), False, -row, row) for row in range(first, stop)]
        )
        assert at.tolist() == [time for time, *_ in order]
        for k, (time, begins, _, row) in enumerate(order):
            alone = k > 0 and not begins and order[k - 1][1] and order[k - 1][3] == row
            assert in_operator[k] == (alone and kind[row] == CPU_OP)
            if k:
                assert gap[k] == (0 if alone and kind[row] == RUNTIME else time - order[k - 1][0])
            assert next_start[k] == next((other for _, starts, _, other in order[k:] if starts), NONE)


stop_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 9)), max_size=14)
wake_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 24), st.integers(0, 24)), max_size=14)


@settings(deadline=None)  # the first call compiles
@given(stop_lists, wake_lists)
def test_the_baton_comes_from_the_thread_that_stopped_last(
    lasting: list[tuple[int, int, int]], waking: list[tuple[int, int, int]]
) -> None:
    """Stops: (thread, ns after the one before there, ns that it may explain); wakes: (thread, when, within what)."""
    over = [0, 0, 0, 0]
    stops = []
    for thread, later, explains in lasting:
        begin = over[thread] + later
        over[thread] = begin + explains + 1
        stops.append((begin, -thread, begin + explains))
    wakes = sorted((at, thread, longest) for thread, at, longest in waking)
    stops.sort()
    woken_at, woken, longest = np.array(wakes, np.int64).reshape(-1, 3).T.copy()
    stop, minus_thread, until = np.array(stops, np.int64).reshape(-1, 3).T.copy()
    of, stopped = woken.astype(np.int32), (-minus_thread).astype(np.int32)
    signal, source = threads.passed(woken_at, woken_at - longest, of, stop, until, stopped)
    for k, (now, thread, most) in enumerate(wakes):
        may = [
            (begin, minus) for begin, minus, last in stops if now - most <= begin <= now <= last and -minus != thread
        ]
        begin, minus = max(may, default=(UNSET, -NONE))
        assert (signal[k], source[k]) == (begin, -minus)


@settings(deadline=None)  # the first call compiles
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=14),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 10)), max_size=9),
)
def test_the_last_of_a_threads_times_is_found(times: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    thread, at = np.array(sorted(times), np.int64).reshape(-1, 2).T.copy()
    bounds = np.searchsorted(thread, np.arange(4)).astype(np.int32)
    of, moment = np.array(asked, np.int64).reshape(-1, 2).T.copy()
    place = threads.reached(of.astype(np.int32), moment, bounds, at)
    counts = [sum(t == number and time <= now for t, time in times) for number, now in asked]
    assert (place - bounds[of]).tolist() == counts


atom_lists = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 8), st.integers(0, 9)), min_size=1, max_size=12
)
moment_lists = st.lists(st.tuples(st.integers(NONE, 2), st.integers(-5, 130)), max_size=20)


@settings(deadline=None)  # the first call compiles
@given(atom_lists, moment_lists, st.sampled_from((0, 1000)))
def test_moments_stay_where_the_simulation_is_the_recording(
    atoms: list[tuple[int, int, int, int]], asked: list[tuple[int, int]], by: int
) -> None:
    """With every atom as recorded, or all of them later by the same, each moment is as recorded, or later by that."""
    thread, lead, dur, idle = (np.array(column) for column in zip(*atoms, strict=True))
    ts = np.cumsum(lead + np.concatenate(([0], dur[:-1])))
    bounds, order = forward_star(thread, 3)
    wanted, at = np.array(asked, np.int64).reshape(-1, 2).T
    placed = threads.moments(
        at.copy(),
        wanted.astype(np.int32),
        order,
        bounds,
        np.arange(len(ts), dtype=np.int32),
        ts,
        dur,
        ts + by,
        ts + dur + by,
        np.minimum(idle, lead),
    )
    known = np.isin(wanted, thread)
    assert placed.tolist() == np.where(known, at + by, UNSET).tolist()


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(-2, 33), st.integers(0, 39))
def test_the_atom_before_a_moment_is_found_from_anywhere(begins: list[int], moment: int, near: int) -> None:
    ts = np.sort(np.array(begins))
    atoms = np.arange(len(ts), dtype=np.int32)
    found = threads._last_before(moment, atoms, ts, 0, len(ts), near % len(ts))  # noqa: SLF001  # a loop of its own
    assert found == sum(begin <= moment for begin in begins) - 1
