"""What cannot be said of the jobs of a corpus, and why: the first lines of whatever is said of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lumos_df.corpus.view_files import readers, views
from lumos_df.schema import (
    COLLECTIVE_MEMBERS,
    COLLECTIVE_RECORDS,
    CRITICAL_PATH,
    DIALECTS,
    GAINS,
    JOB_ADVICE,
    MEMORY_EVENTS,
    MEMORY_HISTORY,
    MEMORY_SEGMENTS,
    OPERATORS,
    REPLAY_STEPS,
)
from lumos_df.schema.dialects import Dialect
from lumos_df.schema.sampled_files import FILES

if TYPE_CHECKING:
    import duckdb

TRUSTED_PCT: Final = 5.0
"""Threshold, percent of the step. A replay that is further off is said to be so before anything else. Evidence: a
judgement; a change of settings may be off by as much."""
NOTHING: Final = "nothing can be said: no trace is in the corpus; lumos-df ingest TRACE... adds some"
_OF_THESE: Final = "who is late, and what a change brings to the others, is known of these alone"
NO_LENGTH: Final = "nothing to replay: no step has a length"
RECORDING: Final = "breakdown"
"""View that lacks what was not recorded, and nothing that a replay finds."""
_NAMED: Final = 3
"""Jobs that a line names."""
_OF_EVENTS: Final = (OPERATORS, MEMORY_EVENTS, MEMORY_HISTORY, MEMORY_SEGMENTS, COLLECTIVE_RECORDS)
"""Tables that a view has its rows from, where some formats cannot fill it."""
_ALWAYS: Final = "corpus_summary"
"""View with a row a job, whatever was recorded."""
_LAUNCHES: Final = frozenset({"launch", "launch_latency", "queue_depth"})
"""Views of launches alone."""
_GPU, _STEP, _SAME = "_gpu", "_step", "_job"
"""Views that all others are made of which are about GPUs, steps, or recorded traces."""

_RECORDED: Final = f"""
    SELECT
        job, sum(kernels + memcpys + memsets)::BIGINT, count(DISTINCT rank), max(world_size),
        sum(operators - others)::BIGINT, sum(runtime_calls)::BIGINT, count(DISTINCT path),
        max(try_cast(replace(regexp_extract(array_to_string(warnings, chr(10)), '{FILES}', 1), ',', '') AS BIGINT))
    FROM traces
    WHERE $1 IS NULL OR list_contains($1, trace_id)
    GROUP BY job
    ORDER BY job
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """How much of a job was recorded, and how far its replay is off that."""

    job: str
    gpu_rows: int
    ranks: int
    world_size: int | None
    """Ranks of the job as the traces state it; None where they do not."""
    error_pct: float = 0.0
    """Distance of the replay from the recording, percent of the step; 0 where it was not replayed."""
    marked: bool = True
    """Whether something marks its steps."""
    operators: int = 1
    """Rows of the job that were recorded: not those of the operating system, nor of the profiler."""
    calls: int = 1
    """Calls of CUDA or HIP; where there is none, nothing says what launched a GPU row."""
    files: int = 0
    """Files of the job that are in the corpus."""
    sampled: int | None = None
    """Files that the job has; None where the corpus was not told to take some of them."""


def limits(jobs: Iterable[Recorded]) -> Iterator[str]:
    """Give one sentence for each thing that lacks in some of the jobs; jobs are named where there are several."""
    every = list(jobs)
    of_all = len(every) == 1
    if empty := [job.job for job in every if not job.operators]:
        where = "" if of_all else f" of {_listed(empty)}"
        yield f"nothing can be said of steps and GPUs{where}: no operator, call or GPU row was recorded"
    every = [job for job in every if job.operators]
    if hosts := [job.job for job in every if not job.gpu_rows]:
        where = "" if of_all else f" of {_listed(hosts)}"
        yield f"only the host{where} is known: no GPU row was recorded"
    if silent := [job.job for job in every if job.gpu_rows and not job.calls]:
        where = "" if of_all else f" of {_listed(silent)}"
        yield f"no launch{where} is known: no call of CUDA or HIP was recorded"
    if parts := [job for job in every if job.world_size and job.ranks < job.world_size]:
        names = _listed([f"{'' if of_all else f'{job.job} '}{job.ranks} of {job.world_size:,}" for job in parts])
        verb = "is" if len(parts) == 1 and parts[0].ranks == 1 else "are"
        where = f"{names} ranks {verb} here" if of_all else f"not all ranks are here ({names})"
        yield f"{where}: {_OF_THESE}"
    if some := [job for job in every if not job.world_size and job.files < (job.sampled or 0)]:
        names = _listed([f"{'' if of_all else f'{job.job} '}{job.files:,} of {job.sampled:,}" for job in some])
        verb = "is" if len(some) == 1 and some[0].files == 1 else "are"
        where = f"{names} files {verb} here" if of_all else f"not all files are here ({names})"
        yield f"{where}: {_OF_THESE}"
    if whole := [job.job for job in every if not job.marked]:
        where = "the recording" if of_all else f"of {_listed(whole)} the whole recording"
        yield f"no step is marked: {where} counts as one, from first to last work"
    if off := [job for job in every if job.error_pct > TRUSTED_PCT]:
        names = _listed([f"{'' if of_all else f'{job.job} '}{job.error_pct:.1f}%" for job in off])
        yield f"careful: the replay is off the recording ({names}), and so may be every gain"


