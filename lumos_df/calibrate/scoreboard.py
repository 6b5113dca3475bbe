"""How far the estimates are from measured runs: one row of figures a set."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.base.errors import TruthError
from lumos_df.calibrate import corrections, population
from lumos_df.calibrate.datasets import Dataset, names
from lumos_df.calibrate.measured_runs import MeasuredRuns, read
from lumos_df.model.evaluate import RESULT_COLUMNS

Array = NDArray[np.float64]

SEEDS: Final = 15
"""Draws of the runs to calibrate on of which the median is told, when no seed is given."""

_STEP: Final = RESULT_COLUMNS.index("iteration_time_s")
_MEMORY: Final = RESULT_COLUMNS.index("memory_bytes")
_FIRST_STAGE: Final = RESULT_COLUMNS.index("first_stage_bytes")


@dataclass(frozen=True)
class Score:
    """Figures of one set. Errors are of the estimate over the measurement, minus one; None where nothing says them."""

    dataset: str
    """Name of the set."""
    rows: int
    """Rows that it has."""
    used: int
    """Rows that are scored: neither refused nor calibrated on."""
    refused: int
    """Rows that cannot be estimated."""
    refused_reasons: list[dict[str, str | int]]
    """How many `rows` of them, by `reason`."""
    mape_pct: float | None
    """Mean of the errors' sizes."""
    median_ape_pct: float | None
    """Median of them."""
    p90_ape_pct: float | None
    """What nine of ten of them are below."""
    bias_pct: float | None
    """Mean of the errors with their signs."""
    spearman: float | None
    """Rank correlation of estimated and measured times."""
    top1_regret_pct: float | None
    """Time of the plan that the estimates would choose over the best measured, minus one: mean over the groups of runs
    with the same model, batch and GPUs."""
    coverage_pct: float | None
    """Share of runs that lie in the estimate's interval."""
    memory_mape_pct: float | None
    """Mean of the errors' sizes of the memory of the GPU that was measured."""
    ran_said_too_large: int
    """Runs of those scored that are said not to fit their GPU."""
    crashed: int
    """Runs of the same kind that crashed or ran out of memory."""
    crashed_said_to_fit: int
    """Those of them that are said to fit."""


def scoreboard(
    folder: Path, wanted: Sequence[str] = (), runs: int = 0, seed: int | None = None, software: str = ""
) -> list[Score]:
    """Return the scores of the named sets, or of all that have runs in the files of `folder`.

    Args:
        folder: where the CSVs of measured runs are.
        wanted: names of sets.
        runs: how many random runs of each set a calibration is fitted to; the others are scored. Sets with fewer than
            twice as many are left out.
        seed: which draw of those; None: the median of `SEEDS` draws.
        software: name or file of the profile that every run is estimated with; empty: as the rows say.

    Raises `TruthError` for an unknown set, a file that a named set needs and that is not there, a column that a file
    lacks, and where nothing is there to score.
    """
    if not folder.is_dir():
        raise TruthError(f"{folder}: no such folder; --truth names the one with the CSVs of measured runs")
    sets = [Dataset.read(name) for name in wanted or names()]
    present = [dataset for dataset in sets if wanted or (folder / dataset.file).is_file()]
    if not present:
        raise TruthError(f"{folder}: has none of {', '.join(sorted({dataset.file for dataset in sets}))}")
    scores = []
    for dataset in present:
        measured = read(dataset, folder / dataset.file, software)
        if not wanted and not len(measured) and not measured.refused:
            continue  # its file is another set's, too
        crashed = _crashed(dataset, folder, software)
        if not runs:
            scores.append(score(measured, measured, crashed))
        elif len(measured) >= 2 * runs:
            seeds = range(SEEDS) if seed is None else [seed]
            draws = [_calibrated(measured, crashed, runs, draw) for draw in seeds]
            scores.append(_median(draws))
        elif wanted:
            raise TruthError(
                f"dataset '{dataset.name}': {len(measured)} runs are too few to calibrate on {runs} of them"
            )
    if not scores:
        few = f"; each set has fewer than the {2 * runs} runs of --calibrate {runs}" if runs else ""
        raise TruthError(
            f"{folder}: nothing to score in {', '.join(sorted({dataset.file for dataset in present}))}{few}"
        )
    return scores


