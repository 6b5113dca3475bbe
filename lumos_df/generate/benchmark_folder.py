"""The folder of a benchmark: plan.json, manifest.json and the programs, which need torch and nothing else."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import LumosError, QueryError
from lumos_df.base.files import publish_file, unwritable
from lumos_df.corpus import catalog
from lumos_df.generate.manifest import manifest, manifest_rows, share_pct
from lumos_df.generate.process_group_members import with_members
from lumos_df.generate.profiler_cost import ProfilerCost, profiler_cost
from lumos_df.generate.recorded_ranks import RecordedRanks, recorded_ranks
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import REPLACED, ReplayedCalls, replay
from lumos_df.generate.result_lifetimes import releases
from lumos_df.generate.tensor_sources import tensor_sources
from lumos_df.generate.typical_gaps import TypicalGaps, typical_gaps
from lumos_df.model.library import data_folder

PROGRAMS: Final = (
    "benchmark.py",
    "joined_calls.py",
    "recorded_operators.py",
    "recorded_results.py",
    "recorded_state.py",
    "replayed_step.py",
)
LEAST_SHARE_PCT: Final = 50.0
"""Threshold, percent. A benchmark of a smaller share of the recorded time is refused without --force: most of what it
takes would be other work. Evidence: set; none measured."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written."""

    ranks: int
    operators: int
    """Calls of all ranks."""
    share_pct: float
    replaced_pct: float
    """Of the same time, the part of the share in operators that others stand for."""
    share_is_of: str
    """GPU time or host time."""
    missing: tuple[int, ...]
    """Ranks that are not in it."""


def generate(
    corpus: Path,
    output: Path,
    *,
    job: str | None = None,
    step: int | None = None,
    ranks: str = "all",
    modules: bool = False,
    force: bool = False,
) -> Generated:
    """Write one step of a recorded job as a benchmark.

    Args:
        corpus: the corpus folder.
        output: the folder; made if it is not there, and files of an earlier benchmark in it are written over.
        job: a job's name or a trace of it; needed where the corpus has several.
        step: number of the step; by default that of median duration.
        ranks: `all`, or numbers with commas between.
        modules: keep the names of modules.
        force: also write a benchmark of less than half of the recorded time.

    Raises `LumosError` for a job, step or rank that is not there, for a step of which too little can be replayed, and
    for a folder that cannot be written.
    """
    with catalog.connect(corpus) as connection:
        chosen = recorded_ranks(connection, corpus, job, step, ranks)
        rows = {rank: RecordedRows.read(connection, trace, chosen.step) for rank, trace in chosen.trace_ids.items()}
        replays = {rank: replay(each) for rank, each in rows.items()}
        calls, groups = with_members(
            connection,
            chosen.trace_ids,
            {rank: each.calls for rank, each in replays.items()},
            {rank: each.operators for rank, each in replays.items()},
        )
        released = {
            rank: releases(connection, trace, calls[rank], rows[rank].start_ns, rows[rank].end_ns)
            for rank, trace in chosen.trace_ids.items()
        }
        sources = {
            rank: tensor_sources(
                connection, trace, calls[rank], replays[rank].operators, rows[rank].start_ns, rows[rank].end_ns
            )
            for rank, trace in chosen.trace_ids.items()
        }
        gaps = {
            rank: typical_gaps(connection, trace, chosen.step, calls[rank], rows[rank].start_ns, rows[rank].end_ns)
            for rank, trace in chosen.trace_ids.items()
        }
        profiler = {
            rank: profiler_cost(connection, trace, rows[rank], calls[rank], gaps[rank].own_gap_ns)
            for rank, trace in chosen.trace_ids.items()
        }
    table = manifest_rows(list(replays.values()), list(calls.values()))
    about = _about(chosen, rows, gaps) | manifest(table, list(replays.values()))
    share = share_pct(table, list(replays.values()))
    _check(corpus, table, share, about["share_is_of"], force=force)
    plan = {
        "groups": groups,
        "modules": modules,
        "memory": any(each.list.len().sum() for each in released.values()),
        "ranks": {
            str(rank): _rank(
                rows[rank],
                replays[rank],
                calls[rank].with_columns(releases=released[rank], sources=sources[rank]),
                gaps[rank],
                profiler[rank],
                modules=modules,
            )
            for rank in chosen.trace_ids
        },
    }
    _write(output, plan, about)
    replaced = share_pct(table.filter(pl.col("how") == REPLACED), list(replays.values()))
    return Generated(len(rows), sum(map(len, calls.values())), share, replaced, about["share_is_of"], chosen.missing)


