"""What a corpus says: any view as a file, and a summary that fits on one screen."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from lumos_df.base.errors import QueryError, nearest
from lumos_df.base.files import flush
from lumos_df.base.location import local_path
from lumos_df.base.runner import Engine, map_items, results
from lumos_df.corpus import summaries
from lumos_df.corpus.catalog import connect, connect_engine, one_line_errors
from lumos_df.corpus.column_units import unit_name
from lumos_df.corpus.kept_rows import keep_computed, keep_recorded, recorded
from lumos_df.corpus.layout import check
from lumos_df.corpus.limits import Recorded, limits, unmarked_jobs
from lumos_df.corpus.object_store import as_named
from lumos_df.corpus.output import Format, Result, interruptible, whole_file, write, write_rows
from lumos_df.corpus.summary_notes import Note, notes
from lumos_df.corpus.trace_rows import unanswered
from lumos_df.corpus.view_files import views
from lumos_df.schema import ADVISED_JOBS, JOB_ADVICE, TABLES

if TYPE_CHECKING:
    import duckdb

REPORT_FOLDER: Final = "report"
"""Views in this folder of `sql/` are what a report is made of."""

TOP_KERNELS: Final = 6


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job and where its steps' time goes; times and shares are null where the traces hold no step or no GPU.

    What is known of collectives is null where the job has none on a GPU, and before they are matched.
    """

    job: str
    traces: int
    ranks: int
    device_name: str | None
    steps: int | None
    operators: int
    gpu_rows: int
    mean_step_ns: int | None
    exposed_compute_pct: float | None
    overlapped_pct: float | None
    exposed_communication_pct: float | None
    other_pct: float | None
    repaired: int
    skipped: int
    warnings: int
    exposed_waiting_pct: float | None = None
    """Part of the exposed communication that only waits for other ranks."""
    exposed_transfer_pct: float | None = None
    """The rest of it."""
    collectives: int | None = None
    matched_collectives: int | None = None
    """Those of which kernels of several ranks were found."""
    world_size: int | None = None
    """Ranks of the job as the traces state it."""


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """What the GPUs of a job spent time on; the share is of the time of all GPU rows of the corpus."""

    job: str
    name: str
    family: str
    calls: int
    total_ns: int
    gpu_pct: float


@dataclass(frozen=True, slots=True)
class StragglerSummary:
    """The rank of a job for which other ranks waited longest at collectives."""

    job: str
    rank: int
    collectives: int
    times_last: int
    made_others_wait_ns: int


@dataclass(frozen=True, slots=True)
class AdviceSummary:
    """One change to a job, as the view `advice` has it; times ns a step, `gain_pct` percent of it.

    `trace_id` is that of its first rank, which tells it from another run of its name.
    """

    job: str
    trace_id: str
    place: int
    what: str
    step_ns: int
    gain_ns: int
    gain_pct: float
    low_ns: int
    high_ns: int
    known: str
    rests_on: str
    command: str


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """What is in a corpus, for one screen."""

    corpus: str
    jobs: tuple[JobSummary, ...]
    kernels: tuple[KernelSummary, ...]
    """The longest, longest first."""
    stragglers: tuple[StragglerSummary, ...]
    """One a job that has any, the most waited for first."""
    advice: tuple[AdviceSummary, ...] = ()
    """What to change in each job, the largest gain first; empty before anyone has asked."""
    notes: tuple[Note, ...] = ()
    advised: tuple[str, ...] = ()
    """Jobs of which it is known what to change, be it nothing."""
    limits: tuple[str, ...] = ()
    """What cannot be said of the jobs, and why."""

    def to_json(self) -> str:
        """Return the summary as one JSON object."""
        return json.dumps(asdict(self), indent=2)


Row = TypeVar("Row", JobSummary, KernelSummary, StragglerSummary, AdviceSummary)

_KERNELS: Final = f"""
    SELECT job, name, family, sum(calls)::BIGINT AS calls, try_cast(sum(total_ns) AS BIGINT) AS total_ns,
        round(100 * sum(total_ns) / nullif(sum(sum(total_ns)) OVER (), 0), 1) AS gpu_pct
    FROM kernel_summary
    GROUP BY job, name, family
    HAVING try_cast(sum(total_ns) AS BIGINT) IS NOT NULL
    ORDER BY sum(total_ns) DESC, name
    LIMIT {TOP_KERNELS}
"""

