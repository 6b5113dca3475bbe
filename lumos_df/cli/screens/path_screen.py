"""The critical path on one screen: one step a job, what it is made of and on which rank, what would shorten it."""

from pathlib import Path
from typing import Any, Final

import duckdb
from rich.console import Console

from lumos_df.base.units import format_ns
from lumos_df.cli.screens.terminal import change_pct, console, rows_of, say, say_next, say_row, where

_PIECES: Final = 10
"""Rows of one path that are shown."""
_HELPS: Final = 3
"""Families of operators whose speed is told of."""
_LEAST_PCT: Final = 0.5
"""Threshold, percent of the step. Rows with less are counted and not shown. Evidence: a judgement."""

_MEDIAN_STEPS: Final = """
    WITH lasted AS (
        SELECT traces.job, replay.step, avg(replayed_ns) AS mean_ns, max(replayed_ns) AS longest_ns,
            arg_max(trace_id, replayed_ns) AS trace_id, arg_max(replay.rank, replayed_ns) AS rank
        FROM replay_steps AS replay
        JOIN traces USING (trace_id)
        WHERE trace_id IN (SELECT unnest($1)) AND ($2 IS NULL OR replay.step = $2)
        GROUP BY traces.job, replay.step
    )
    SELECT job, step, trace_id, rank, longest_ns, count(*) OVER (PARTITION BY job) AS steps
    FROM lasted
    QUALIFY row_number() OVER (PARTITION BY job ORDER BY mean_ns) = (1 + count(*) OVER (PARTITION BY job)) // 2
    ORDER BY job
"""
_PATH: Final = """
    SELECT
        on_rank, kind,
        CASE WHEN kind IN ('kernel', 'memory', 'transfer', 'wait') THEN family END AS family,
        CASE WHEN family IS NULL OR kind NOT IN ('kernel', 'memory', 'transfer', 'wait') THEN operator END AS operator,
        sum(dur)::BIGINT AS ns, count(*) AS pieces
    FROM critical_path
    WHERE trace_id = $1 AND step IS NOT DISTINCT FROM $2
    GROUP BY ALL
    ORDER BY ns DESC, family, operator
"""
_GAINS: Final = """
    SELECT value, half_gain_ns
    FROM gain
    WHERE trace_id = $1 AND step IS NOT DISTINCT FROM $2 AND what = 'family' AND half_gain_ns > 0
    ORDER BY half_gain_ns DESC, value
"""


def draw(
    connection: duckdb.DuckDBPyConnection, corpus: Path, trace_ids: list[str], step: int | None, *, full: bool
) -> None:
    """Print the stored path of the median step of each job, on the rank where that took longest."""
    screen, helped = console(), False
    for place, chosen in enumerate(rows_of(connection, _MEDIAN_STEPS, (trace_ids, step))):
        if place:
            screen.print()
        helped |= _draw_step(screen, connection, chosen, full=full)
    more = [] if helped else [f"critical-path --gains{where(corpus)}"]
    say_next(screen, f"advise{where(corpus)}", *more)


def _draw_step(screen: Console, connection: duckdb.DuckDBPyConnection, chosen: dict[str, Any], *, full: bool) -> bool:
    """Print the path of one step; return whether it is known what faster operators would gain."""
    path = rows_of(connection, _PATH, (chosen["trace_id"], chosen["step"]))
    total = max(sum(row["ns"] for row in path), 1)
    on_rank: dict[int, int] = {}
    for row in path:
        if row["on_rank"] is not None:
            on_rank[row["on_rank"]] = on_rank.get(row["on_rank"], 0) + row["ns"]
    which = "the whole trace" if chosen["step"] is None else f"step {chosen['step']}"
    median = f" (the median of {chosen['steps']})" if chosen["steps"] > 1 else ""
    decides = f", decided by rank {max(on_rank, key=lambda rank: on_rank[rank])}" if len(on_rank) > 1 else ""
    say(screen, (chosen["job"], "bold"), f", {which}{median} of rank {chosen['rank']}: {format_ns(total)}{decides}")
    shown = path if full else [row for row in path if 100 * row["ns"] >= _LEAST_PCT * total][:_PIECES]
    for row in shown:
        lead = f"{100 * row['ns'] / total:5.1f}%  {format_ns(row['ns']):>9}   "
        rank = "" if row["on_rank"] is None or len(on_rank) < 2 else f"rank {row['on_rank']}   "
        say_row(screen, lead + rank, _what(row))
    rest = len(path) - len(shown)
    if rest:
        left = total - sum(row["ns"] for row in shown)
        say(screen, f"{100 * left / total:5.1f}%  {format_ns(left):>9}   {rest} more: --full")
    gains = rows_of(connection, _GAINS, (chosen["trace_id"], chosen["step"]))
    helps = [f"{row['value']} {change_pct(-100 * row['half_gain_ns'] / total)}" for row in gains[:_HELPS]]
    if helps:
        say(screen, "; ".join(helps), before="twice as fast: ")
    return bool(gains)


_WORDS: Final = {
    "memory": "copy or clear",
    "launch": "launch latency",
    "gap": "gap between kernels",
    "sync": "the end of",
    "unexplained": "unexplained",
}


def _what(row: dict[str, Any]) -> str:
    """Return in words what a piece of the path is; on another rank it is known by the operator alone."""
    kind, family, operator = str(row["kind"]), row["family"], str(row["operator"] or "")
    if kind in ("kernel", "wait") and family:
        return str(family)
    if kind == "transfer":
        return kind
    if kind in ("host", "wait"):
        return operator if operator.startswith("nothing recorded") else f"host: {operator}"
    return " ".join(text for text in (_WORDS.get(kind, kind), family or operator) if text)