def of_views(
    connection: "duckdb.DuckDBPyConnection", names: Iterable[str], trace_ids: Sequence[str] | None = None
) -> list[str]:
    """Return what some views of an open corpus cannot say, of all its jobs or those of some traces, and why.

    What is no view over recorded traces has no limits.
    """
    asked = {name.lower() for name in names}
    replayed = _reading(REPLAY_STEPS.name, CRITICAL_PATH.name, GAINS.name, JOB_ADVICE.name)
    relevant = replayed | _reading(_GPU, _STEP, COLLECTIVE_MEMBERS.name)
    if not asked & relevant:
        return [*_unfilled(connection, asked, trace_ids)]
    jobs = _recorded(connection, trace_ids)
    if not jobs:
        return [NOTHING]
    unfilled = [*_unfilled(connection, asked, trace_ids)] if any(job.operators for job in jobs) else []
    rows = _of_rows(asked)
    if rows and rows <= frozenset[str]().union(*(each.records for each in _dialects(connection, trace_ids))):
        jobs = [job for job in jobs if job.operators]
    if not asked & (replayed | _reading(_GPU)):
        jobs = [replace(job, gpu_rows=1) for job in jobs]
    if not asked & (replayed | _reading(COLLECTIVE_MEMBERS.name)):
        jobs = [replace(job, world_size=None, sampled=None) for job in jobs]
    if not asked & _LAUNCHES:
        jobs = [replace(job, calls=1) for job in jobs]
    if asked & _reading(_STEP):
        unmarked = unmarked_jobs(connection)
        jobs = [replace(job, marked=job.job not in unmarked) for job in jobs]
    if asked & replayed:
        off = _errors(connection)
        jobs = [replace(job, error_pct=off.get(job.job, 0.0)) for job in jobs]
    return [*limits(jobs), *unfilled]


def _unfilled(
    connection: "duckdb.DuckDBPyConnection", asked: set[str], trace_ids: Sequence[str] | None
) -> Iterator[str]:
    """Give a sentence where views, or columns of theirs, are asked for that no file of the corpus can fill."""
    of_rows = [view for view in views() if view.name in _of_rows(asked)]
    known = _dialects(connection, trace_ids) if of_rows else []
    if not known:
        return
    empty = [view.name for view in of_rows if not any(each.fills(view.name) for each in known)]
    null = {
        column.name: None
        for view in of_rows
        if view.name not in empty
        for column in view.columns
        if column.name in asked and not any(each.fills(view.name, column.name) for each in known)
    }
    if what := [*empty, *null]:
        *names, last = dict.fromkeys(each.name for each in known)
        files = f"{', '.join(names)} and {last}" if names else last
        yield f"nothing in files of {files} fills {', '.join(what)}"


def _of_rows(asked: set[str]) -> frozenset[str]:
    """Return the views among some words that have no row where nothing of their kind was recorded."""
    return _reading(*(table.name for table in _OF_EVENTS)) & asked - {_ALWAYS}


def _dialects(connection: "duckdb.DuckDBPyConnection", trace_ids: Sequence[str] | None) -> list[Dialect]:
    """Return what all traces, or some, are written in; none where one is not known."""
    written = "SELECT DISTINCT dialect FROM traces WHERE $1 IS NULL OR list_contains($1, trace_id) ORDER BY dialect"
    dialects = [dialect for (dialect,) in connection.execute(written, [trace_ids]).fetchall()]
    # A corpus of another version may have others.
    return [DIALECTS[dialect] for dialect in dialects] if DIALECTS.keys() >= set(dialects) else []


def of_each_job(connection: "duckdb.DuckDBPyConnection") -> dict[str, list[str]]:
    """Return what cannot be said of each job of an open corpus, whose replays are stored, and why."""
    unmarked, off = unmarked_jobs(connection), _errors(connection)
    return {
        job.job: [*limits([replace(job, marked=job.job not in unmarked, error_pct=off.get(job.job, 0.0), calls=1)])]
        for job in _recorded(connection, None)
    }


def _recorded(connection: "duckdb.DuckDBPyConnection", trace_ids: Sequence[str] | None) -> list[Recorded]:
    rows = connection.execute(_RECORDED, [trace_ids]).fetchall()
    return [
        Recorded(job, gpu_rows, ranks, world, operators=operators, calls=calls, files=files, sampled=sampled)
        for job, gpu_rows, ranks, world, operators, calls, files, sampled in rows
    ]


def _errors(connection: "duckdb.DuckDBPyConnection") -> dict[str, float]:
    """Return how far the worst replayed step of each job is off, percent."""
    query = "SELECT job, max(abs(error_pct)) FROM replay_error GROUP BY job"
    return {job: error or 0.0 for job, error in connection.execute(query).fetchall()}


def unmarked_jobs(connection: "duckdb.DuckDBPyConnection") -> frozenset[str]:
    """Return the jobs of an open corpus in which nothing marks a step."""
    query = f"SELECT job FROM {_STEP} JOIN {_SAME} USING (trace_id) GROUP BY job HAVING count(step) = 0"
    return frozenset(job for (job,) in connection.execute(query).fetchall())


def _reading(*names: str) -> frozenset[str]:
    return frozenset[str]().union(*map(readers, names))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
