"""GPU time by annotation against a slow, obvious twin that paints every nanosecond."""

from collections import defaultdict
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.test_intervals import database, insert

LAST = 30


class Mark(NamedTuple):
    """An annotation."""

    name: str
    thread: int
    ts: int
    dur: int


class Launched(NamedTuple):
    """A kernel, with the start and the thread of its call."""

    thread: int
    call_ts: int
    ts: int
    dur: int
    device: int


TIMES = st.integers(0, LAST)
MARKS = st.lists(st.builds(Mark, st.sampled_from("ab"), st.integers(1, 2), TIMES, TIMES), max_size=5)
KERNELS = st.lists(
    st.builds(Launched, st.integers(1, 2), TIMES, TIMES, st.integers(0, LAST // 2), st.integers(0, 1)), max_size=8
)


def fill(marks: list[Mark], kernels: list[Launched]) -> None:
    host = [("annotation", mark.name, mark.ts, mark.dur, mark.thread, None, None) for mark in marks]
    calls = [("runtime", "launch", kernel.call_ts, 1, kernel.thread, None, None) for kernel in kernels]
    # A trace numbers its rows in the order in which they start.
    gpu = [
        ("kernel", "k", kernel.ts, kernel.dur, None, kernel.device, len(host) + place)
        for place, kernel in sorted(enumerate(kernels), key=lambda placed: placed[1].ts)
    ]
    database().execute("DELETE FROM operators")
    rows = [("t", 0, op_id, *row, 7) for op_id, row in enumerate([*host, *calls, *gpu])]
    insert("operators(trace_id, rank, op_id, kind, name, ts, dur, thread, device, parent_id, stream)", rows)


def twin(marks: list[Mark], kernels: list[Launched]) -> dict[str, tuple[int, ...]]:
    busy: dict[tuple[int, int], int] = defaultdict(int)
    for kernel in kernels:
        for instant in range(kernel.ts, kernel.ts + kernel.dur):
            busy[kernel.device, instant] += 1
    found: dict[str, tuple[int, ...]] = {}
    for mark in marks:
        inside = [
            kernel
            for kernel in kernels
            if kernel.thread == mark.thread and mark.ts <= kernel.call_ts < mark.ts + mark.dur
        ]
        alone = sum(
            busy[kernel.device, instant] == 1
            for kernel in inside
            for instant in range(kernel.ts, kernel.ts + kernel.dur)
        )
        own = (1, mark.dur, len(inside), sum(kernel.dur for kernel in inside), alone)
        before = found.get(mark.name, (0,) * len(own))
        found[mark.name] = tuple(one + more for one, more in zip(before, own, strict=True))
    return found


@settings(deadline=None, max_examples=30)
@given(marks=MARKS, kernels=KERNELS)
def test_gpu_time_by_annotation(marks: list[Mark], kernels: list[Launched]) -> None:
    fill(marks, kernels)
    rows = database().execute("SELECT * EXCLUDE (job, trace_id, rank) FROM annotation_summary").fetchall()
    assert {name: tuple(figures) for name, *figures in rows} == twin(marks, kernels)
