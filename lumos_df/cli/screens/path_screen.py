"""The critical path on one screen: one step a job, what it is made of and on which rank, what would shorten it."""

import shlex
from pathlib import Path
from typing import Any, Final

import duckdb
from rich.console import Console

from lumos_df.base.units import format_ns
from lumos_df.cli.screens.replay_screen import say_doubts
from lumos_df.cli.screens.terminal import (
    called,
    change_pct,
    console,
    of_job,
    rows_of,
    say,
    say_command,
    say_next,
    say_notes,
    say_row,
    where,
)
from lumos_df.corpus import limits, profiler_overhead

_PIECES: Final = 10
"""Rows of one path that are shown."""
_LONGEST: Final = 3
"""Rows of one path that are shown where nothing is known that shortens it."""
_HELPS: Final = 3
"""Changes that are told of."""
_LEAST_PCT: Final = 0.5
"""Threshold, percent of the step. Rows with less are counted and not shown. Evidence: a judgement."""

_MEDIAN_STEPS: Final = """
    WITH lasted AS (
        SELECT called AS job, step, avg(replayed_ns) AS mean_ns, arg_max(trace_id, replayed_ns) AS trace_id,
            arg_max(rank, replayed_ns) AS rank, arg_max(error_pct, replayed_ns) AS error_pct,
            arg_max(unknown_share_pct, replayed_ns) AS unknown_pct, count(DISTINCT rank) AS ranks,
            flatten(list(warnings)) AS warnings
        FROM replay_error
        JOIN (SELECT unnest($1) AS trace_id, unnest($2) AS called) USING (trace_id)
        WHERE $3 IS NULL OR step = $3
        GROUP BY called, step
    )
    SELECT *, count(*) OVER (PARTITION BY job) AS steps
    FROM lasted
    QUALIFY row_number() OVER (PARTITION BY job ORDER BY mean_ns) = (1 + count(*) OVER (PARTITION BY job)) // 2
    ORDER BY job
"""
_PATH: Final = """
    SELECT
        on_rank, kind, family, coalesce(untold, FALSE) AS untold,
        CASE WHEN on_rank IS NULL OR family IS NULL THEN operator END AS operator,
        any_value(on_trace_id) AS on_trace_id, sum(dur)::BIGINT AS ns
    FROM (
        SELECT
            -- What copies is called so, be it a kernel or not.
            path.* REPLACE (
                CASE WHEN kind = 'memory' AND family IS NOT NULL THEN 'kernel' ELSE kind END AS kind,
                -- A kernel of no known family is known by its name.
                CASE WHEN kind IN ('kernel', 'memory', 'transfer', 'wait') THEN nullif(family, 'other') END AS family
            ),
            kind = 'kernel' AND held.op_id IS NOT NULL AND held.transfer_ns IS NULL AS untold
        FROM critical_path AS path
        LEFT JOIN collectives AS held ON held.trace_id = on_trace_id AND held.op_id = path.op_id
        WHERE path.trace_id = $1 AND path.step IS NOT DISTINCT FROM $2
    )
    GROUP BY ALL
    ORDER BY ns DESC, family, operator
"""
"""`untold`: communication of which nothing tells how much of it waits."""
_GAINS: Final = """
    SELECT value, half_gain_ns
    FROM gain
    WHERE trace_id = $1 AND step IS NOT DISTINCT FROM $2 AND what = $3
"""
_MEANWHILE: Final = """
    SELECT host.name, max(host.ns) AS ns
    FROM (
        SELECT
            row.name, row.thread,
            sum(least(row.ts + row.dur, piece.ts + piece.dur) - greatest(row.ts, piece.ts))::BIGINT AS ns
        FROM critical_path AS piece
        JOIN operators AS row
            ON row.trace_id = piece.on_trace_id AND row.ts < piece.ts + piece.dur AND piece.ts < row.ts + row.dur
        WHERE piece.trace_id = $1 AND piece.step IS NOT DISTINCT FROM $2 AND piece.operator = $3
            AND row.kind = 'annotation' AND row.collective IS NOT NULL
        GROUP BY row.name, row.thread
    ) AS host
    GROUP BY host.name
    ORDER BY ns DESC
    LIMIT 1
"""
_ON_GPU: Final = "SELECT 1 FROM operators WHERE trace_id = $1 AND stream IS NOT NULL LIMIT 1"
_IS_FRAME: Final = "SELECT 1 FROM operators WHERE trace_id = $1 AND kind = 'python' AND name = $2 LIMIT 1"


def draw(
    connection: duckdb.DuckDBPyConnection, corpus: Path, trace_ids: list[str], step: int | None, *, full: bool
) -> None:
    """Print the stored path of the median step of each job, on the rank where that took longest."""
    screen, helped = console(), False
    steps = _median_steps(connection, called(corpus, trace_ids), step)
    for place, chosen in enumerate(steps):
        if place:
            screen.print()
        if not chosen["mean_ns"]:
            say(screen, (chosen["job"], "bold"), f", {limits.NO_LENGTH}")
            say_notes(screen, chosen["warnings"], full=full)
            continue
        helped |= _draw_step(screen, connection, chosen, corpus, full=full)
    if any(chosen["mean_ns"] for chosen in steps):
        behind = of_job(corpus, trace_ids) + where(corpus)
        say_next(screen, f"advise{behind}", *([] if helped else [f"critical-path --gains{behind}"]))


