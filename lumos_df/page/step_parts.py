"""Where the step goes: view `breakdown`, a rank and step."""

from operator import itemgetter
from typing import Any, Final

import duckdb

from lumos_df.base.units import format_count, format_ns
from lumos_df.page.section import Budget, Columns, Section, by_job, percent
from lumos_df.schema import STEP_PARTS

_SAID: Final = {"overlapped": "compute with communication beside it", "other": "no kernel on the GPU"}
"""Parts of which a sentence needs more than their label."""


def rows(connection: duckdb.DuckDBPyConnection, budget: Budget) -> dict[str, Columns]:
    """Return a row a rank and step of each job, of as many of its last steps as its budget has bars for."""
    return by_job(
        connection,
        f"""
        WITH latest AS (
          SELECT *, row_number() OVER (PARTITION BY trace_id ORDER BY ts DESC) AS back
          FROM page_step
        ),
        ranks AS (SELECT job, count(*) AS ranks FROM page_trace GROUP BY job)
        SELECT
          job, place, step, step_ns, {", ".join(f"{part.name}_ns" for part in STEP_PARTS)},
          exposed_waiting_ns, exposed_transfer_ns, memory_ns, idle_ns
        FROM latest
        JOIN ranks USING (job)
        WHERE back <= greatest(1, {budget.bars} // ranks)
        ORDER BY job, step, place
        """,
    )


def headline(summary: dict[str, Any]) -> str:
    """Return the job in a sentence; `summary` is its row of `corpus_summary`."""
    if summary["mean_step_ns"] is None:
        return "Nothing was recorded in these traces"
    step = f"{format_ns(summary['mean_step_ns'])} a step on {format_count(summary['ranks'], 'rank')}"
    if not summary["gpu_rows"]:
        return f"{step}; nothing on a GPU was recorded"
    names = {part.name: _SAID.get(part.name, part.label) for part in STEP_PARTS}
    if summary["exposed_waiting_pct"] is not None:
        del names["exposed_communication"]
        names |= {"exposed_waiting": "waiting for other ranks", "exposed_transfer": "exposed transfer"}
    shares = sorted(((summary[f"{name}_pct"] or 0.0, said) for name, said in names.items()), reverse=True)
    return f"{step}: {', '.join(f'{said} {share:.0f}%' for share, said in shares[:2])}"


def breakdown(shown: Columns | None, gpu_rows: int, steps: int, labels: list[str]) -> Section:
    """Return the section of the stacked bars.

    Args:
        shown: the job's `rows`.
        gpu_rows: GPU rows of the job.
        steps: steps of the rank that has the most.
        labels: names of the job's traces.
    """
    if shown is None:
        return Section("No step in these traces", "A trace without a single operator has no time to show.")
    times = list(zip(shown["step_ns"], shown["step"], shown["place"], strict=True))
    (least, *_), (most, step, place) = min(times, key=itemgetter(0)), max(times, key=itemgetter(0))
    between = dict.fromkeys((format_ns(least), format_ns(most)))
    title = f"Steps take {' to '.join(between)}; the longest on rank {labels[place]}"
    if len(times) == 1:
        title = f"One step of one rank: {format_ns(most)}"
    elif step is not None and len(set(shown["step"])) > 1:
        title += f", step {step}"
    if not gpu_rows:
        note = "Record the GPU, too: `torch.profiler` with `ProfilerActivity.CUDA`. Bars show the host's step."
    else:
        note = "Time of each rank and step, by what its GPU did; its parts add up to the step."
        hidden, exposed = sum(shown["overlapped_ns"]), sum(shown["exposed_communication_ns"])
        if hidden + exposed:
            note += f" {percent(hidden, hidden + exposed)} of the communication hides behind compute."
    left_out = steps - len(set(shown["step"]))
    if left_out > 0:
        note += f" The last {steps - left_out} of {steps} steps are shown."
    return Section(title, note, {"steps": shown})
