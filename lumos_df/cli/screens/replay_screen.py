"""A replay on one screen: how far it is off, and what a changed job would take."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
from rich.console import Console

from lumos_df.base.units import format_count, format_ns
from lumos_df.cli.screens.terminal import (
    called,
    change_ns,
    change_pct,
    console,
    of_job,
    rows_of,
    say,
    say_headline,
    say_next,
    say_notes,
    where,
)
from lumos_df.corpus import limits, profiler_overhead
from lumos_df.schema import STEP_PARTS
from lumos_df.schema.parts import ON_GPU

if TYPE_CHECKING:
    import polars as pl

_LEAST_PCT: Final = 0.05
"""Threshold, percent of the path. Less unknown time is not told of. Evidence: it would be written as 0.0 %."""

_JOBS: Final = """
    SELECT
        called AS job,
        min(trace_id) AS trace_id,
        count(DISTINCT error.rank) AS ranks,
        count(DISTINCT coalesce(error.step, -1)) AS steps,
        avg(abs(error_pct)) AS mean_pct,
        max(abs(error_pct)) AS worst_pct,
        arg_max(error.rank, abs(error_pct)) AS worst_rank,
        arg_max(error.step, abs(error_pct)) AS worst_step,
        round(avg(recorded_ns))::BIGINT AS recorded_ns,
        round(avg(replayed_ns))::BIGINT AS replayed_ns,
        avg(host_share_pct) AS host_share_pct,
        100 * sum(unexplained_ns) / nullif(sum(recorded_ns), 0) AS unexplained_pct,
        sum(unknown_share_pct * replayed_ns) / nullif(sum(replayed_ns), 0) AS unknown_pct,
        flatten(list(error.warnings)) AS warnings
    FROM replay_error AS error
    JOIN (SELECT unnest($1) AS trace_id, unnest($2) AS called) USING (trace_id)
    WHERE $3 IS NULL OR error.step = $3
    GROUP BY called
    ORDER BY called
