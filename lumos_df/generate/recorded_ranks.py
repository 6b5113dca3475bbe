"""Which traces of a corpus a benchmark is made of, and which of their steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lumos_df.base.errors import QueryError, nearest
from lumos_df.graph.job import doubled

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class RecordedRanks:
    """The ranks of a job and the step that all of them have."""

    trace_ids: dict[int, str]
    """The trace of each rank, by rank."""
    step: int | None
    """None: traces without steps, which are taken whole."""
    missing: tuple[int, ...]
    """Ranks of the job that were not recorded, or not asked for."""


def recorded_ranks(
    connection: "duckdb.DuckDBPyConnection", corpus: Path, job: str | None, step: int | None, ranks: str
) -> RecordedRanks:
    """Return what a benchmark is made of.

    Args:
        connection: to the corpus.
        corpus: its folder, for messages.
        job: a job's name, or the id of one of its traces or the beginning of it; needed where there are several jobs.
        step: number of the step; by default that of median duration.
        ranks: `all`, or numbers with commas between.

    Raises `QueryError` for a job, step or rank that is not there, and for a job of several runs.
    """
    traces = connection.execute(
        "SELECT trace_id, job, rank, coalesce(world_size, 0) FROM traces ORDER BY rank, trace_id"
    ).fetchall()
    jobs = sorted({row[1] for row in traces})
    see = f"lumos-df sql 'SELECT DISTINCT job, trace_id, rank FROM traces' --corpus {corpus}"
    if not jobs:
        raise QueryError(f"{corpus}: holds no trace; add some with: lumos-df ingest TRACE... --corpus {corpus}")
    if job is None and len(jobs) != 1:
        raise QueryError(f"{corpus}: holds {len(jobs)} jobs; name one with --job NAME; see: {see}")
    named = [row for row in traces if job in {None, row[1]}]
    chosen = named or [row for row in traces if row[0].startswith(str(job))]
    if not chosen:
        raise QueryError(f"{corpus}: no job or trace '{job}'{nearest(str(job), jobs)}; see: {see}")
    several = doubled(corpus) if named else {}
    if any(several.get(row[0]) for row in chosen):
        name = chosen[0][1]
        raise QueryError(
            f"{corpus}: '{name}' is several runs of one rank; name one by its trace: --job TRACE; see: {see}"
        )
    by_rank = {rank: trace_id for trace_id, _, rank, _ in reversed(chosen)}
    wanted = _parsed(ranks, sorted(by_rank), corpus)
    world = max(*(row[3] for row in chosen), max(by_rank) + 1)
    trace_ids = {rank: by_rank[rank] for rank in wanted}
    missing = tuple(rank for rank in range(world) if rank not in trace_ids)
    return RecordedRanks(trace_ids, _step(connection, list(trace_ids.values()), corpus, step), missing)


def _parsed(text: str, recorded: list[int], corpus: Path) -> list[int]:
    if text == "all":
        return recorded
    words = [word.strip() for word in text.split(",")]
    strange = [word for word in words if not word.isdecimal() or int(word) not in recorded]
    if strange:
        known = ", ".join(map(str, recorded))
        raise QueryError(f"{corpus}: no rank '{strange[0]}'; recorded are {known}; write --ranks 0,1 or --ranks all")
    return sorted({int(word) for word in words})


def _step(connection: "duckdb.DuckDBPyConnection", trace_ids: list[str], corpus: Path, step: int | None) -> int | None:
    """Return the step of median duration on the first rank among those that all ranks have."""
    common = connection.execute(
        """
        SELECT step FROM step WHERE list_contains($1, trace_id) AND step IS NOT NULL
        GROUP BY step HAVING count(DISTINCT trace_id) = len($1)
        ORDER BY max(dur) FILTER (trace_id = $1[1]), step
        """,
        [trace_ids],
    ).fetchall()
    steps = [number for (number,) in common]
    if step is not None and step not in steps:
        known = ", ".join(map(str, sorted(steps))) or "none with a number"
        raise QueryError(f"{corpus}: no step {step} on all ranks asked for; they have {known}")
    return step if step is not None or not steps else steps[(len(steps) - 1) // 2]