def _about(chosen: RecordedRanks, rows: dict[int, RecordedRows], gaps: dict[int, TypicalGaps]) -> dict[str, Any]:
    return {
        "step": chosen.step,
        "ranks": list(chosen.trace_ids),
        "missing_ranks": list(chosen.missing),
        "recorded_step_ns": {str(rank): each.end_ns - each.start_ns for rank, each in rows.items()},
        "host_gaps_of_steps": {str(rank): each.steps for rank, each in gaps.items()},
        "host_gaps_longer_in_step_ns": {str(rank): each.longer_ns for rank, each in gaps.items()},
    }


def _check(corpus: Path, table: pl.DataFrame, share: float, of: str, *, force: bool) -> None:
    if force or share >= LEAST_SHARE_PCT:
        return
    lost = table.filter(pl.col("how") == "left out").head(3)
    names = ", ".join(f"{name[:60]} ({reason})" for name, reason in lost.select("name", "reason").iter_rows())
    raise QueryError(
        f"{corpus}: {share:.1f}% of the {of} can be replayed, the rest is {names or 'no operator'}; record with shapes "
        "(lumos-df capture, or record_shapes=True), or write what there is with --force"
    )


def _rank(
    rows: RecordedRows,
    replayed: ReplayedCalls,
    calls: pl.DataFrame,
    gaps: TypicalGaps,
    profiler: ProfilerCost,
    *,
    modules: bool,
) -> dict[str, Any]:
    """Return the plan of one rank: columns of its calls, and what they call, each once."""
    order = gaps.order
    amount = "gpu_ns" if replayed.gpu_ns else "host_ns"
    used = calls.group_by("operator", maintain_order=True).agg(pl.col(amount).sum()).with_row_index("number")
    whole = max(1, replayed.gpu_ns or replayed.host_ns)
    numbers = order.join(used, on="operator", maintain_order="left")["number"]
    families = calls.group_by("family").agg(pl.col(amount).sum())
    # Without the name, families of the same time would come in any order, and no two folders be the same.
    families = families.sort(amount, "family", descending=[True, False])
    in_gap = pl.Series("profiler_ns", profiler.in_gap_ns, pl.Int64)
    columns = order.with_columns(numbers.alias("operator"), calls["releases"], calls["sources"], in_gap)
    return {
        "step_ns": rows.end_ns - rows.start_ns,
        "unprofiled_step_ns": profiler.unprofiled_step_ns,
        "last_gap_ns": gaps.last_gap_ns,
        "last_profiler_ns": profiler.in_last_gap_ns,
        "streams": 1 + max(order["stream"].to_list(), default=0),
        "families_ns": dict(families.iter_rows()),
        "operators": [
            replayed.operators[operator] | {"share_pct": round(100 * ns / whole, 4)}
            for operator, ns in used.select("operator", amount).iter_rows()
        ],
        "calls": columns.to_dict(as_series=False) | ({"module": calls["module"].to_list()} if modules else {}),
    }


def _write(output: Path, plan: dict[str, Any], about: dict[str, Any]) -> None:
    """Write the folder's files. Raises `LumosError` where they cannot be written."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            publish_file(output / name, (data_folder() / "benchmark" / name).read_bytes())
        publish_file(output / "manifest.json", _json(about, indent=1))
        publish_file(output / "plan.json", _json(plan))
    except OSError as error:
        raise LumosError(unwritable(output, error)) from None


def _json(value: object, indent: int | None = None) -> bytes:
    separators = None if indent else (",", ":")
    return (json.dumps(value, indent=indent, separators=separators) + "\n").encode()
