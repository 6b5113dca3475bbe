"""The interval arithmetic of the views against a slow, obvious twin that paints every nanosecond."""

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.corpus.catalog import blank

LAST = 40


class Row(NamedTuple):
    """What matters of a row of `operators`."""

    kind: str
    name: str
    ts: int = 0
    dur: int = 0
    stream: int = 7
    family: str = "other"
    transfer: int | None = None

    @property
    def painted(self) -> set[int]:
        return set(range(self.ts, self.ts + self.dur))

    @property
    def transferring(self) -> set[int]:
        return set(range(self.ts + self.dur - min(self.transfer or 0, self.dur), self.ts + self.dur))


ROWS = st.lists(
    st.builds(
        lambda row, ts, dur, stream, transfer: row._replace(
            ts=ts, dur=dur, stream=stream, transfer=transfer if row.name == "nccl" else None
        ),
        st.sampled_from([Row("kernel", "gemm"), Row("kernel", "nccl", family="communication"), Row("memcpy", "copy")]),
        ts=st.integers(0, LAST),
        dur=st.integers(0, LAST // 2),
        stream=st.sampled_from([7, 20]),
        # More often than not known; of a changed job it may be longer than the kernel.
        transfer=st.one_of(st.integers(0, LAST // 2), st.integers(0, LAST // 2), st.none()),
    ),
    min_size=1,
    max_size=12,
)
MARKS = st.lists(st.integers(0, LAST + LAST // 2), unique=True, max_size=6).map(sorted)


@cache
def database() -> duckdb.DuckDBPyConnection:
    connection = blank()
    connection.execute("SET threads = 1")  # for a dozen rows more of them only cost
    return connection


def insert(into: str, rows: list[tuple[Any, ...]]) -> None:
    """Fill columns of a table of `database`, written as `table(column, ...)`, by one statement."""
    if rows:
        values = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
        database().execute(f"INSERT INTO {into} VALUES {values}", [value for row in rows for value in row])


def ask(sql: str) -> list[tuple[int | None, ...]]:
    return database().execute(sql).fetchall()


def fill(rows: list[Row], steps: list[tuple[int, int]]) -> None:
    marks = [Row("annotation", f"ProfilerStep#{n}", start, end - start, 0) for n, (start, end) in enumerate(steps)]
    database().execute("DELETE FROM operators")
    database().execute("DELETE FROM collectives")
    ordered = [(op_id, *row) for op_id, row in enumerate(sorted([*marks, *rows], key=lambda row: row.ts))]
    insert(
        "operators(trace_id, rank, op_id, kind, name, ts, dur, stream, family)",
        [("t", 0, *row[:-1]) for row in ordered],
    )
    insert(
        "collectives(trace_id, op_id, transfer_ns)",
        [("t", op_id, transfer) for op_id, *_, transfer in ordered if transfer is not None],
    )


def paint(rows: list[Row], *names: str) -> set[int]:
    return {instant for row in rows if row.name in names for instant in row.painted}


@settings(deadline=None, max_examples=30)
@given(rows=ROWS, marks=MARKS, pauses=st.booleans())
def test_lengths_of_unions(rows: list[Row], marks: list[int], *, pauses: bool) -> None:
    steps = list(pairwise(marks))[:: 2 if pauses else 1]
    fill(rows, steps)
    compute, communication, memory = paint(rows, "gemm"), paint(rows, "nccl"), paint(rows, "copy")
    transfer = {instant for row in rows for instant in row.transferring}
    unknown = {instant for row in rows if row.name == "nccl" and row.transfer is None for instant in row.painted}
    busy = compute | communication | memory
    span = max(row.ts + row.dur for row in rows) - min(row.ts for row in rows)
    assert ask("SELECT * EXCLUDE (job, trace_id, rank) FROM gpu_time") == [
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
    whole = (min(row.ts for row in rows), max(row.ts + row.dur for row in rows))
    windows: list[tuple[int | None, tuple[int, int]]] = [*enumerate(steps)] or [(None, whole)]
    assert ask("SELECT * EXCLUDE (job, trace_id, rank) FROM breakdown") == [
        (
            step,
            end - start,
            len((compute - communication) & window),
            len((communication - compute) & window),
            None if unknown & window else len((communication - transfer - compute) & window),
            None if unknown & window else len((transfer - compute) & window),
            len(compute & communication & window),
            len(window - compute - communication),
            len((memory & window) - compute - communication),
            len(window - busy),
        )
        for step, (start, end) in windows
        for window in [set(range(start, end))]
    ]


@settings(deadline=None, max_examples=20)
@given(rows=ROWS)
def test_idle_time_is_the_same_from_every_side(rows: list[Row]) -> None:
    fill(rows, [])
    one = "SELECT coalesce(sum(idle_ns), 0), coalesce(sum(host_wait_ns + kernel_wait_ns + other_ns), 0) FROM "
    (idle,) = ask("SELECT idle_ns FROM gpu_time")
    assert ask(f"{one} idle") == [idle * 2]
    by_stream = {
        stream: (
            max(row.ts + row.dur for row in mine) - min(row.ts for row in mine),
            len({instant for row in mine for instant in row.painted}),
        )
        for stream in (7, 20)
        if (mine := [row for row in rows if row.stream == stream])
    }
    assert ask("SELECT stream, span_ns, busy_ns, idle_ns FROM stream_summary") == [
        (stream, span, busy, span - busy) for stream, (span, busy) in by_stream.items()
    ]
    gaps = ask("SELECT stream, sum(dur)::BIGINT FROM gap GROUP BY stream ORDER BY stream")
    assert gaps == [(stream, span - busy) for stream, (span, busy) in by_stream.items() if span > busy]


@settings(deadline=None, max_examples=20)
@given(rows=ROWS)
def test_milliseconds_hold_all_kernel_time(rows: list[Row]) -> None:
    stretched = [row._replace(ts=row.ts * 100_001, dur=row.dur * 100_003) for row in rows]
    fill(stretched, [])
    kernel_ns = ask("SELECT coalesce(sum(compute_ns + communication_ns - overlap_ns), 0) FROM gpu_time")
    assert ask("SELECT coalesce(sum(busy_ns), 0) FROM sm_utilization") == kernel_ns
    assert ask("SELECT count(*) FROM sm_utilization WHERE busy_pct NOT BETWEEN 0 AND 100") == [(0,)]