_STRAGGLERS: Final = """
    SELECT job, rank, sum(collectives)::BIGINT AS collectives, sum(times_last)::BIGINT AS times_last,
        sum(made_others_wait_ns)::BIGINT AS made_others_wait_ns
    FROM straggler
    GROUP BY job, rank
    QUALIFY row_number() OVER (PARTITION BY job ORDER BY sum(made_others_wait_ns) DESC, rank) = 1
    ORDER BY sum(made_others_wait_ns) DESC, job
"""


def summary(corpus: str | os.PathLike[str]) -> CorpusSummary:
    """Return what is in a corpus, for one screen. Raises `CorpusError` when there is none."""
    unknown = unanswered(Path(corpus), JOB_ADVICE)
    with connect_engine(corpus) as connection:
        return interruptible(connection, lambda: _summary(connection, as_named(os.fspath(corpus)), unknown))


def _summary(connection: "duckdb.DuckDBPyConnection", corpus: str, unknown: set[str]) -> CorpusSummary:
    """Return the summary of an open corpus; `unknown`: traces of which nobody asked what to change."""
    jobs = _rows(connection, JobSummary, "FROM corpus_summary")
    with one_line_errors():
        off_pct = dict(connection.execute(_OFF).fetchall())
        unmarked = unmarked_jobs(connection)
        ran = connection.execute(
            "SELECT job, sum(operators - others)::BIGINT, count(unknown.trace_id) = 0 "
            "FROM traces LEFT JOIN (SELECT unnest($1::VARCHAR[]) AS trace_id) AS unknown USING (trace_id) "
            "GROUP BY job ORDER BY job",
            [sorted(unknown)],
        ).fetchall()
    operators = {job: operators for job, operators, _ in ran}
    return CorpusSummary(
        corpus,
        jobs,
        _rows(connection, KernelSummary, _KERNELS),
        _rows(connection, StragglerSummary, _STRAGGLERS),
        _rows(connection, AdviceSummary, "FROM advice WHERE worthwhile"),
        tuple(notes(connection, corpus, [job.job for job in jobs if job.traces > job.ranks])),
        tuple(job for job, operators, asked in ran if operators and asked),
        tuple(
            limits(
                Recorded(
                    job.job,
                    job.gpu_rows,
                    job.ranks,
                    job.world_size,
                    off_pct.get(job.job) or 0.0,
                    job.job not in unmarked,
                    operators[job.job],
                )
                for job in jobs
            )
        ),
    )


_OFF: Final = f"""
SELECT job, max(error_pct)
FROM {ADVISED_JOBS.name}
JOIN _job USING (trace_id)
GROUP BY job
"""
"""How far the replayed steps of each job, of its worst run, are off the recorded ones, percent."""


def report_views() -> tuple[str, ...]:
    """Return the names of the views that a report is made of, sorted."""
    return tuple(sorted(view.name for view in views() if view.folder == REPORT_FOLDER and not view.internal))


def select(name: str, form: Format | None) -> str:
    """Return the query for one view or stored table.

    In CSV, whose header is all that a spreadsheet's reader sees, times are called `ts_ns` and `dur_ns`; elsewhere they
    keep their SQL names. Raises `QueryError` for a name that the corpus does not have.
    """
    columns = {view.name: tuple(column.name for column in view.columns) for view in views() if not view.internal}
    columns |= {table.name: tuple(column.name for column in table.columns) for table in TABLES}
    if name not in columns:
        hint = nearest(name, sorted(columns)) or f"; there are {', '.join(sorted(columns))}"
        raise QueryError(f"no view '{name}'{hint}")
    if form is not Format.CSV:
        return f"FROM {name}"
    return f"SELECT {', '.join(map(_with_unit, columns[name]))} FROM {name}"