"""


def draw(
    connection: duckdb.DuckDBPyConnection, corpus: Path, trace_ids: list[str], step: int | None, *, full: bool
) -> None:
    """Print how the stored replays of some traces compare with their recording."""
    from lumos_df.graph.replay_warnings import HOST_ALONE  # noqa: PLC0415 - slow to import

    screen = console()
    names = called(corpus, trace_ids)
    jobs = rows_of(connection, _JOBS, ([*names], [*names.values()], step))
    for job in jobs:
        if not job["recorded_ns"]:
            say(screen, (job["job"], "bold"), f"   {limits.NO_LENGTH}")
            say_notes(screen, job["warnings"], full=full)
            continue
        worst, unknown = job["worst_pct"] or 0.0, job["unknown_pct"] or 0.0
        which = f"rank {job['worst_rank']}" + (f", step {job['worst_step']}" if job["worst_step"] is not None else "")
        say_doubts(screen, job["job"], which, worst, unknown)
        say_headline(
            screen,
            (job["job"], "bold"),
            f"   {format_count(job['ranks'], 'rank')} x {format_count(job['steps'], 'step')}",
            f"   {format_ns(job['recorded_ns'])} a step, replayed {format_ns(job['replayed_ns'])}: within "
            f"{job['mean_pct'] or 0:.1f}% (worst {worst:.1f}%)",
        )
        share = job["host_share_pct"] or 0.0
        told = _LEAST_PCT <= unknown <= limits.TRUSTED_PCT
        kept = f"; {unknown:.1f}% unknown: nothing recorded explains it, and it stays" if told else ""
        off = f"{job['unexplained_pct'] or 0:.1f}% unexplained"
        others = ", also of ranks waited for" if job["ranks"] > 1 else ""
        say(screen, f"{share:.0f}% of the path is host work as recorded{others}; {off}{kept}", before="  ")
        # That only the host is known stands above all jobs.
        profiled = profiler_overhead.told_where_timed(corpus, [job["trace_id"]]) or []
        say_notes(screen, [*profiled, *(text for text in job["warnings"] if text != HOST_ALONE)], full=full)
    if any(job["recorded_ns"] for job in jobs):
        behind = of_job(corpus, trace_ids) + where(corpus)
        say_next(screen, f"critical-path{behind}", f"advise{behind}")


def say_doubts(screen: Console, job: str, which: str, off_pct: float, unknown_pct: float) -> None:
    """Print, before anything else, why changes of a job should not be trusted far, if there is a reason.

    Args:
        screen: where to.
        job: its name.
        which: the step that is furthest off.
        off_pct: by how much its replay is off, percent.
        unknown_pct: how much of the critical paths stays as recorded because nothing explains it, percent.
    """
    if off_pct > limits.TRUSTED_PCT:
        say(screen, f"careful: of {job} the replay of {which} is {off_pct:.1f}% off; trust no change of it further")
    if unknown_pct > limits.TRUSTED_PCT:
        what = f"{unknown_pct:.0f}% of the critical path of {job}"
        say(screen, f"careful: nothing recorded explains {what}; it stays as recorded")


_WAITING: Final = "exposed_waiting"
_PARTS: Final = tuple(
    line
    for part in STEP_PARTS
    for line in (
        (part.name, part.label),
        *([(_WAITING, "  of that only waiting")] if part.name == "exposed_communication" else []),
    )
)
"""Lines of a changed step: name of the columns, label."""


def draw_changed(rows: pa.Table, changes: list[str], corpus: Path, *, full: bool) -> None:
    """Print what changed jobs take: the mean step and the parts of it, and with `full` each step of each rank."""
    import polars as pl  # noqa: PLC0415 - only here: a replay alone answers without

    screen = console()
    say(screen, "with ", " ".join(changes))
    names = called(corpus, rows.column("trace_id").to_pylist())
    named = pl.DataFrame(rows).with_columns(job=pl.col("trace_id").replace_strict(names))
    for _, steps in named.group_by("job", maintain_order=True):
        _draw_changed_job(screen, steps, corpus, full=full)
    say_next(screen, f"advise{of_job(corpus, rows.column('trace_id').to_pylist())}{where(corpus)}")


def _draw_changed_job(screen: Console, steps: "pl.DataFrame", corpus: Path, *, full: bool) -> None:
    old, new = _mean(steps, "replayed_ns"), _mean(steps, "changed_ns")
    change = f"  ({change_ns(new - old)}, {change_pct(100 * (new - old) / old) if old else '-'})"
    spread = ""
    if len(steps) > 1:
        low, high = (float(str(edge)) for edge in (steps["gain_pct"].max(), steps["gain_pct"].min()))
        spread = f"   {format_count(len(steps), 'step')}: {change_pct(-low)} to {change_pct(-high)}"
    times = f", {format_ns(round(old))} a step -> {format_ns(round(new))}"
    say_headline(screen, (str(steps["job"][0]), "bold"), times, change, spread)
    on_host = not any(_mean(steps, f"{part.name}_ns_{side}") for part in ON_GPU for side in ("replayed", "changed"))
    for name, label in () if on_host else _PARTS:
        if steps[f"{name}_ns_changed"].null_count() < len(steps):
            before, after = _mean(steps, f"{name}_ns_replayed"), _mean(steps, f"{name}_ns_changed")
            both = f"{format_ns(round(before)):>9} -> {format_ns(round(after)):>9}"
            say(screen, f"{label:<26}{both}  {change_ns(after - before):>10}", before="  ")
    for row in steps.sort("rank", "step").iter_rows(named=True) if full else ():
        say(screen, _step_line(row), before="  ")
    profiled = profiler_overhead.told_where_timed(corpus, [steps["trace_id"][0]]) or []
    say_notes(screen, [*profiled, *(text for texts in steps["warnings"].to_list() for text in texts)], full=full)


def _mean(steps: "pl.DataFrame", column: str) -> float:
    return float(str(steps[column].mean() or 0))


def _step_line(row: dict[str, Any]) -> str:
    step = "" if row["step"] is None else f" step {row['step']}"
    times = " -> ".join(f"{format_ns(row[f'{when}_ns']):>9}" for when in ("replayed", "changed"))
    return f"rank {row['rank']}{step}: {times}  ({change_pct(-row['gain_pct'])})"
