"""The interval arithmetic of the views against a slow, obvious twin that paints every nanosecond."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumos_df.catalog import blank

LAST = 40


class Row(NamedTuple):
    """A GPU row: its class, start, duration and stream."""

    kind: str
    name: str
    ts: int
    dur: int
    stream: int

    @property
    def painted(self) -> set[int]:
        return set(range(self.ts, self.ts + self.dur))


ROWS = st.lists(
    st.builds(
        lambda what, ts, dur, stream: Row(*what, ts, dur, stream),
        st.sampled_from([("kernel", "gemm"), ("kernel", "nccl"), ("memcpy", "copy")]),
        st.integers(0, LAST),
        st.integers(0, LAST // 2),
        st.sampled_from([7, 20]),
    ),
    min_size=1,
    max_size=12,
)
MARKS = st.lists(st.integers(0, LAST + LAST // 2), unique=True, max_size=6).map(sorted)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with blank() as connection:
        yield connection


def fill(database: duckdb.DuckDBPyConnection, rows: list[Row], steps: list[tuple[int, int]]) -> None:
    marks = [("annotation", f"ProfilerStep#{n}", start, end - start, None) for n, (start, end) in enumerate(steps)]
    database.execute("DELETE FROM operators")
    for op_id, row in enumerate(sorted([*marks, *rows], key=lambda row: row[2])):
        database.execute(
            "INSERT INTO operators(trace_id, rank, op_id, kind, name, ts, dur, stream) VALUES ('t', 0, ?, ?, ?, ?, ?, ?)",
            [op_id, *row],
        )


def paint(rows: list[Row], *names: str) -> set[int]:
    return {instant for row in rows if row.name in names for instant in row.painted}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(rows=ROWS, marks=MARKS)
def test_lengths_of_unions(database: duckdb.DuckDBPyConnection, rows: list[Row], marks: list[int]) -> None:
    steps = list(pairwise(marks))[::2] if len(marks) > 3 else list(pairwise(marks))  # with pauses between, or without
    fill(database, rows, steps)
    compute, communication, memory = paint(rows, "gemm"), paint(rows, "nccl"), paint(rows, "copy")
    busy = compute | communication | memory
    span = max(row.ts + row.dur for row in rows) - min(row.ts for row in rows)
    assert database.execute("SELECT * EXCLUDE (trace_id, rank) FROM gpu_time").fetchall() == [
        (
            len(rows),
            span,
            len(busy),
            span - len(busy),
            len(compute),
            len(communication),
            len(memory),
            len(compute & communication),
            len(communication - compute),
        )
    ]
    windows = dict(enumerate(steps)) or {
        None: (min(row.ts for row in rows), max(row.ts + row.dur for row in rows)),
    }
    assert database.execute("SELECT * EXCLUDE (trace_id, rank) FROM breakdown").fetchall() == [
        (
            step,
            end - start,
            len((compute - communication) & window),
            len((communication - compute) & window),
            len(compute & communication & window),
            len(window - compute - communication),
            len((memory & window) - compute - communication),
            len(window - busy),
        )
        for step, (start, end) in windows.items()
        for window in [set(range(start, end))]
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(rows=ROWS)
def test_idle_time_is_the_same_from_every_side(database: duckdb.DuckDBPyConnection, rows: list[Row]) -> None:
    fill(database, rows, [])
    one = "SELECT coalesce(sum(idle_ns), 0), coalesce(sum(host_wait_ns + kernel_wait_ns + other_ns), 0) FROM "
    (idle,) = database.execute("SELECT idle_ns FROM gpu_time").fetchall()
    assert database.execute(f"{one} idle").fetchall() == [idle * 2]
    by_stream = {
        stream: (
            max(row.ts + row.dur for row in mine) - min(row.ts for row in mine),
            len({instant for row in mine for instant in row.painted}),
        )
        for stream in (7, 20)
        if (mine := [row for row in rows if row.stream == stream])
    }
    assert database.execute("SELECT stream, span_ns, busy_ns, idle_ns FROM stream_summary").fetchall() == [
        (stream, span, busy, span - busy) for stream, (span, busy) in by_stream.items()
    ]
    gaps = database.execute("SELECT stream, sum(dur)::BIGINT FROM gap GROUP BY stream ORDER BY stream").fetchall()
    assert gaps == [(stream, span - busy) for stream, (span, busy) in by_stream.items() if span > busy]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@given(rows=ROWS)
def test_milliseconds_hold_all_kernel_time(database: duckdb.DuckDBPyConnection, rows: list[Row]) -> None:
    stretched = [row._replace(ts=row.ts * 100_001, dur=row.dur * 100_003) for row in rows]
    fill(database, stretched, [])
    (kernel_ns,) = database.execute(
        "SELECT coalesce(sum(compute_ns + communication_ns - overlap_ns), 0) FROM gpu_time"
    ).fetchall()
    assert database.execute("SELECT coalesce(sum(busy_ns), 0) FROM sm_utilization").fetchall() == [kernel_ns]
    assert database.execute("SELECT count(*) FROM sm_utilization WHERE busy_pct NOT BETWEEN 0 AND 100").fetchall() == [
        (0,)
    ]