def score(
    whole: MeasuredRuns,
    scored: MeasuredRuns,
    crashed: MeasuredRuns | None = None,
    factors: dict[str, float] | None = None,
) -> Score:
    """Return the score of `scored`, runs of a whole set, and of the `crashed` that ought not to fit.

    Args:
        whole: the set.
        scored: runs of it.
        crashed: runs of the same kind that did not run.
        factors: a calibration, see `corrections.fit`; None: none.
    """
    out = scored.estimate(*corrections.corrected(scored, factors or {}))
    estimate, measured = out[:, _STEP], scored.measured_s
    error = estimate / measured - 1.0
    low, high = scored.ends(out)
    covered = (measured >= low * estimate) & (measured <= high * estimate)
    remembered = np.isfinite(scored.measured_bytes)
    held = _FIRST_STAGE if whole.dataset.first_stage else _MEMORY
    memory = (out[:, held] - _beside(scored))[remembered] / scored.measured_bytes[remembered] - 1.0
    return Score(
        dataset=whole.dataset.name,
        rows=len(whole) + sum(whole.refused.values()),
        used=len(scored),
        refused=sum(whole.refused.values()),
        refused_reasons=[{"reason": reason, "rows": rows} for reason, rows in whole.refused.items()],
        mape_pct=_percent(np.abs(error)),
        median_ape_pct=_percent(np.abs(error), 0.5),
        p90_ape_pct=_percent(np.abs(error), 0.9),
        bias_pct=_percent(error),
        spearman=rank_correlation(estimate, measured),
        top1_regret_pct=_percent(regrets(estimate, measured, scored.group)),
        coverage_pct=_percent(covered.astype(np.float64)),
        memory_mape_pct=_percent(np.abs(memory)),
        ran_said_too_large=int((~_fits(scored, out)).sum()),
        crashed=0 if crashed is None else len(crashed),
        crashed_said_to_fit=0 if crashed is None else int(_fits(crashed, crashed.estimate()).sum()),
    )


def rank_correlation(first: Array, second: Array) -> float | None:
    """Return Spearman's correlation of two columns [n], ties at their mean rank; None for a constant."""
    ranks = [pl.Series(column).rank("average").to_numpy() for column in (first, second)]
    if len(first) < 2 or min(np.ptp(rank) for rank in ranks) == 0.0:
        return None
    return float(np.corrcoef(ranks)[0, 1])


def regrets(estimate: Array, measured: Array, group: NDArray[np.int64]) -> Array:
    """Return, of each group of two runs or more, the time of the one estimated fastest over the best, minus one."""
    table = pl.DataFrame({"estimate": estimate, "measured": measured, "group": group})
    chosen = pl.col("measured").sort_by("estimate").first() / pl.col("measured").min() - 1.0
    groups = table.group_by("group").agg(regret=chosen, runs=pl.len()).filter(pl.col("runs") > 1)
    return groups["regret"].to_numpy()


def without_source(folder: Path) -> list[Score]:
    """Return the score of each source's parts, `SOURCE: SET`, estimated by what the other sources have in common.

    The interval is that of the profile `generic`.

    Raises `TruthError` where the folder has the runs of fewer than two sources.
    """
    if not folder.is_dir():
        raise TruthError(f"{folder}: no such folder; --truth names the one with the CSVs of measured runs")
    some = population.sources(folder)
    scores = []
    for source in some:
        values = population.common([other for other in some if other is not source])
        for part in source.parts:
            hardware, software = population.with_figures(part, values)
            told = score(part, replace(part, hardware=hardware, software=software))
            scores.append(replace(told, dataset=f"{source.name}: {part.dataset.name}"))
    return scores


def _crashed(dataset: Dataset, folder: Path, software: str) -> MeasuredRuns | None:
    if not dataset.crashed:
        return None
    crashed = Dataset.read(dataset.crashed)
    file = folder / crashed.file
    return read(crashed, file, software) if file.is_file() else None


def _calibrated(whole: MeasuredRuns, crashed: MeasuredRuns | None, runs: int, seed: int) -> Score:
    order = np.random.default_rng(seed).permutation(len(whole))
    factors = corrections.fit(whole.take(order[:runs]))
    return score(whole, whole.take(order[runs:]), crashed, factors)


def _median(draws: list[Score]) -> Score:
    """Return the median of each figure over draws of one set."""
    medians = {}
    for figure in fields(Score):
        numbers = [value for value in (getattr(draw, figure.name) for draw in draws) if isinstance(value, float)]
        if numbers:
            medians[figure.name] = float(np.median(numbers))
    return replace(draws[0], **medians)  # type: ignore[arg-type]  # only figures that are float or None


def _fits(runs: MeasuredRuns, out: Array) -> NDArray[np.bool_]:
    return out[:, _MEMORY] <= runs.hardware["hbm_bytes"][runs.hardware_of]


def _beside(runs: MeasuredRuns) -> Array:
    """Return the bytes [n] that an estimate has and the measurement leaves out."""
    reserve = runs.software["reserve_bytes"][runs.plans["software"]]
    return np.where((runs.table["memory_of"] == "allocator").fill_null(False).to_numpy(), reserve, 0.0)


def _percent(values: Array, quantile: float | None = None) -> float | None:
    """Return the mean, or a quantile, in percent; None of nothing."""
    if not len(values):
        return None
    return 100.0 * float(np.mean(values) if quantile is None else np.quantile(values, quantile))
