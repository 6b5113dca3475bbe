"""How busy GPUs are, and how full, over time: views `sm_utilization` and `memory_timeline`, as fine as a screen."""

from typing import Final

import duckdb

from lumos_df.base.units import format_bytes
from lumos_df.page.section import Budget, Columns, Section, by_job

_MS: Final = 1_000_000
_MAX_MOMENTS: Final = 400
_MIN_MOMENTS: Final = 20
_MEMORY_MOMENTS: Final = 300


def busy_rows(connection: duckdb.DuckDBPyConnection, budget: Budget) -> dict[str, Columns]:
    """Return a row a trace: mean share of time with a kernel, and the same in stretches of equal length.

    Columns: place, width_ns (of a stretch, the same in a job), mean_pct, and busy_pct, a list from the trace's first
    kernel on.
    """
    return by_job(
        connection,
        f"""
        WITH
        moment AS (
          SELECT job, place, sm.ts - min(sm.ts) OVER (PARTITION BY sm.trace_id) AS ts, busy_ns
          FROM sm_utilization AS sm
          JOIN page_trace USING (trace_id, job)
        ),
        spread AS (
          SELECT
            job,
            least({_MAX_MOMENTS}, greatest({_MIN_MOMENTS}, {budget.cells} // count(DISTINCT place))) AS moments,
            (max(ts) // {_MS} // moments + 1)::BIGINT * {_MS} AS width_ns
          FROM moment
          GROUP BY job
        ),
        stretches AS (
          SELECT job, place, width_ns, ts // width_ns AS stretch, sum(busy_ns)::BIGINT AS busy_ns, count(*) AS ms
          FROM moment
          JOIN spread USING (job)
          GROUP BY job, place, width_ns, stretch
        )
        SELECT
          job,
          place,
          any_value(width_ns) AS width_ns,
          round(sum(busy_ns) / sum(ms) / {_MS // 100}, 2) AS mean_pct,
          list(round(busy_ns / ms / {_MS // 100}, 1) ORDER BY stretch) AS busy_pct
        FROM stretches
        GROUP BY job, place
        ORDER BY job, place
        """,
    )


def busy(shown: Columns | None, labels: list[str]) -> Section:
    """Return the section of when a kernel runs; `labels` names the job's traces."""
    if shown is None:
        return Section(
            "No kernel in these traces", "Record the GPU, too: `torch.profiler` with `ProfilerActivity.CUDA`."
        )
    ranked = sorted(zip(shown["mean_pct"], shown["place"], strict=True))
    (least, at_least), (most, at_most) = ranked[0], ranked[-1]
    typical = sum(shown["mean_pct"]) / len(ranked)
    spread = f": {least:.0f}% on rank {labels[at_least]} to {most:.0f}% on rank {labels[at_most]}"
    width = shown["width_ns"][0] // _MS
    return Section(
        f"A kernel runs {typical:.0f}% of the time{spread if len(ranked) > 1 else ''}",
        "Share of each millisecond in which at least one kernel runs, from each rank's first kernel to its last"
        + (f"; means of {width} ms." if width > 1 else "."),
        {"busy": shown},
    )


def memory_rows(connection: duckdb.DuckDBPyConnection, budget: Budget) -> dict[str, Columns]:
    """Return a row a trace: its fullest device's peak, and for some traces the allocator's total over time.

    Columns: place, device_type, device, peak_bytes, reserved_bytes, ts_ns and allocated_bytes: lists, the most in each
    stretch of equal length; in a job with many ranks they are null but for the fullest and the emptiest.
    """
    return by_job(
        connection,
        f"""
        WITH
        moment AS (
          SELECT
            job,
            place,
            coalesce(device_type, 'unknown') AS device_type,
            device,
            memory.ts - min(memory.ts) OVER (PARTITION BY memory.trace_id) AS ts,
            allocated_bytes,
            reserved_bytes
          FROM memory_timeline AS memory
          JOIN page_trace USING (trace_id, job)
          WHERE allocated_bytes IS NOT NULL
        ),
        peak AS (
          SELECT
            job,
            place,
            device_type,
            device,
            max(allocated_bytes) AS peak_bytes,
            max(reserved_bytes) AS most_reserved_bytes,
            max(ts) // {_MEMORY_MOMENTS} + 1 AS width_ns
          FROM moment
          GROUP BY job, place, device_type, device
          QUALIFY row_number() OVER (PARTITION BY job, place ORDER BY device_type = 'cpu', peak_bytes DESC) = 1
        ),
        ranked AS (
          SELECT
            *,
            least(
              row_number() OVER (PARTITION BY job ORDER BY peak_bytes DESC, place),
              row_number() OVER (PARTITION BY job ORDER BY peak_bytes, place)
            ) <= {budget.lines // 2} AS drawn
          FROM peak
        ),
        thin AS (
          SELECT job, place, moment.ts // width_ns * width_ns AS ts, max(allocated_bytes) AS allocated_bytes
          FROM moment
          JOIN ranked USING (job, place, device_type, device)
          WHERE drawn
          GROUP BY ALL
        ),
        line AS (
          SELECT job, place, list(ts ORDER BY ts) AS ts_ns, list(allocated_bytes ORDER BY ts) AS allocated_bytes
          FROM thin
          GROUP BY job, place
        )
        SELECT
          job,
          place,
          device_type,
          device,
          peak_bytes,
          most_reserved_bytes AS reserved_bytes,
          ts_ns,
          allocated_bytes
        FROM ranked
        LEFT JOIN line USING (job, place)
        ORDER BY job, place
        """,
    )


def memory(shown: Columns | None, labels: list[str]) -> Section:
    """Return the section of memory; `labels` names the job's traces."""
    if shown is None:
        return Section("Memory was not recorded", "Record it: `torch.profiler` with `profile_memory=True`.")
    peak, place, device = max(
        zip(shown["peak_bytes"], shown["place"], shown["device_type"], strict=True), key=lambda row: row[0]
    )
    which = {"cpu": "Host memory", "unknown": "Memory"}.get(device, "GPU memory")
    return Section(
        f"{which} peaks at {format_bytes(peak)}, on rank {labels[place]}",
        "Total of the framework's allocator, the most in each of 300 stretches. Where the trace records no total it "
        "counts from what was held when the trace began.",
        {"memory": shown},
    )
