"""The jobs of a corpus, and the traces of each: what every other section refers to by number."""

from typing import Any, Final

import duckdb

from lumos_df.corpus.catalog import query
from lumos_df.page.section import Columns, by_job

MAX_JOBS: Final = 12
"""Jobs shown in full; further ones stand only in the list of jobs."""
_MAX_WARNINGS: Final = 20
_READ_OFTEN: Final = ("_step", "_gpu_stretch", "replay_error", "critical_path_summary")
"""Views that each go through the operators, or the replays, of all traces, for several sections."""


def prepare(connection: duckdb.DuckDBPyConnection) -> int:
    """Keep what several sections read, and return how many jobs are shown in full: those with the most GPU rows.

    Makes two temporary tables: `page_trace` (trace_id, job, rank, place: number of the trace in its job, from 0, by
    rank) and `page_step`, the rows of the view `breakdown` for these traces. Tables of the names of views that are read
    often stand before these views, so that they are computed once.
    """
    for view in _READ_OFTEN:
        query(connection, f"CREATE OR REPLACE TEMP TABLE {view} AS FROM {view}")
    query(
        connection,
        f"""
        CREATE OR REPLACE TEMP TABLE page_trace AS
        WITH shown AS (
          SELECT job
          FROM traces
          GROUP BY job
          ORDER BY sum(kernels + memcpys + memsets) DESC, sum(operators) DESC, job
          LIMIT {MAX_JOBS}
        )
        SELECT trace_id, job, rank, (row_number() OVER (PARTITION BY job ORDER BY rank, trace_id) - 1)::INTEGER AS place
        FROM traces
        WHERE job IN (FROM shown)
        """,
    )
    query(
        connection,
        """
        CREATE OR REPLACE TEMP TABLE page_step AS
        SELECT page_trace.place, breakdown.*, step.ts
        FROM breakdown
        JOIN page_trace USING (trace_id, job)
        JOIN step ON step.trace_id = breakdown.trace_id AND step.step IS NOT DISTINCT FROM breakdown.step
        """,
    )
    counted = query(connection, "SELECT count(DISTINCT job) FROM page_trace").fetchone()
    return int(counted[0]) if counted else 0


def summaries(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the rows of `corpus_summary`, the job with the most GPU rows first: every one, shown in full or not."""
    cursor = query(connection, "FROM corpus_summary ORDER BY gpu_rows DESC, operators DESC, job")
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def traces(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the traces of each job by their number: trace_id, rank and a label that tells apart runs of one rank."""
    return by_job(
        connection,
        """
        SELECT
          job,
          trace_id,
          rank,
          CASE
            WHEN count(*) OVER (PARTITION BY job, rank) = 1 THEN rank::VARCHAR
            ELSE rank || ' (' || left(trace_id, 6) || ')'
          END AS label
        FROM page_trace
        ORDER BY job, place
        """,
    )


def warnings(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return what the traces of each job warn of, the same sentence once with the number of traces that have it."""
    return by_job(
        connection,
        f"""
        SELECT job, warning, count(*) AS traces
        FROM (SELECT page_trace.job, unnest(warnings) AS warning FROM traces JOIN page_trace USING (trace_id))
        GROUP BY job, warning
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY count(*) DESC, warning) <= {_MAX_WARNINGS}
        ORDER BY job, traces DESC, warning
        """,
    )