def _draw_step(
    screen: Console, connection: duckdb.DuckDBPyConnection, chosen: dict[str, Any], corpus: Path, *, full: bool
) -> bool:
    """Print the path of one step; return whether it is known what faster operators would gain."""
    path = rows_of(connection, _PATH, (chosen["trace_id"], chosen["step"]))
    total = _total(path)
    on_rank: dict[int, int] = {}
    for row in path:
        if row["on_rank"] is not None:
            on_rank[row["on_rank"]] = on_rank.get(row["on_rank"], 0) + row["ns"]
    which = "the whole trace" if chosen["step"] is None else f"step {chosen['step']}"
    say_doubts(screen, chosen["job"], which, abs(chosen["error_pct"] or 0.0), chosen["unknown_pct"] or 0.0)
    median = f" (the median of {chosen['steps']})" if chosen["steps"] > 1 else ""
    several = chosen["ranks"] > 1
    decides = f", decided by rank {max(on_rank, key=lambda rank: on_rank[rank])}" if several and on_rank else ""
    if several and not rows_of(connection, _ON_GPU, (chosen["trace_id"],)):
        decides = ", its own path: ranks without GPUs are not joined"
    say(screen, (chosen["job"], "bold"), f", {which}{median} of rank {chosen['rank']}: {format_ns(total)}{decides}")
    shown = path if full else [row for row in path if 100 * abs(row["ns"]) >= _LEAST_PCT * total][:_PIECES]
    for row in shown:
        _say_piece(screen, connection, chosen, row, total)
    rest = len(path) - len(shown)
    left = total - sum(row["ns"] for row in shown)
    if left:
        say(screen, f"{100 * left / total:5.1f}%  {format_ns(left):>9}   {rest} more: --full")
    _say_unseen(screen, path, corpus)
    profiled = profiler_overhead.told_where_timed(corpus, [chosen["trace_id"]]) or []
    say_notes(screen, [*profiled, *chosen["warnings"]], full=full)
    gains = {
        what: {row["value"]: row["half_gain_ns"] for row in rows_of(connection, _GAINS, (*asked, what))}
        for what in ("family", "name")
        for asked in [(chosen["trace_id"], chosen["step"])]
    }
    helps = _helps(path, _waiting_frame(connection, path), gains, chosen)
    _say_helps(screen, helps, total, of_job(corpus, [chosen["trace_id"]]) + where(corpus))
    return any(gains.values())


def _median_steps(
    connection: duckdb.DuckDBPyConnection, names: dict[str, str], step: int | None = None
) -> list[dict[str, Any]]:
    """Return the median step of each job; `names`: what the job of each trace is called."""
    return rows_of(connection, _MEDIAN_STEPS, ([*names], [*names.values()], step))


def draw_longest(screen: Console, connection: duckdb.DuckDBPyConnection, trace_ids: list[str]) -> None:
    """Print the longest pieces of the stored path of a job's median step: what it is about."""
    for chosen in _median_steps(connection, dict.fromkeys(trace_ids, "")):
        path = rows_of(connection, _PATH, (chosen["trace_id"], chosen["step"]))
        for row in [row for row in path if row["ns"]][:_LONGEST]:
            _say_piece(screen, connection, chosen, row, _total(path))


def draw_unseen(screen: Console, connection: duckdb.DuckDBPyConnection, trace_ids: list[str], corpus: Path) -> None:
    """Print how much of the stored path of a job's median step waits, or may wait, for ranks that are not here."""
    for chosen in _median_steps(connection, dict.fromkeys(trace_ids, "")):
        _say_unseen(screen, rows_of(connection, _PATH, (chosen["trace_id"], chosen["step"])), corpus)


def _say_unseen(screen: Console, path: list[dict[str, Any]], corpus: Path) -> None:
    """Print how much of a path waits, or may wait, for ranks that are not here, and what would tell."""
    waits = sum(row["ns"] for row in path if row["kind"] == "wait" and row["on_rank"] is None)
    untold = sum(row["ns"] for row in path if row["untold"])
    found = [
        (share, what)
        for ns, what in (
            (waits, "waits for ranks that are not here"),
            (untold, "is communication: it transfers, or waits for ranks that are not here; nothing tells which"),
        )
        if (share := 100 * ns / _total(path)) >= _LEAST_PCT
    ]
    for share, what in found:
        say(screen, (f"{share:.0f}% of the critical path {what}", "bold"))
    if found:
        say_command(screen, f"ingest THEIR-TRACES...{where(corpus)}", before="to know who is late: ")


def _total(path: list[dict[str, Any]]) -> int:
    total: int = max(sum(row["ns"] for row in path), 1)
    return total


