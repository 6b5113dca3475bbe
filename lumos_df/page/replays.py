"""What a simulation of the recorded job says: views `replay_error`, `critical_path_summary` and `gain`."""

from typing import Final

import duckdb

from lumos_df.page.section import MAX_NAME, Budget, Columns, Section, by_job, percent, with_plain

_MAX_PIECES: Final = 40
_WHOLE: Final = """
  whole AS (
    SELECT job, count(*) AS steps, sum(replayed_ns) AS replayed_ns
    FROM replay_error
    JOIN page_trace USING (trace_id, job)
    GROUP BY job
  )
"""
"""Steps of all ranks of a job, whose mean is shown."""
_MAX_GAINS: Final = 40

PATH_KINDS: Final = {
    "host": "host work",
    "launch": "launching",
    "kernel": "kernels",
    "transfer": "transfers of collectives",
    "memory": "memory copies",
    "sync": "synchronising calls",
    "gap": "gaps between kernels",
    "wait": "waiting for other ranks",
    "unknown": "time that nothing recorded explains",
    "unexplained": "by what the replay is off",
}


def error_rows(connection: duckdb.DuckDBPyConnection, budget: Budget) -> dict[str, Columns]:
    """Return a row a rank and step that was replayed, as many of the last of each rank as the budget has bars for."""
    return by_job(
        connection,
        f"""
        SELECT
          job,
          place,
          step,
          recorded_ns,
          replayed_ns,
          error_pct,
          unexplained_ns,
          start_error_p50_ns,
          start_error_p99_ns
        FROM replay_error
        JOIN page_trace USING (trace_id, job)
        QUALIFY row_number() OVER (PARTITION BY trace_id ORDER BY step DESC)
          <= greatest(1, {budget.bars} // (SELECT count(*) FROM page_trace AS other WHERE other.job = page_trace.job))
        ORDER BY job, step, place
        """,
    )


def accuracy_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return one row a job: how far its replayed steps are off, percent of the recorded ones, in mean and at worst."""
    return by_job(
        connection,
        """
        SELECT
          job,
          round(avg(abs(error_pct)), 2) AS mean_pct,
          round(max(abs(error_pct)), 2) AS worst_pct,
          round(avg(host_share_pct), 1) AS host_share_pct,
          count(DISTINCT replay_error.rank) AS ranks
        FROM replay_error
        JOIN page_trace USING (trace_id, job)
        GROUP BY job
        HAVING count(error_pct) > 0
        """,
    )


def path_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return what the critical paths of each job are made of, all ranks and steps together, longest first.

    Columns: kind, what, pieces, mean_ns (a rank and step), share_pct (of the path).
    """
    return by_job(
        connection,
        f"""
        WITH {_WHOLE}
        SELECT
          job,
          kind,
          left(ran, {MAX_NAME}) AS what,
          sum(pieces)::BIGINT AS pieces,
          round(sum(total_ns) / any_value(steps))::BIGINT AS mean_ns,
          round(100.0 * sum(total_ns) / nullif(sum(sum(total_ns)) OVER (PARTITION BY job), 0), 3) AS share_pct
        FROM (
          SELECT
            *,
            CASE kind
              WHEN 'wait' THEN coalesce('rank ' || on_rank, 'ranks not here')
              ELSE coalesce(family, operator)
            END AS ran
          FROM critical_path_summary
        )
        JOIN page_trace USING (trace_id, job)
        JOIN whole USING (job)
        GROUP BY job, kind, ran
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY sum(total_ns) DESC, kind, ran) <= {_MAX_PIECES}
        ORDER BY job, sum(total_ns) DESC, kind, ran
        """,
    )


def kind_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the same by kind only."""
    return by_job(
        connection,
        f"""
        WITH {_WHOLE}
        SELECT
          job,
          kind,
          sum(pieces)::BIGINT AS pieces,
          round(sum(total_ns) / any_value(steps))::BIGINT AS mean_ns,
          round(100.0 * sum(total_ns) / nullif(sum(sum(total_ns)) OVER (PARTITION BY job), 0), 3) AS share_pct
        FROM critical_path_summary
        JOIN page_trace USING (trace_id, job)
        JOIN whole USING (job)
        GROUP BY job, kind
        ORDER BY job, sum(total_ns) DESC, kind
        """,
    )


def gain_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return what the mean step of each job would gain, most first.

    Columns: what (`family` or `name`), value, and a rank and step: mean_ns (what it takes), mean_gain_ns,
    mean_half_gain_ns (in half the time), gain_pct (of the replayed step).
    """
    return by_job(
        connection,
        f"""
        WITH {_WHOLE}
        SELECT
          job,
          gain.what,
          left(value, {MAX_NAME}) AS value,
          round(sum(total_ns) / any_value(steps))::BIGINT AS mean_ns,
          round(sum(gain_ns) / any_value(steps))::BIGINT AS mean_gain_ns,
          round(sum(half_gain_ns) / any_value(steps))::BIGINT AS mean_half_gain_ns,
          round(100.0 * sum(gain_ns) / nullif(any_value(replayed_ns), 0), 3) AS gain_pct
        FROM gain
        JOIN page_trace USING (trace_id, job)
        JOIN whole USING (job)
        GROUP BY job, gain.what, gain.value
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY sum(gain_ns) DESC, gain.what, gain.value) <= {_MAX_GAINS}
        ORDER BY job, sum(gain_ns) DESC, gain.what, gain.value
        """,
    )


def path(
    kinds: Columns | None, pieces: Columns | None, gains: Columns | None, replays: Columns | None, corpus: str
) -> Section:
    """Return the section of the critical path and what faster operators would gain, with the steps that were replayed.

    Args:
        kinds: the job's `kind_rows`.
        pieces: its `path_rows`.
        gains: its `gain_rows`.
        replays: its `error_rows`.
        corpus: name of the corpus, ready for a shell.
    """
    replayed = {"replays": replays} if replays else {}
    if kinds is None or pieces is None:
        return Section("No critical path yet", f"Run: `lumos-df critical-path --corpus {corpus}`", replayed)
    first, *_ = kinds["kind"]
    return Section(
        f"{percent(kinds['mean_ns'][0], sum(kinds['mean_ns']))} of the critical path: {PATH_KINDS.get(first, first)}",
        "What the longest chain of dependent work is made of, in the mean step of all ranks; what the step would gain "
        "from an operator that took no time is simulated again, not read off.",
        {
            "kinds": {**kinds, "said": [PATH_KINDS.get(kind, kind) for kind in kinds["kind"]]},
            "pieces": with_plain(pieces, "what"),
            **({"gains": with_plain(gains, "value")} if gains else {}),
            **replayed,
        },
    )
