"""An estimate on one screen: the step with its interval, where it goes, memory, and how it is known.

A plan that never ran is drawn without polars, pyarrow and DuckDB, and a changed job without polars: to import them
takes longer than to estimate it.
"""

import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from lumos_df.base.units import format_count, format_ns
from lumos_df.cli.screens.terminal import (
    change_ns,
    change_of,
    console,
    say,
    say_headline,
    say_next,
    say_notes,
    say_row,
    where,
)
from lumos_df.estimate.sensible_plans import RECOMPUTED, TRIED
from lumos_df.model.plan import SHORT, Plan
from lumos_df.schema import STEP_PARTS
from lumos_df.schema.parts import ON_GPU
from lumos_df.schema.rankings import what_to_measure

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from lumos_df.estimate.configuration import Estimate

_CAUSES: Final = 3
_COMMUNICATION: Final = ("tp", "cp", "ep", "pp", "dp")
_MEMORY: Final = ("activations", "gradients", "weights", "optimizer", "logits", "reserve")
_SHOWN_BYTES: Final = 50_000_000
"""What of a memory's difference is shown: with a decimal of 10^9 bytes less is nothing."""
_HOW_KNOWN: Final = ("kernels and collectives", "software")
_LISTED: Final = re.compile(r" \(|: |; ")


def draw_plan(estimate: "Estimate", model: str, hardware: str) -> None:
    """Print what a plan that never ran would take; `model` and `hardware` as they were asked for."""
    screen, said = console(), estimate.answers
    step = float(said["iteration_time_s"])
    fit = "fits" if said["fits"] else "does not fit"
    room = float(said["memory_gb"]) + float(said["memory_margin_gb"])
    say_headline(
        screen,
        (f"{seconds(step)} a step", "bold"),
        f" ({seconds(float(said['low_s']))} to {seconds(float(said['high_s']))}, 8 times of 10)",
        f"    {said['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU",
        f"    MFU {said['mfu_pct']:.0f}%",
        f"    {fit}: {said['memory_gb']:.0f} of {room:.0f} GB",
        f"    {estimate.model.seq:,} tokens a sequence",
    )
    share = {name: 100 * float(said[f"{name}_s"]) / step for name in (part.name for part in STEP_PARTS)}
    exposed = {name: 100 * float(said[f"{name}_exposed_s"]) / step for name in _COMMUNICATION}
    host = 100 * float(said["host_s"]) / step
    parts = ", ".join(f"{name} {pct:.0f}" for name, pct in exposed.items() if round(pct))
    say(
        screen,
        f"compute {share['exposed_compute']:.0f}%   exposed communication {share['exposed_communication']:.0f}%"
        + (f" ({parts})" if parts else "")
        + f"   overlapped {share['overlapped']:.0f}%   bubble {100 * float(said['bubble_s']) / step:.0f}%"
        + (f"   host {host:.0f}%" if round(host) else ""),
        before=" ",
    )
    pieces = sorted(((float(said[f"{name}_gb"]), name) for name in _MEMORY), reverse=True)
    named = [f"{'libraries' if name == 'reserve' else name} {size:.1f}" for size, name in pieces if size >= 0.05]
    say(screen, f"{', '.join(named)} GB", before=" memory: ")
    known = estimate.to_dict()["provenance"]
    # What a source goes on to list is in `--format json`.
    begun = (_LISTED.split(str(known[name]))[0] for name in _HOW_KNOWN if name in known)
    say(screen, "; ".join(begun), before=" how known: ")
    plan = estimate.plan
    same = replace(plan, **{name: getattr(Plan(), name) for name in TRIED}).text()
    fixed = [same] if same else []
    if plan.recompute not in RECOMPUTED:
        fixed.append(f"recompute={'|'.join((*RECOMPUTED, plan.recompute))}")
    sweep = f"sweep --model {model} --hardware {hardware} --gpus {plan.gpus} --batch {plan.batch}"
    say_next(screen, sweep + (f" --plan {shlex.quote(','.join(fixed))}" if fixed else ""))


