"""What the summary of a corpus does not know or show, each with the command that tells it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lumos_df.base.units import format_count
from lumos_df.schema import COLLECTIVE_MEMBERS

if TYPE_CHECKING:
    import duckdb

_JOBS_NAMED: Final = 3

_UNMATCHED: Final = f"""
    SELECT DISTINCT job
    FROM kernel_summary
    WHERE family = 'communication' AND trace_id NOT IN (SELECT trace_id FROM {COLLECTIVE_MEMBERS.name})
    ORDER BY job
"""

_PEAK: Final = ("what memory held at its peak, by category and stack", "memory_peak")
_HANG: Final = (
    "which rank is missing from a collective that is not over; straggler says who is late",
    "collective_hang",
)
_LATE: Final = ("which rank the others wait for", "straggler")
_OF_RECORDS: Final = {
    "memory-snapshot": _PEAK,
    "flight-recorder": _HANG,
    "nccl-inspector": _LATE,
    "nccl-profiler": _LATE,
}
"""What files of records tell, and the view that has it, by their dialect."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is not known, or not shown, and the command that tells it, after `lumos-df `."""

    what: str
    command: str


_APART_PCT: Final = 2.0
"""Threshold, percent of the mean step. Steps of advice that differ by more are others than those that were recorded.
Evidence: replays of 138 recordings of an H200 are at most 0.5 % off."""
_OTHER_STEPS: Final = """
    SELECT job
    FROM (SELECT job, any_value(step_ns) AS step_ns FROM advice GROUP BY job)
    JOIN corpus_summary USING (job)
    WHERE 100 * abs(step_ns - mean_step_ns) > $1 * mean_step_ns
    ORDER BY job
"""


def notes(connection: "duckdb.DuckDBPyConnection", corpus: str, of_several_runs: list[str]) -> Iterator[Note]:
    """Give what the summary of an open corpus leaves out.

    Args:
        connection: the corpus.
        corpus: what commands call it.
        of_several_runs: jobs of which a rank has several traces.
    """
    unmatched = [job for (job,) in connection.execute(_UNMATCHED).fetchall()]
    if unmatched:
        yield Note(
            f"who waits for whom is not known yet in {format_count(len(unmatched), 'job')} ({_named(unmatched)})",
            f"report --corpus {corpus}",
        )
    apart = [job for (job,) in connection.execute(_OTHER_STEPS, [_APART_PCT]).fetchall()]
    if apart:
        yield Note(
            f"gains are of other steps than the table's in {format_count(len(apart), 'job')} ({_named(apart)}): of the "
            "GPU's, which falls behind its host, or of those without a profiler",
            f"advise --corpus {corpus}",
        )
    if of_several_runs:
        yield Note(
            f"several runs of one name are one line above ({_named(of_several_runs)}); each",
            f"replay --corpus {corpus}",
        )
    dialects = {dialect for (dialect,) in connection.execute("SELECT DISTINCT dialect FROM traces").fetchall()}
    for what, view in dict.fromkeys(_OF_RECORDS[dialect] for dialect in _OF_RECORDS if dialect in dialects):
        yield Note(what, f"report --view {view} --corpus {corpus}")


def _named(jobs: list[str]) -> str:
    return ", ".join(jobs[:_JOBS_NAMED]) + (", ..." if len(jobs) > _JOBS_NAMED else "")