def export(  # noqa: PLR0913  # each says one thing of what is written
    corpus: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    names: Sequence[str] = (),
    form: Format = Format.CSV,
    *,
    engine: Engine = Engine.SERIAL,
    workers: int | None = None,
    address: str | None = None,
    prepare: Callable[[], None] | None = None,
    before: "Callable[[duckdb.DuckDBPyConnection], None] | None" = None,
) -> tuple[Path, ...]:
    """Write one file a view into `folder`, which is made if it is not there, and return the files.

    Without `names` these are the report's views. Each file appears whole or not at all.

    Args:
        corpus: the corpus folder.
        folder: where to write.
        names: the views.
        form: how to write them.
        engine, workers, address: where each view is asked, as for `runner.map_items`.
        prepare: is called once, and stores what views read that was not recorded; other views are asked meanwhile.
        before: is called with the open corpus after that, before any file appears.

    Raises:
        CorpusError: there is no corpus.
        QueryError: it does not have such a view.
        OSError: a file cannot be written.
    """
    place = local_path(folder)
    queries = {name: select(name, form) for name in names or report_views()}
    files = tuple(place / f"{name}.{form.suffix}" for name in queries)
    if prepare:
        check(Path(corpus))
    # Those of many traces answer from summaries, which are made first.
    if prepare and (engine is not Engine.SERIAL or summaries.many(Path(corpus))):
        prepare()
        prepare = None
    if engine is not Engine.SERIAL:
        if before:
            with connect_engine(corpus) as connection:
                before(connection)
        ask = partial(_show_view, corpus, form)
        each = list(zip(queries, files, strict=True))
        results(map_items(ask, each, engine=engine, workers=workers, address=address))
        return files
    early = recorded(queries) if prepare else []
    # A file waits for the disk, up to a tenth of a second, while the next views are asked.
    with connect_engine(corpus) as connection, ExitStack() as written, ThreadPoolExecutor() as publishers:
        types = interruptible(connection, partial(_types, connection))

        def draft(name: str) -> ExitStack:
            own = {unit_name(column) if form is Format.CSV else column: kind for column, kind in types[name].items()}
            unpublished = written.enter_context(ExitStack())
            path = unpublished.enter_context(whole_file(place / f"{name}.{form.suffix}", listed=False))
            write_rows(connection, queries[name], own, form, path)
            return unpublished

        def begin() -> list[ExitStack]:
            keep_recorded(connection, queries)
            return [draft(name) for name in early]

        with _meanwhile(connection, begin) as begun:
            if prepare:
                prepare()
        interruptible(connection, partial(keep_computed, connection, queries))
        if before:
            before(connection)
        published = [publishers.submit(unpublished.close) for unpublished in begun.result()]
        published += [publishers.submit(draft(name).close) for name in queries if name not in early]
        for file_published in published:
            file_published.result()
    flush(place)
    return files


_AGAIN_S: Final = 0.05
"""How often queries that go on are interrupted."""


@contextmanager
def _meanwhile(connection: "duckdb.DuckDBPyConnection", work: Callable[[], Result]) -> Iterator[Future[Result]]:
    """Run `work`, which queries `connection`, beside the block; an error of the block ends it and is the one raised."""
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        try:
            yield future
            future.result()
        except BaseException:
            # What comes between two queries ends neither: the next one has begun when it is said again.
            while not future.done():
                connection.interrupt()
                wait([future], timeout=_AGAIN_S)
            raise


def _types(connection: "duckdb.DuckDBPyConnection") -> dict[str, dict[str, str]]:
    """Return the columns of each view and stored table, and their types, as the catalogue has them."""
    types: dict[str, dict[str, str]] = {}
    columns = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = current_database()"
    with one_line_errors():
        for table, column, kind in connection.execute(columns).fetchall():
            types.setdefault(table, {})[column] = kind
    return types


def _show_view(corpus: str | os.PathLike[str], form: Format, view: tuple[str, Path]) -> None:
    show(corpus, view[0], form, view[1])


def show(corpus: str | os.PathLike[str], name: str, form: Format | None, output: Path | None = None) -> None:
    """Write one view to a file, or to standard output, as `output.write` does; raises as `export` does."""
    query = select(name, form)
    with connect(corpus) as connection:
        write(connection, query, form, output)


def _with_unit(column: str) -> str:
    named = unit_name(column)
    return f'"{column}"' if named == column else f'"{column}" AS {named}'


def _rows(connection: "duckdb.DuckDBPyConnection", kind: type[Row], source: str) -> tuple[Row, ...]:
    columns = ", ".join(field.name for field in fields(kind))
    with one_line_errors():
        rows = connection.execute(f"SELECT {columns} FROM ({source})").fetchall()
    return tuple(kind(*row) for row in rows)
