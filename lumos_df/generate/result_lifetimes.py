"""How long the result of each call lives, by what the allocator of the host recorded.

A result that is let go at once gives its memory to the next call, which then finds it in the caches and mapped: the
recorded step, which keeps what its backward pass reads, had neither.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import duckdb

_TAKEN: Final = """
SELECT ts, thread, coalesce(released, $end) AS released
FROM (
  SELECT ts, thread, change_bytes, lead(ts) OVER (PARTITION BY address ORDER BY ts, event) AS released
  FROM memory_events WHERE trace_id = $trace AND device_type = 'cpu' AND address IS NOT NULL
)
WHERE change_bytes > 0 AND ts >= $start AND ts < $end
"""


def releases(
    connection: "duckdb.DuckDBPyConnection", trace_id: str, calls: pl.DataFrame, start_ns: int, end_ns: int
) -> pl.Series:
    """Return the calls whose results are let go behind each call; empty lists where no allocations were recorded.

    A result lives until the last block is released that was taken during its call and not released in it. One that
    outlives the step is let go where the step after released it: at the same place of the next repetition.

    Args:
        connection: to the corpus.
        trace_id: of the rank.
        calls: those of `replayed_calls`, by their start.
        start_ns, end_ns: of the step, on the trace's clock.
    """
    nothing = pl.Series([[]] * len(calls), dtype=pl.List(pl.Int64))
    taken = connection.sql(_TAKEN, params={"trace": trace_id, "start": start_ns, "end": end_ns}).pl()
    if not len(taken) or not len(calls):
        return nothing
    spans = calls.select("thread", "end", began="ts", call=pl.int_range(pl.len())).sort("began")
    kept = taken.sort("ts").join_asof(spans, left_on="ts", right_on="began", by="thread", check_sortedness=False)
    kept = kept.filter((pl.col("ts") < pl.col("end")) & (pl.col("released") >= pl.col("end")))
    last = kept.group_by("call").agg(pl.col("released").max()).sort("call")
    moment = last["released"].to_numpy()
    moment = np.where(moment >= end_ns, start_ns + (moment - end_ns) % max(1, end_ns - start_ns), moment)
    ends = calls["end"].to_numpy()
    by_end = np.argsort(ends, kind="stable")
    # Before the first call is behind the last one of the repetition before.
    behind = by_end[np.searchsorted(ends[by_end], moment, side="right") - 1]
    lists = pl.DataFrame({"behind": behind, "call": last["call"]}).group_by("behind").agg("call")
    rows = pl.DataFrame({"behind": np.arange(len(calls))}).join(lists, on="behind", how="left", maintain_order="left")
    return rows["call"].fill_null([])
