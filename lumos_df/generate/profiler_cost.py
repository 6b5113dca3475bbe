"""What the profiler itself took of the host's time between the calls of a recorded step.

`lumos-df capture` times steps without the profiler, too. By how much a recorded one is longer is what its rows cost,
each as much as another: what is recorded of one (mostly its inputs) is written down before its start is noted. So the
cost of an operator inside a call is in the call, and missing where the call runs without a profiler; that of a wrapper
and of the call itself is in the gap before it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.generate.recorded_rows import RecordedRows

if TYPE_CHECKING:
    import duckdb

_WRITTEN_DOWN = ("cpu_op", "annotation", "runtime")
"""Kinds of rows of the host that a step would not stop for without the profiler."""


@dataclass(frozen=True, slots=True)
class ProfilerCost:
    """Of one rank, ns."""

    unprofiled_step_ns: int | None
    """A step without the profiler; None where it was not recorded."""
    in_gap_ns: list[int]
    """In the gap before each call."""
    in_last_gap_ns: int


def profiler_cost(
    connection: "duckdb.DuckDBPyConnection",
    trace_id: str,
    rows: RecordedRows,
    calls: pl.DataFrame,
    gap_ns: pl.Series,
) -> ProfilerCost:
    """Return what the profiler took before each call of a step; nothing where steps without it were not timed.

    Args:
        connection: to the corpus.
        trace_id: of the rank.
        rows: of the step.
        calls: those of `replayed_calls`, by their start.
        gap_ns: of the step itself, in the same order.
    """
    found = connection.execute(
        "SELECT profiled_ns, unprofiled_ns FROM profiling_overhead WHERE trace_id = $1", [trace_id]
    ).fetchall()
    profiled_ns, unprofiled_ns = found[0] if found else (None, None)
    if unprofiled_ns is None or not len(calls):
        return ProfilerCost(unprofiled_ns, [0] * len(calls), 0)
    written = rows.frame.filter(pl.col("kind").is_in(_WRITTEN_DOWN), pl.col("thread").is_in(calls["thread"].implode()))
    longer_ns = max(0, (profiled_ns or rows.end_ns - rows.start_ns) - unprofiled_ns)
    each_ns = longer_ns / max(1, len(written))
    # The call itself is one of them, and begins where its gap ends.
    begun = _starts(written, calls["thread"], calls["ts"]) - _starts(written, calls["thread"], calls["ts"] - gap_ns)
    last = calls.sort("end").tail(1)
    behind = written.filter(pl.col("thread") == last["thread"][0], pl.col("ts") >= last["end"][0])
    return ProfilerCost(
        unprofiled_ns, np.rint((begun + 1) * each_ns).astype(np.int64).tolist(), round(len(behind) * each_ns)
    )


def _starts(written: pl.DataFrame, thread: pl.Series, moment: pl.Series) -> NDArray[np.int64]:
    """Return how many rows of a thread begin before a moment, for each pair."""
    asked = pl.DataFrame({"thread": thread, "moment": moment}).with_row_index("place")
    seen = pl.int_range(1, pl.len() + 1).over("thread").alias("seen")
    counted = written.select("thread", "ts").sort("ts").with_columns(seen)
    joined = asked.sort("moment").join_asof(
        counted, left_on="moment", right_on="ts", by="thread", allow_exact_matches=False, check_sortedness=False
    )
    return joined.sort("place")["seen"].fill_null(0).to_numpy()
