"""`lumos_df.Corpus`: what the commands answer, as polars frames."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from lumos_df.advice import job_advice, on_demand
from lumos_df.base.units import format_count, format_ns
from lumos_df.corpus import diff as comparison
from lumos_df.corpus import report
from lumos_df.corpus.catalog import connect, one_line_errors
from lumos_df.corpus.object_store import opened
from lumos_df.graph import run, switches
from lumos_df.structure import describe as structure

if TYPE_CHECKING:
    from pathlib import Path

    from lumos_df.notebook.charts import Charts


class Corpus:
    """A corpus, a folder or the URL of one, opened for reading: every method returns a polars frame.

    Times are nanoseconds where a column's name ends in `_ns`, or is `ts` or `dur`. What was never computed is computed
    when it is first asked for, and kept in the corpus; of a URL in its copy on this machine, which the
    next command that names it stores. All methods raise `LumosError` for what the corpus lacks.
    """

    def __init__(self, path: str | os.PathLike[str] = "corpus") -> None:
        self.path: Path = opened(path)
        """The folder."""
        connect(self.path).close()

    def __repr__(self) -> str:
        return f"Corpus({str(self.path)!r})"

    def __dir__(self) -> list[str]:
        """List what a user may call."""
        return [name for name in (*vars(type(self)), "path") if not name.startswith("_")]

    def sql(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> pl.DataFrame:
        """Return the rows of a DuckDB query over the tables and views; one column each.

        Args:
            query: one statement.
            parameters: values of `?` or `$name` in it.
        """
        on_demand.prepare_query(self.path, query, _quietly)
        with connect(self.path) as connection, one_line_errors():
            return pl.DataFrame(connection.sql(query, params=parameters or None).to_arrow_table())

    def view(self, name: str, job: str | None = None) -> pl.DataFrame:
        """Return a view or stored table, of all jobs or one; a stored table gets the column `job` in front.

        Args:
            name: such as `breakdown`, `kernel_summary`, `straggler`; `docs/sql.md` lists them with their columns.
            job: only the rows of this job.
        """
        columns = self.sql(f"{report.select(name, None)} LIMIT 0").columns
        query = f"FROM {name}"
        if "job" not in columns and "trace_id" in columns:
            query = f"SELECT traces.job, rows.* FROM {name} AS rows JOIN traces USING (trace_id)"
        rows = self.sql(query)
        return rows if job is None or "job" not in rows.columns else rows.filter(pl.col("job") == job)

    def jobs(self) -> pl.DataFrame:
        """Return one row a job: ranks, steps, mean step in ns, where it goes in percent; the view `corpus_summary`."""
        return self.view("corpus_summary")

    def advise(self, job: str | None = None) -> pl.DataFrame:
        """Return what to change and what would not help, one row a change: the view `advice`; gains in ns a step.

        What cannot be said of a job, and that nothing was found, are warnings (`UserWarning`).
        """
        for advised in job_advice.advise(self.path, job):
            for sentence in advised.said_first:
                warnings.warn(f"{advised.job}: {sentence}", stacklevel=2)
        return self.view("advice", job)

    def breakdown(self, job: str | None = None) -> pl.DataFrame:
        """Return where each step of each rank goes, ns: compute, overlapped, exposed waiting and transfer, other."""
        return self.view("breakdown", job)

    def describe(self, job: str | None = None, known: Mapping[str, int] | None = None) -> pl.DataFrame:
        """Return dimensions and degrees of the models that ran, one row each, with what tells them.

        Args:
            job: only this one.
            known: dimensions as you know them: `{"layers": 40}`.
        """
        texts = [f"{name}={value}" for name, value in (known or {}).items()]
        return pl.DataFrame(structure.describe(self.path, None, job, structure.parse_overrides(texts)))

    def replay(
        self,
        job: str | None = None,
        *,
        scale: Sequence[str] = (),
        drop: Sequence[str] = (),
        no_wait: Sequence[str] = (),
        trace: str | None = None,
        step: int | None = None,
    ) -> pl.DataFrame:
        """Return one row a step and rank: the replay beside the recording, or the changed job beside the replay; ns.

        Args:
            job: only this one.
            scale: times to multiply, `["family=gemm:0.5"]`.
            drop: operators to remove, with what they launched: `["name~aten::dropout"]`.
            no_wait: ranks that shall not sleep: `["rank=2"]`.
            trace: id of a trace, or its beginning: only its job.
            step: only this step.
        """
        changes = [
            *map(switches.scale, scale),
            *map(switches.drop, drop),
            *map(switches.no_wait, no_wait),
        ]
        if changes:
            return pl.DataFrame(run.what_if(self.path, changes, trace, step, job))
        trace_ids = run.replay(self.path, trace, step, job=job)
        rows = self.view("replay_error").filter(pl.col("trace_id").is_in(trace_ids))
        return rows if step is None else rows.filter(pl.col("step") == step)

    def critical_path(
        self, job: str | None = None, *, trace: str | None = None, step: int | None = None, gains: bool = False
    ) -> pl.DataFrame:
        """Return what the critical path of each step is made of, one row a kind of piece: ns and percent of the step.

        Args:
            job: only this one.
            trace: id of a trace, or its beginning: only its job.
            step: only this step.
            gains: also simulate what faster operators would gain, for the view `gain`.
        """
        trace_ids = run.replay(self.path, trace, step, job=job, path=True, gains=gains)
        rows = self.view("critical_path_summary").filter(pl.col("trace_id").is_in(trace_ids))
        return rows if step is None else rows.filter(pl.col("step") == step)

    def estimate(
        self,
        job: str | None = None,
        *,
        known: Mapping[str, Any] | None = None,
        keep_stalls: bool = False,
        force: bool = False,
        **settings: Any,
    ) -> pl.DataFrame:
        """Return what becomes of a recorded job, one row a rank and step beside the recording; seconds and ns.

        Args:
            job: the job, where the corpus has several.
            known: dimensions or degrees of the recorded job, and its GPU (`hardware`), over what its traces say.
            keep_stalls: whether what once took far longer than ever else, as the view `stall` lists it, stays.
            force: also estimate what is mostly guessed, and jobs whose replay is far off.
            **settings: what changes, as `estimate --set` takes it: `dp=16, layers=64`.
        """
        from lumos_df.whatif.estimate import estimate  # noqa: PLC0415 - slow to import
        from lumos_df.whatif.job.settings import parse, parse_known  # noqa: PLC0415 - as above

        changes = replace(parse([f"{name}={value}" for name, value in settings.items()]), keep_stalls=keep_stalls)
        texts = [f"{name}={value}" for name, value in (known or {}).items()]
        facts, gpu = parse_known(texts, "known")
        return pl.DataFrame(estimate(self.path, changes, job=job, known=facts, ran_on=gpu, force=force))

    def diff(self, a: str, b: str) -> pl.DataFrame:
        """Return what made the difference of two steps, ns, by cause, layer, phase, family and operator.

        Args:
            a, b: a job's name, or the id of a trace or an estimate; `:N` behind it means step N.
        """
        on_demand.prepare_views(self.path, [comparison.STEP_PIECE], _quietly)
        return pl.DataFrame(comparison.diff(self.path, a, b)[0])

    @property
    def plot(self) -> "Charts":
        """Pictures as Altair charts; needs `pip install lumos-df[plots]`."""
        from lumos_df.notebook.charts import Charts  # noqa: PLC0415 - Altair is an extra

        return Charts(self)

    def _repr_html_(self) -> str:
        """Return the jobs and the first advice of each, for a notebook."""
        on_demand.prepare_views(self.path, ["advice", "corpus_summary"], _quietly)
        summary = report.summary(self.path)
        first = {advice.job: advice for advice in reversed(summary.advice)}
        rows = "".join(_row(job, first.get(job.job)) for job in summary.jobs)
        heads = "".join(f"<th>{title}</th>" for title in ("job", "ranks", "step", "what to change first"))
        return f"<b>{escape(summary.corpus)}</b><table><tr>{heads}</tr>{rows}</table>"


def advise(corpus: str | os.PathLike[str] = "corpus", job: str | None = None) -> pl.DataFrame:
    """Return what to change in the jobs of a corpus, and what would not help: `Corpus(corpus).advise(job)`."""
    return Corpus(corpus).advise(job)


def _quietly(sentence: str) -> None:
    """Say nothing: a frame has no place for it."""


def _row(job: report.JobSummary, advice: report.AdviceSummary | None) -> str:
    step = "" if job.mean_step_ns is None else format_ns(job.mean_step_ns)
    what = "nothing found" if advice is None else f"-{advice.gain_pct:.1f}%: {advice.what} [{advice.known}]"
    cells = (job.job, format_count(job.ranks, "rank"), step, what)
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
