"""The tool that fits software profiles: it finds the figures of runs, and writes them where they belong."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.measured_runs import read
from lumos_df.calibrate.population import Prior
from lumos_df.model.library import data_folder
from lumos_df.model.software import SOFTWARE_COLUMNS
from tests.calibrate.tables import write
from tools.fit_software import PROFILES, Fit, load, rewritten, slow_messages

RUNS: list[dict[str, object]] = [
    {"model": "gpt3-1.3b", "seq": 2048, "tp": tp, "pp": pp, "dp": 16 // tp // pp, "gbs": gbs, "sp": "", "memory_gb": ""}
    for tp in (1, 2, 4)
    for pp in (1, 2, 4)
    for gbs in (64, 256)
]


def test_figures_are_found_again(tmp_path: Path) -> None:
    truth = read(Dataset.read("published"), write(tmp_path / "runs.csv", RUNS))
    figures = {"launch_s": Prior(30e-6, 1.0), "gemm@h100-sxm@bf16": Prior(1.0, 1.0), "passes": Prior(1.5, 1.0)}
    fit = Fit("nemo", figures, (truth,), (1.0,))
    true = {"launch_s": 60e-6, "gemm@h100-sxm@bf16": 1.4, "passes": 2.0}
    fit = replace(fit, runs=(replace(truth, measured_s=fit.estimate(truth, true)),))
    found = fit.solve()
    assert found == pytest.approx(true, rel=0.15)
    (unseen,) = fit.left_out()
    assert np.abs(unseen / fit.runs[0].measured_s - 1).mean() < 0.03


def test_bounds_hold(tmp_path: Path) -> None:
    truth = read(Dataset.read("published"), write(tmp_path / "runs.csv", RUNS[:4]))
    fit = Fit("nemo", {"tp_hidden": Prior(0.9, 2.0, high=1.0)}, (truth,), (1.0,))
    assert fit.values(np.array([5.0])) == {"tp_hidden": 1.0}


def test_releases_that_differ_in_their_loss_alone_are_fitted_as_one(tmp_path: Path) -> None:
    pages = ("llama3_h100_202412_torchtitan.md", "llama3-8b_h200_202506_trainy-whitefiber.md")
    titan = {"framework": "torchtitan", "tp": 1, "pp": 1, "dp": 16, "sp": ""}
    rows = [{"source": f"pytorch/torchtitan {page}", **titan} for page in pages]
    write(tmp_path / "published_training_runs.csv", rows)
    fit = load("torchtitan", tmp_path)
    (truth,) = fit.runs
    assert truth.software_names == ("torchtitan", "torchtitan-2025.04")
    before, after = fit.estimate(truth, {"passes": 2.0}).tolist()
    assert after < before
    same = fit.estimate(truth, {"passes": 2.0, "loss_bytes": 52.0, "logits_bytes": 8.0}).tolist()
    assert same == [before, before]
    assert after != truth.estimate()[1, 0]


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_s_file_keeps_what_was_not_fitted(name: str) -> None:
    columns = {column.name for column in SOFTWARE_COLUMNS}
    text = (data_folder() / "software" / f"{name}.toml").read_text("utf-8")
    values = {figure: 0.125 for figure in PROFILES[name].figures if figure in columns}
    assert tomllib.loads(rewritten(text, values)) == {**tomllib.loads(text), **values}
    assert rewritten(text, values).count("#") == text.count("#")


def test_a_figure_that_a_file_lacks_is_named() -> None:
    with pytest.raises(KeyError, match="launch_s"):
        rewritten("step_s = 1 # a launch_s = 2\n", {"launch_s": 3.0})


def test_the_chance_of_a_slow_node_is_that_of_the_runs(tmp_path: Path) -> None:
    """One run in four of two nodes is slow by 0.3 s for each of 64 + 2 - 1 messages: 1 - 0.75^(1/2) of nodes are."""
    rows = [dict(RUNS[0], pp=2, dp=8, gbs=512) for _ in range(8)]
    truth = read(Dataset.read("published"), write(tmp_path / "runs.csv", rows))
    seconds = truth.estimate()[:, 0]
    slow = np.arange(8) < 2
    messages = 512 // 8 + 2 - 1
    found = slow_messages(replace(truth, measured_s=seconds + slow * messages * 0.3), seconds)
    assert found["slow_node"] == pytest.approx(1 - 0.75**0.5, abs=1e-3)
    assert found["slow_message_s"] == pytest.approx(0.3)
