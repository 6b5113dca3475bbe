"""The scoreboard's figures against their definitions, on small tables and by the command line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.measured_runs import read
from lumos_df.calibrate.scoreboard import rank_correlation, regrets, score, scoreboard
from lumos_df.cli.app import app
from lumos_df.cli.screens.measurement_screen import draw_scores
from lumos_df.model.evaluate import RESULT_COLUMNS
from lumos_df.model.software import Software
from tests.calibrate.tables import write

FILE = "published_training_runs.csv"


def seconds(file: Path, *rows: dict[str, object]) -> list[float]:
    """What the estimates of rows are."""
    out: list[float] = read(Dataset.read("published"), write(file, rows)).estimate()[:, 0].tolist()
    return out


PLANS: list[dict[str, object]] = [{}, {"tp": 4, "dp": 2}, {"tp": 1, "pp": 1, "dp": 16, "sp": ""}]


def test_errors_are_those_of_the_table(tmp_path: Path) -> None:
    estimates = seconds(tmp_path / FILE, *PLANS)
    factors = [1.25, 0.8, 1.0]
    rows = [{**plan, "iteration_time_s": s / f} for plan, s, f in zip(PLANS, estimates, factors, strict=True)]
    write(tmp_path / FILE, [*rows, {"precision": "INT4"}])
    (score,) = scoreboard(tmp_path)
    assert score.dataset == "published_training_runs"
    assert (score.rows, score.used, score.refused) == (4, 3, 1)
    assert score.refused_reasons == [{"reason": "precision INT4 is not modelled", "rows": 1}]
    assert score.mape_pct == pytest.approx(15.0)
    assert score.median_ape_pct == pytest.approx(20.0)
    assert score.bias_pct == pytest.approx(5.0 / 3)
    assert score.p90_ape_pct == pytest.approx(24.0)
    nemo = Software.read("nemo")
    held = [nemo.low_ratio <= 1 / f <= nemo.high_ratio for f in factors]
    assert score.coverage_pct == pytest.approx(100 * np.mean(held))
    measured = [s / f for s, f in zip(estimates, factors, strict=True)]
    chosen = measured[int(np.argmin(estimates))]
    assert score.top1_regret_pct == pytest.approx(100 * (chosen / min(measured) - 1))


def test_regret_is_of_the_plan_that_would_be_chosen() -> None:
    estimate = np.array([1.0, 2.0, 3.0, 5.0, 4.0, 1.0])
    measured = np.array([1.5, 1.2, 9.0, 2.0, 3.0, 7.0])
    group = np.array([4, 4, 4, 7, 7, 1])
    assert sorted(regrets(estimate, measured, group)) == pytest.approx([0.25, 0.5])


def test_rank_correlation() -> None:
    column = np.array([1.0, 5.0, 2.0, 2.0, 9.0])
    assert rank_correlation(column, np.exp(column)) == pytest.approx(1.0)
    assert rank_correlation(column, -column) == pytest.approx(-1.0)
    # Ranks 1, 4, 2.5, 2.5, 5 and 5, 1, 2, 3, 4: sum of products of deviations over the root of their squares.
    assert rank_correlation(column, np.array([9.0, 1.0, 2.0, 3.0, 4.0])) == pytest.approx(-3.5 / np.sqrt(9.5 * 10))
    assert rank_correlation(column, np.ones(5)) is None


def test_memory_and_what_fits(tmp_path: Path) -> None:
    file = tmp_path / FILE
    truth = read(Dataset.read("published"), write(file, PLANS[:2]))
    memory = truth.estimate()[:, 20] / 2**30
    rows = [{**plan, "memory_gb": gib * 2} for plan, gib in zip(PLANS[:2], memory, strict=True)]
    # The whole state of 70 billion parameters on one GPU does not fit, and yet it "ran".
    write(file, [*rows, {"model": "Llama3 70B", "num_gpus": 1, "tp": 1, "pp": 1, "dp": 1, "sp": "", "memory_gb": ""}])
    (score,) = scoreboard(tmp_path)
    assert score.memory_mape_pct == pytest.approx(50.0)
    assert (score.ran_said_too_large, score.crashed, score.crashed_said_to_fit) == (1, 0, 0)


def test_memory_of_rank_0_is_that_of_the_first_stage(tmp_path: Path) -> None:
    # One micro-batch: both stages keep the same, and the last has logits beside it.
    runs = read(Dataset.read("published"), write(tmp_path / FILE, [{"gbs": 4}]))
    out = runs.estimate()[0]
    first, fullest = (out[RESULT_COLUMNS.index(name)] for name in ("first_stage_bytes", "memory_bytes"))
    assert first < 0.9 * fullest
    runs = replace(runs, measured_bytes=np.array([first]))
    assert score(runs, runs).memory_mape_pct == pytest.approx(100 * (fullest / first - 1))
    runs = replace(runs, dataset=replace(runs.dataset, first_stage=True))
    assert score(runs, runs).memory_mape_pct == 0.0


def test_memory_of_an_allocator_has_no_context(tmp_path: Path) -> None:
    runs = read(Dataset.read("published"), write(tmp_path / FILE, PLANS[:1]))
    memory, reserve = (runs.estimate()[0, RESULT_COLUMNS.index("memory_bytes")], Software.read("nemo").reserve_bytes)
    runs = replace(runs, measured_bytes=np.array([memory - reserve]))
    assert score(runs, runs).memory_mape_pct == pytest.approx(100 * reserve / (memory - reserve))
    runs = replace(runs, table=runs.table.with_columns(memory_of=pl.lit("allocator")))
    assert score(runs, runs).memory_mape_pct == pytest.approx(0.0, abs=1e-9)


def test_runs_that_crashed_are_counted_where_they_are_said_to_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small: dict[str, object] = {"seq": 2048}
    large: dict[str, object] = {"model": "Llama3 70B", "num_gpus": 1, "tp": 1, "pp": 1, "dp": 1, "sp": ""}
    runs, crashed = (
        read(Dataset.read("published"), write(tmp_path / FILE, rows)) for rows in ([small], [small, large, small])
    )
    told = score(runs, runs, crashed)
    assert (told.ran_said_too_large, told.crashed, told.crashed_said_to_fit) == (0, 3, 2)
    draw_scores([told], tmp_path)
    assert "  2 of 3 crashed runs said to fit" in capsys.readouterr().out.splitlines()


def test_calibration_helps_and_a_seed_repeats(tmp_path: Path) -> None:
    plans = [{**plan, "gbs": gbs} for plan in PLANS for gbs in (64, 128, 256, 512)]
    estimates = seconds(tmp_path / FILE, *plans)
    write(tmp_path / FILE, [{**plan, "iteration_time_s": 1.3 * s} for plan, s in zip(plans, estimates, strict=True)])
    before = 100 * (1 - 1 / 1.3)
    (after,) = scoreboard(tmp_path, runs=4, seed=1)
    assert after.mape_pct is not None
    assert after.mape_pct < before / 2
    assert after.used == 8
    assert scoreboard(tmp_path, runs=4, seed=1) == [after]
    assert scoreboard(tmp_path, runs=4, seed=2) != [after]
    (median,) = scoreboard(tmp_path, runs=4)
    assert median.mape_pct is not None
    assert median.mape_pct < before / 2


def test_the_command_prints_json(tmp_path: Path) -> None:
    write(tmp_path / FILE, [{}, {"task": "DPO"}])
    done = CliRunner().invoke(
        app, ["scoreboard", "--truth", str(tmp_path), "--dataset", "published", "--format", "json"]
    )
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)
    assert (row["dataset"], row["used"], row["refused"]) == ("published_training_runs", 1, 1)
    assert row["refused_reasons"] == [{"reason": "training that is not modelled: DPO", "rows": 1}]
    assert row["top1_regret_pct"] is None


def test_a_seed_without_calibration_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["scoreboard", "--truth", str(tmp_path), "--seed", "1"])
    assert done.exit_code == 2
    assert "--seed" in done.output
