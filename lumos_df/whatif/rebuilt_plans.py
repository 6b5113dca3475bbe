"""The best plans of a sweep as graphs: each is read as a change of the recorded job, rebuilt and run again."""

from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import LumosError, PlanError, QueryError
from lumos_df.estimate.grid import Grid
from lumos_df.graph.job import groups
from lumos_df.model.hardware import Hardware
from lumos_df.model.transformer import Model
from lumos_df.schema.dtypes import PRECISION_OF_WORD
from lumos_df.schema.plan_words import RECOMPUTATIONS, RECOMPUTE_LIGHT
from lumos_df.whatif.answer import estimated_traces as traces
from lumos_df.whatif.answer import modelled, step_rows
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.changed_sizes import changed_sizes
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import Settings

_OF_MODEL: Final = ("layers", "hidden", "ffn", "heads", "seq", "vocab")
_OF_PLAN: Final = ("tp", "pp", "vp", "dp", "cp", "micro_batch")
_ALONE: Final = {"ep": 1, "etp": 1, "lora": 0, "dp_replicate": 1, "offload_optimizer": False}
"""Fields of a plan of which a rebuilt graph has only this."""
_SCHEMA: Final = {
    "rebuilt_s": pl.Float64,
    "rebuilt_low_s": pl.Float64,
    "rebuilt_high_s": pl.Float64,
    "rebuilt": pl.String,
}


def anchor_of(corpus: Path, job: str | None) -> RecordedJob:
    """Return the job that plans are rebuilt from. Raise `LumosError` where there is none, or more than one."""
    jobs = groups(corpus, name=job)
    if len(jobs) > 1 and job is not None:
        why = f"'{job}' is several runs of one rank, and plans are rebuilt from one"
        raise QueryError(f"{corpus}: {why}; ingest each with a --job of its own")
    if len(jobs) > 1:
        raise QueryError(f"{corpus}: {len(jobs)} jobs to rebuild plans from; name one with --job NAME")
    return load(corpus, jobs[0], {})


def model_of(anchor: RecordedJob) -> Model:
    """Return the model that a job ran. Raise `LumosError` where the trace does not tell it."""
    return modelled.model(anchor, anchor.sizes, modelled.habits(anchor))


def hardware_of(anchor: RecordedJob) -> Hardware:
    """Return the GPU that a job ran on. Raise `QueryError` where the library does not have it, or there was none."""
    if all(map(host_times.runs_here, anchor.job.graphs)):
        raise QueryError(
            f"{anchor.about.job}: the job ran on no GPU, so there are no kernels to score plans by; leave out --corpus "
            "and name --model and --hardware"
        )
    if not anchor.known_hardware:
        raise QueryError(f"{anchor.about.job}: {'; '.join(anchor.warnings)}; name the GPU with --hardware")
    return anchor.hardware


def rebuilt(
    best: pl.DataFrame, grid: Grid, corpus: Path, job: str | None, count: int, into: Path | None
) -> pl.DataFrame:
    """Rebuild the first plans of a sweep; return all of them with rebuilt_s, rebuilt_low_s, rebuilt_high_s and rebuilt.

    The times are those of the slowest rank, of the step of median length; `rebuilt` says what was changed, or why a
    plan cannot be rebuilt. The order stays.

    Args:
        best: rows of a search.
        grid: what was searched.
        corpus: the corpus with the recorded job.
        job: which one, where it has several.
        count: how many rows to rebuild.
        into: a corpus to store the rebuilt jobs in.
    """
    models = {model.name: model for model in grid.models}
    answers: list[dict[str, Any]] = []
    try:
        anchor = anchor_of(corpus, job)
    except QueryError as error:
        answers = [{"rebuilt": f"not rebuilt: {error}"}] * min(count, len(best))
    else:
        does = modelled.habits(anchor)
        answers = [
            _answer(anchor, does, row, models[row["model"]], corpus, into)
            for row in best.head(count).iter_rows(named=True)
        ]
    untried: list[dict[str, Any]] = [{}] * (len(best) - len(answers))
    return best.hstack(
        pl.DataFrame([dict.fromkeys(_SCHEMA) | answer for answer in [*answers, *untried]], schema=_SCHEMA)
    )