def _say_piece(
    screen: Console,
    connection: duckdb.DuckDBPyConnection,
    chosen: dict[str, Any],
    row: dict[str, Any],
    total: int,
) -> None:
    """Print a piece of a path, and which collective ran on the host while nothing else was recorded."""
    lead = f"{100 * row['ns'] / total:5.1f}%  {format_ns(row['ns']):>9}   "
    rank = f"rank {row['on_rank']}   " if chosen["ranks"] > 1 and row["on_rank"] is not None else ""
    meanwhile = ""
    if str(row["operator"] or "").startswith(_SILENCE) and 100 * row["ns"] >= _LEAST_PCT * total:
        asked = (chosen["trace_id"], chosen["step"], row["operator"])
        for ran in rows_of(connection, _MEANWHILE, asked):
            meanwhile = f" ({ran['name']} ran {format_ns(ran['ns'])} of it)"
    say_row(screen, lead + rank, _what(row) + meanwhile)


def _say_helps(screen: Console, helps: dict[tuple[str, str], tuple[int, str]], total: int, behind: str) -> None:
    """Print the changes that shorten the step most, each with the command that replays it.

    Args:
        screen: where to.
        helps: (what, switch of `replay`) of each change: ns, how to say them.
        total: ns of the step.
        behind: what says which job of which corpus.
    """
    best = sorted(helps.items(), key=lambda change: -change[1][0])[:_HELPS]
    lead = "what would help most: "
    for (what, switch), (ns, known) in best:
        if 100 * ns >= _LEAST_PCT * total:
            gain = known.format(change_pct(-100 * ns / total))
            say(screen, f"{what}, {gain}", before=lead)
            lead = " " * len(lead)
            say_command(screen, f"replay {switch}{behind}", before=lead)


def _waiting_frame(connection: duckdb.DuckDBPyConnection, path: list[dict[str, Any]]) -> str:
    """Return the Python function that is the host's longest piece of a path, or nothing: it calls no operator there."""
    on_host = [row for row in path if row["kind"] in ("host", "wait") and row["operator"]]
    longest = on_host[0] if on_host else {"on_trace_id": None, "operator": ""}
    asked = (longest["on_trace_id"], longest["operator"])
    return str(longest["operator"]) if rows_of(connection, _IS_FRAME, asked) else ""


def _helps(
    path: list[dict[str, Any]], frame: str, gains: dict[str, dict[str, int]], chosen: dict[str, Any]
) -> dict[tuple[str, str], tuple[int, str]]:
    """Return what shorter pieces of a path may bring, as `_say_helps` wants it.

    A rank's silences go, and so does the `frame` in which it did nothing else; other work takes half as long. Where
    that was not replayed, the step is shorter by no more than the path has of it.
    """
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for row in path:
        operator = str(row["operator"] or "")
        silent = operator.startswith(_SILENCE) or operator == frame != ""
        if row["kind"] in ("host", "wait") and silent:
            if chosen["ranks"] * chosen["steps"] == 1:
                # Nothing says how long it would be otherwise.
                continue
            key, ns = (f"rank {row['on_rank']} without silences", f"--no-wait rank={row['on_rank']}"), row["ns"]
            replayed = None
        elif row["untold"] or (row["kind"] == "wait" and row["on_rank"] is None):
            # It may end no earlier whatever is faster here.
            continue
        elif row["family"]:
            key = f"{row['family']} twice as fast", f"--scale family={row['family']}:0.5"
            ns, replayed = row["ns"] // 2, gains["family"].get(row["family"])
        elif row["kind"] in ("host", "kernel") and operator:
            key = f"{operator} in half the time", f"--scale {shlex.quote(f'name={operator}:0.5')}"
            ns, replayed = row["ns"] // 2, gains["name"].get(operator)
        else:
            continue
        before, _ = found.get(key, (0, ""))
        found[key] = (before + ns, _AT_MOST) if replayed is None else (replayed, _REPLAYED)
    return found


_SILENCE: Final = "nothing recorded"
_AT_MOST, _REPLAYED = "at most {}", "{} replayed"
"""How the gain of a change is said: a path has no more of it; it was simulated."""
_WORDS: Final = {
    "memory": "copy or clear",
    "launch": "launch latency",
    "gap": "gap between kernels",
    "sync": "the end of",
    "unknown": "unknown:",
    "unexplained": "by what the replay is off",
}


def _what(row: dict[str, Any]) -> str:
    """Return in words what a piece of the path is; on another rank it is known by the operator alone."""
    kind, family, operator = str(row["kind"]), row["family"], str(row["operator"] or "")
    if kind == "wait" and row["on_rank"] is None:
        return f"waiting for ranks that are not here, {operator or family}"
    if row["untold"]:
        return f"{family}: transfer, or waiting for ranks that are not here"
    if kind in ("kernel", "memory", "wait") and family:
        return str(family)
    if kind in ("host", "wait"):
        return operator if operator.startswith(_SILENCE) else f"host: {operator}"
    # What comes after a launch or a gap is all that its operator says.
    silent = kind in ("launch", "gap") and operator.startswith(_SILENCE)
    ran = None if kind == "transfer" else family or (operator.partition(", ")[2] if silent else operator)
    words = (", " if kind == "gap" else " ").join(text for text in (_WORDS.get(kind, kind), ran) if text)
    return words.removesuffix(":")
