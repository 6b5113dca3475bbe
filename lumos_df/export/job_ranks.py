"""The ranks of a job and the time that they share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

HIDDEN_KINDS: Final = ("python", "sync", "gpu_annotation", "other")
"""Kinds of operators that other tools are not shown: they neither work nor wait by themselves."""


@dataclass(frozen=True, slots=True)
class ExportedRank:
    """One trace of a job."""

    trace_id: str
    job: str
    rank: int
    zero: int
    """Moment on the trace's clock at which the first operator of the job starts, ns."""


def ranks(connection: "duckdb.DuckDBPyConnection", job: list[str]) -> list[ExportedRank]:
    """Return the traces of a job by rank, their clocks aligned as the collectives of a replay told."""
    rows = connection.execute(
        f"""
        WITH started AS (
          SELECT t.trace_id, t.job, t.rank, coalesce(t.clock_origin_ns, 0) - coalesce(c.offset_ns, 0) AS to_job_time, (
              SELECT min(ts) FROM operators
              WHERE trace_id = t.trace_id AND kind NOT IN {HIDDEN_KINDS}
            ) AS first_ts
          FROM traces t
          LEFT JOIN clocks c ON c.trace_id = t.trace_id
          WHERE t.trace_id IN (SELECT unnest($job))
        )
        SELECT trace_id, job, rank, coalesce(min(first_ts + to_job_time) OVER () - to_job_time, 0)
        FROM started
        ORDER BY rank, trace_id
        """,
        {"job": job},
    ).fetchall()
    return [ExportedRank(*row) for row in rows]