def _answer(
    anchor: RecordedJob, does: modelled.Habits, row: dict[str, Any], model: Model, corpus: Path, into: Path | None
) -> dict[str, Any]:
    try:
        settings, kept = _settings(anchor, does, row, model)
        made = estimated(anchor, settings)
        if into is not None:
            traces.write(made, corpus, into, str(settings) or "unchanged")
    except LumosError as error:
        return {"rebuilt": f"not rebuilt: {error}"}
    names = ("iteration_time_s", "low_s", "high_s")
    slowest = pl.DataFrame(step_rows.rows(made)).group_by("step").agg(pl.max(*names)).sort("iteration_time_s")
    step = slowest.row((len(slowest) - 1) // 2, named=True)
    how = f"{anchor.about.job}: {settings}" if settings else f"{anchor.about.job}, unchanged"
    return {
        **dict(zip(_SCHEMA, (step[name] for name in names), strict=False)),
        "rebuilt": how + (f"; as recorded: {', '.join(kept)}" if kept else ""),
    }


def _settings(
    anchor: RecordedJob, does: modelled.Habits, row: dict[str, Any], model: Model
) -> tuple[Settings, list[str]]:
    """Return the change that makes a plan of the recorded job, and what stays as recorded whatever the plan says.

    Raises:
        LumosError: why there is no such change.
    """
    old = anchor.sizes
    for name, alone in _ALONE.items():
        if row[name] != alone:
            raise PlanError(f"{name}={_word(row[name])}, and from a trace there is none")
    if row["flash"] != does.flash:
        raise PlanError(f"flash={_word(row['flash'])}, and the job was recorded with flash={_word(does.flash)}")
    if row["recompute"] in RECOMPUTATIONS[RECOMPUTE_LIGHT:]:
        raise PlanError(f"recompute={row['recompute']}, and from a trace there is none")
    if model.experts or model.gated != does.gated:
        what = "experts" if model.experts else "gated=" + _word(model.gated)
        raise PlanError(f"model {model.name} has {what}, and the recorded one has not")
    wanted = {name: getattr(model, name) for name in _OF_MODEL} | {name: row[name] for name in _OF_PLAN}
    wanted["batch"] = row["batch"] // (row["dp"] * row["micro_batch"])
    numbers = {name: value for name, value in wanted.items() if getattr(old, name) != value}
    precision = PRECISION_OF_WORD[row["precision"]]
    # What is not known to be shared out stays as it is.
    shares = row["zero"] != does.zero and old.zero is not None and row["dp"] * row["cp"] > 1
    settings = Settings(
        numbers,
        dtype=None if precision == anchor.precision else precision.dtype,
        hardware=None if row["hardware"] == anchor.hardware.name else row["hardware"],
        schedule=row["schedule"] if row["pp"] > 1 and row["schedule"] != "1f1b" else None,
        recompute=row["recompute"] if row["recompute"] != does.recompute else None,
        zero=row["zero"] if shares else None,
        sp=row["sequence_parallel"] if row["sequence_parallel"] != does.sequence_parallel else None,
    )
    new = changed_sizes(anchor.about.job, old, settings)
    for name in ("kv_heads", "head_dim"):
        if getattr(new, name) != getattr(model, name):
            raise PlanError(f"{name}={getattr(model, name)}, and from a trace it would be {getattr(new, name)}")
    kept = [] if shares or row["zero"] == does.zero else [f"zero={does.zero}"]
    return settings, kept


def _word(value: bool | int | str) -> str:  # noqa: FBT001 - a value of a plan, whichever kind
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
