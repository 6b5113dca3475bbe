"""A corpus to a page: every section of every job, in one file."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from lumos_df.corpus.catalog import connect, one_line_errors
from lumos_df.corpus.limits import of_each_job
from lumos_df.corpus.object_store import as_named
from lumos_df.corpus.output import interruptible, whole_file
from lumos_df.page import (
    advised_changes,
    gpu_usage,
    held_memory,
    jobs,
    kernel_tables,
    ranked_plans,
    replays,
    step_parts,
    step_timeline,
    stragglers,
)
from lumos_df.page.document import render
from lumos_df.page.section import Budget, Section


def write(corpus: str | os.PathLike[str], output: Path, sweep: Path | None = None) -> None:
    """Write the page about a corpus; the file appears whole or not at all.

    Args:
        corpus: the corpus folder.
        output: the file.
        sweep: the folder of a stored sweep whose plans are shown.

    Raises `CorpusError` when there is no corpus, `QueryError` when there is no sweep, `OSError` when the file cannot be
    written.
    """
    with connect(corpus) as connection:
        name = as_named(os.fspath(corpus))
        page = render(interruptible(connection, lambda: collect(connection, name, sweep)))
    with whole_file(output) as draft:
        draft.write_text(page, "utf-8", newline="\n")


def write_sweep(found: pa.Table, output: Path, counted: str) -> None:
    """Write the page about plans that a sweep has found, without any corpus.

    Args:
        found: rows as `estimate.search` returns them.
        output: the file.
        counted: what was looked at and left out, a sentence.

    Raises `OSError` when the file cannot be written.
    """
    plans = ranked_plans.section_of(found)
    page: dict[str, Any] = {
        "corpus": "sweep",
        "option": "",
        "verdict": plans.title if plans else "No plan meets the condition",
        "lead": counted,
        "foot": "Every number is a column of what `lumos-df sweep --format csv` writes.",
        "summaries": [],
        "jobs": [],
        "plans": plans and asdict(plans),
    }
    with whole_file(output) as draft:
        draft.write_text(render(page), "utf-8", newline="\n")


def collect(connection: duckdb.DuckDBPyConnection, corpus: str, sweep: Path | None = None) -> dict[str, Any]:
    """Return what the page holds, ready for JSON.

    Args:
        connection: the corpus, opened.
        corpus: its name, for the commands that the page advises.
        sweep: the folder of a stored sweep whose plans are shown.
    """
    with one_line_errors():
        shown = jobs.prepare(connection)
        summaries = jobs.summaries(connection)
        plans = ranked_plans.section(connection, sweep)
        sections = dict(_sections(connection, shlex.quote(corpus), Budget(max(1, shown)), summaries))
        traces, warnings = jobs.traces(connection), jobs.warnings(connection)
        accuracy, limits = replays.accuracy_rows(connection), of_each_job(connection)
    option = f"--corpus {shlex.quote(corpus)}"
    more = len(summaries) - len(traces)
    return {
        "corpus": corpus,
        "option": option,
        "verdict": plans.title if plans else "No trace yet",
        "lead": "estimates only: no trace is in this corpus"
        if plans
        else f"Add some with: `lumos-df ingest TRACE... {option}`",
        "foot": f"Every number is a row of a view: `lumos-df report {option} --output FOLDER` writes them as CSV."
        + (f" {more} more jobs are in the corpus: `lumos-df report --view corpus_summary {option}`." if more else ""),
        "summaries": summaries,
        "jobs": [
            {
                "headline": _headline(summary, sections[summary["job"]]),
                "summary": summary,
                "traces": traces[summary["job"]],
                "limits": limits.get(summary["job"], []),
                "warnings": warnings.get(summary["job"]),
                "accuracy": accuracy.get(summary["job"]),
                "sections": sections[summary["job"]],
            }
            for summary in summaries
            if summary["job"] in traces
        ],
        "plans": plans and asdict(plans),
    }


def _headline(summary: dict[str, Any], sections: dict[str, dict[str, Any]]) -> str:
    """Return a job in a sentence; records without a step are what they say of memory."""
    if summary["mean_step_ns"] is None and "held" in sections:
        return str(sections["held"]["title"])
    return step_parts.headline(summary)


def _sections(
    connection: duckdb.DuckDBPyConnection, corpus: str, budget: Budget, summaries: list[dict[str, Any]]
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Give each shown job with its sections: a query for all jobs at once, then each job's part."""
    advice = advised_changes.rows(connection)
    step, late = step_parts.rows(connection, budget), stragglers.rows(connection, budget)
    step_timeline.prepare(connection, budget)
    drawn, slices, path = (
        rows(connection) for rows in (step_timeline.rank_rows, step_timeline.slice_rows, step_timeline.path_rows)
    )
    busy, memory = gpu_usage.busy_rows(connection, budget), gpu_usage.memory_rows(connection, budget)
    kernel, family = kernel_tables.kernel_rows(connection), kernel_tables.family_rows(connection)
    collective = kernel_tables.collective_rows(connection)
    error, gain = replays.error_rows(connection, budget), replays.gain_rows(connection)
    kinds, pieces = replays.kind_rows(connection), replays.path_rows(connection)
    held = held_memory.rows(connection)
    traces = jobs.traces(connection)
    for summary in summaries:
        if (job := summary["job"]) not in traces:
            continue
        labels = traces[job]["label"]
        of_job = f"{corpus} --job {shlex.quote(job)}" if len(summaries) > 1 else corpus
        parts: dict[str, Section] = {
            "advice": advised_changes.section(advice.get(job), of_job),
            "breakdown": step_parts.breakdown(step.get(job), summary["gpu_rows"], summary["steps"] or 0, labels),
            "timeline": step_timeline.section(
                drawn.get(job), slices.get(job), path.get(job), labels, summary["steps"] or 0, of_job
            ),
            "path": replays.path(kinds.get(job), pieces.get(job), gain.get(job), error.get(job), of_job),
            "busy": gpu_usage.busy(busy.get(job), labels),
            "kernels": kernel_tables.kernels(kernel.get(job), family.get(job)),
            "collectives": kernel_tables.collectives(collective.get(job)),
            "stragglers": stragglers.section(late.get(job), summary, corpus),
            "memory": gpu_usage.memory(memory.get(job), labels),
        }
        if snapshot := held_memory.section(held, job):
            parts["held"] = snapshot
        yield job, {name: asdict(part) for name, part in parts.items()}