def draw_held(corpus: Path, estimate: str) -> None:
    """Print where the memory of a stored estimate differs from what a snapshot of its job holds, if there is one."""
    from lumos_df.corpus.catalog import connect, query  # noqa: PLC0415 - imports DuckDB

    with connect(corpus) as connection:
        columns = "category, coalesce(held_bytes, 0), difference_bytes"
        found = query(connection, f"SELECT {columns} FROM estimate_vs_held WHERE trace_id = '{estimate}'").fetchall()
    if not found:
        return
    (_, held, whole), *kinds = found
    parts = ", ".join(f"{kind} {more / 1e9:+.1f}" for kind, _, more in kinds if abs(more) >= _SHOWN_BYTES)
    say(
        console(),
        f"{held / 1e9:.1f} GB held at the peak; the estimate without libraries has {whole / 1e9:+.1f}"
        + (f": {parts}" if parts else ""),
        before=" snapshot: ",
    )


def seconds(amount: float) -> str:
    """Return a time of the model, s, as a person writes it."""
    return format_ns(round(amount * 1e9))


def draw_changed(
    rows: "pa.Table", changes: list[str], corpus: Path, job: str, asked: str, *, full: bool, some: bool = False
) -> None:
    """Print what becomes of recorded jobs.

    Args:
        rows: as `whatif.estimate.estimate` returns them.
        changes: what was asked for.
        corpus: of the jobs.
        job: options that say which jobs; nothing for all.
        asked: all other options, as a shell takes them.
        full: whether to print every step of every rank.
        some: whether other jobs were meant, too, which cannot change so.
    """
    screen = console()
    say(screen, "with " + (" ".join(changes) if changes else "nothing changed: the recorded job, replayed"))
    jobs = _by_job(rows)
    runs = _runs(corpus) if some else Counter(str(_first(steps, "job")) for steps in jobs)
    for steps in jobs:
        _draw_step(screen, steps, f" ({_first(steps, 'trace_id')})" if runs[_first(steps, "job")] > 1 else "")
        if full or len(jobs) == 1:
            _draw_parts(screen, steps, _device(corpus, str(_first(steps, "trace_id")), changes), full=full)
    several = any(runs[_first(steps, "job")] > 1 for steps in jobs)
    if len(jobs) == 1 and some:
        which = ("--trace", "trace_id") if several else ("--job", "job")
        job = shlex.join([which[0], str(_first(jobs[0], which[1]))])
    elif len(jobs) > 1:
        job = "--trace ID" if several else "--job NAME"
    words = ["estimate", job, asked, *(["--format csv"] if len(jobs) == 1 else [])]
    say_next(screen, " ".join(filter(None, words)) + where(corpus))


def _runs(corpus: Path) -> Counter[str]:
    """Return how many runs a corpus has of each job's name."""
    from lumos_df.graph.job import jobs  # noqa: PLC0415 - slow to import

    return Counter(job.name for job in jobs(corpus))


def _by_job(rows: "pa.Table") -> "list[pa.Table]":
    """Return the rows of each job: those of one come by rank, and of one name one behind another."""
    import numpy as np  # noqa: PLC0415 - not for a plan

    job, trace, rank = (np.array(rows[name].to_pylist()) for name in ("job", "trace_id", "rank"))
    again = (rank[1:] <= rank[:-1]) & (trace[1:] != trace[:-1])
    ends = [*np.flatnonzero((job[1:] != job[:-1]) | again) + 1, len(rows)]
    return [rows.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False) if end > begin]


def _first(steps: "pa.Table", column: str) -> Any:
    return steps[column][0].as_py()


def _whole(steps: "pa.Table") -> "pa.Table":
    """Return the rows of steps that waited for nothing but what was recorded; all where none is so."""
    import numpy as np  # noqa: PLC0415 - not for a plan

    seen = np.flatnonzero(~np.array(steps["waits_unseen"].to_pylist(), np.bool_))
    return steps.take(seen) if len(seen) else steps


def _draw_step(screen: Console, steps: "pa.Table", which: str) -> None:
    """Print what the step of a job becomes; `which`: which of several of that name."""
    steps = _whole(steps)
    old, new = _mean(steps, "original_iteration_time_s"), _mean(steps, "iteration_time_s")
    low, high = _mean(steps, "low_s"), _mean(steps, "high_s")
    change = f"{change_ns(1e9 * (new - old))}, {change_of(old, new)}" if old else "-"
    say_headline(
        screen,
        (str(_first(steps, "job")), "bold"),
        f"{which}, {seconds(old)} a step -> {seconds(new)}",
        f" ({seconds(low)} to {seconds(high)}, 8 times of 10)",
        f"   ({change})",
    )
    if left_out := round(_mean(steps, "left_out_ns")):
        say(screen, f"{'left out, came once':<26}{format_ns(left_out):>9}", before="  ")


def _device(corpus: Path, trace_id: str, changes: list[str]) -> str:
    """Return what to call what a job runs on: as the trace names it, unless other hardware is asked for."""
    from lumos_df.graph.rows import about  # noqa: PLC0415 - slow to import
    from lumos_df.whatif.pipeline.staged_job import recorded_trace  # noqa: PLC0415 - slow to import

    named = str(about(corpus, recorded_trace(trace_id), "device_name")["device_name"] or "")
    moved = any("hardware=" in change for change in changes)
    return "TPU" if named.startswith("TPU") and not moved else "GPU"


def _draw_parts(screen: Console, steps: "pa.Table", device: str, *, full: bool) -> None:
    """Print where the step of a job goes, and how that is known; `device`: what it runs on."""
    every, steps = steps, _whole(steps)
    on_host = not any(_mean(steps, f"{side}{part.name}_ns") for part in ON_GPU for side in ("original_", ""))
    for part in () if on_host else STEP_PARTS:
        _line(screen, steps, part.name, part.label)
        if part.name == "exposed_communication" and steps["exposed_waiting_s"].null_count < len(steps):
            _line(screen, steps, "exposed_waiting", "  of that only waiting")
    device = "rank" if on_host else device
    about = [format_count(round(_mean(steps, "gpus")), device)] if steps["gpus"].null_count < len(steps) else []
    about += [text.format(_mean(steps, name), device) for name, text in _RATES if steps[name].null_count < len(steps)]
    if steps["memory_gb"].null_count < len(steps):
        too_much = ", does not fit" if _first(steps, "fits") is False else ""
        about.append(f"memory {_mean(steps, 'memory_gb'):.3g} GB{too_much}")
    if about:
        say(screen, "   ".join(about), before="  ")
    shares = [f"{_mean(steps, name):.0f}% {name.removesuffix('_pct')}" for name in _shares(steps)]
    say(screen, ", ".join(shares), before="  how known: ")
    wide = [
        high / max(low, 1e-12)
        for low, high in zip(*(steps[name].to_pylist() for name in ("low_s", "high_s")), strict=True)
    ]
    causes = steps["causes"][wide.index(max(wide))].as_py()
    say(screen, ", ".join(causes[: None if full else _CAUSES]) or "nothing", before="  interval from: ")
    for row in every.to_pylist() if full else ():
        step = "" if row["step"] is None else f" step {row['step']}"
        times = f"{seconds(row['original_iteration_time_s']):>9} -> {seconds(row['iteration_time_s']):>9}"
        say(screen, f"rank {row['rank']}{step}: {times}", before="  ")
    say_notes(screen, _first(steps, "warnings"), full=full)


_RATES: Final = (("tokens_per_s_per_gpu", "{:,.0f} tokens/s/{}"), ("mfu_pct", "MFU {:.0f}%"))


def _shares(steps: "pa.Table") -> list[str]:
    """Return the columns that say how the GPU's time is known and are not zero."""
    rates = {name for name, _ in _RATES} | {"hfu_pct"}
    names = [
        name for name in steps.column_names if name.endswith("_pct") and not name.startswith(("original_", "unscaled_"))
    ]
    return [name for name in names if name not in rates and _mean(steps, name) >= 0.5]


def _line(screen: Console, steps: "pa.Table", name: str, label: str) -> None:
    before, after = _mean(steps, f"original_{name}_ns"), _mean(steps, f"{name}_ns")
    both = f"{format_ns(round(before)):>9} -> {format_ns(round(after)):>9}"
    say(screen, f"{label:<26}{both}  {change_ns(after - before):>10}", before="  ")


def _mean(steps: "pa.Table", column: str) -> float:
    known = [value for value in steps[column].to_pylist() if value is not None]
    return sum(known) / len(known) if known else 0.0


_ALWAYS: Final = ("tp", "pp", "dp", "micro_batch", "zero", "recompute")
"""Fields of a plan that are always shown."""
_SWEPT: Final = (
    *("vp", "cp", "ep", "etp", "batch", "schedule", "precision", "sequence_parallel", "software"),
    *("lora", "lora_targets", "dp_replicate", "offload_optimizer"),
)
"""Fields that are shown where plans differ in them."""
_FIGURES_WIDE: Final = 56
"""Columns of a line besides the fields of the plan; fields that leave no room for them are in `--format csv` alone."""


_SAID: Final = {"True": "on", "False": "off"}
"""How a plan's switches are written."""


def draw_sweep(best: "pl.DataFrame", shown: int, counted: str, command: str) -> None:
    """Print the plans that a search has found, ranked.

    Args:
        best: the plans, one at least.
        shown: how many of them to print.
        counted: how many there were.
        command: what tells more of the first, before its plan; empty where nothing does.
    """
    screen = console()
    say(screen, counted)
    alike, best = _alike(best), best.head(shown)
    named = [name for name in ("model", "hardware") if best[name].n_unique() > 1]
    swept = [name for name in _SWEPT if name in best.columns and _differs(best, name)]
    fields = [*named, *_ALWAYS, *swept]
    words = {name: [_SAID.get(str(value), str(value)) for value in best[name].to_list()] for name in fields}
    titles = {name: SHORT.get(name, name) for name in fields}
    widths = {name: max(len(titles[name]), *map(len, words[name])) for name in fields}
    while sum(widths[name] + 1 for name in fields) > screen.width - _FIGURES_WIDE and len(fields) > len(_ALWAYS):
        fields.pop()
    same = [f"{name}={best[name][0]}" for name in _SWEPT if name in best.columns and best[name].n_unique() == 1]
    unusual = [text for text in same if text.partition("=")[0] in ("cp", "ep") and not text.endswith("=1")]
    if unusual:
        say(screen, f"all of them with {', '.join(unusual)}")
    header = " ".join(f"{titles[name]:>{widths[name]}}" for name in fields)
    say(screen, (f"  #  {header}      step  (range)               MFU   memory", "bold"))
    for place, row in enumerate(best.iter_rows(named=True)):
        plan = " ".join(f"{words[name][place]:>{widths[name]}}" for name in fields)
        between = f"{seconds(row['low_s'])}-{seconds(row['high_s'])}"
        figures = (
            f"{seconds(row['iteration_time_s']):>9}  {between:<19} {row['mfu_pct']:5.0f}%   {row['memory_gb']:.0f} GB"
        )
        say_row(screen, f"{place + 1:>3}  {plan} ", figures)
    if alike > 1:
        say(screen, what_to_measure(alike) + (f" ({alike - shown} more: --full)" if alike > shown else ""))
    if command:
        first = Plan(**best.select(list(vars(Plan()))).row(0, named=True))
        say_next(screen, f"{command} --plan {first.text()}")


def _differs(best: "pl.DataFrame", name: str) -> bool:
    """Return whether plans differ in a field in a way that no other field tells."""
    values = set(best[name].to_list())
    return len(values) > 1 and not (name == "schedule" and values == {"1f1b", "interleaved"})


def _alike(best: "pl.DataFrame") -> int:
    """Return how many of the first plans lie in the interval of the first one, and it in theirs."""
    first = best.row(0, named=True)
    near = (best["iteration_time_s"] <= first["high_s"]) & (best["low_s"] <= first["iteration_time_s"])
    return int(near.cast(int).cum_min().sum())
