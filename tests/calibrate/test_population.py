"""What sources of measured runs share: found from the others, and told as a score of each that is left out."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lumos_df.base.errors import TruthError
from lumos_df.calibrate import population
from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.measured_runs import read
from lumos_df.calibrate.scoreboard import without_source
from lumos_df.cli.app import app
from tests.calibrate.tables import write

FILE = "published_training_runs.csv"
FRAMEWORKS = ("NeMo", "torchtitan", "Megatron-LM 2022")
PLANS: list[dict[str, object]] = [
    {"tp": tp, "pp": pp, "dp": 16 // tp // pp, "gbs": gbs, "mbs": mbs, "sp": "yes" if tp > 1 else ""}
    for tp, pp, gbs, mbs in ((1, 1, 64, 1), (2, 1, 128, 2), (8, 1, 64, 1), (2, 4, 256, 1))
]


def rows(file: Path, *frameworks: str, slower: float = 1.0) -> list[dict[str, object]]:
    """Return runs of frameworks that all take what `generic` is estimated at, times a factor."""
    seconds = read(Dataset.read("published"), write(file, PLANS), population.GENERIC).estimate()[:, 0]
    return [
        {**plan, "framework": framework, "iteration_time_s": slower * s}
        for framework in frameworks
        for plan, s in zip(PLANS, seconds.tolist(), strict=True)
    ]


def test_a_source_is_the_runs_of_a_software(tmp_path: Path) -> None:
    write(tmp_path / FILE, rows(tmp_path / FILE, *FRAMEWORKS))
    some = population.sources(tmp_path)
    assert [source.name for source in some] == ["nemo", "torchtitan", "megatron-2021"]
    assert [len(part) for source in some for part in source.parts] == [4, 4, 4]
    assert {name for source in some for part in source.parts for name in part.software_names} == {population.GENERIC}


def test_pytorch_under_nemos_name_is_no_run_of_nemos(tmp_path: Path) -> None:
    """NeMo AutoModel is PyTorch's own sharding; what else has NeMo's name is Megatron-Core's."""
    others = rows(tmp_path / FILE, "NeMo", "torchtitan")
    its = [{**row, "source": "NVIDIA-NeMo/Automodel"} for row in rows(tmp_path / FILE, "NeMo AutoModel (PyTorch)")]
    write(tmp_path / FILE, [*others, *its])
    some = population.sources(tmp_path)
    assert [source.name for source in some] == ["nemo", "torchtitan", "published_training_runs"]
    assert [len(part) for source in some for part in source.parts] == [4, 4, 4]


def test_sources_that_are_all_slow_have_slow_figures_in_common(tmp_path: Path) -> None:
    estimated = []
    for slower in (1.0, 1.3):
        write(tmp_path / FILE, rows(tmp_path / FILE, *FRAMEWORKS, slower=slower))
        scores = without_source(tmp_path)
        assert [score.dataset for score in scores] == [
            f"{name}: published_training_runs" for name in ("nemo", "torchtitan", "megatron-2021")
        ]
        estimated.append([slower * (1.0 + (score.bias_pct or 0.0) / 100) for score in scores])
    # Two sources of four runs each are not enough to go the whole way.
    assert all(1.1 < slow / usual < 1.3 for usual, slow in zip(*estimated, strict=True))


def test_a_source_that_is_left_out_has_no_say(tmp_path: Path) -> None:
    odd = rows(tmp_path / FILE, "torchtitan", slower=5.0)
    write(tmp_path / FILE, [*rows(tmp_path / FILE, "NeMo", "Megatron-LM 2022"), *odd])
    some = population.sources(tmp_path)
    others = [source for source in some if source.name != "torchtitan"]
    plain = population.common(others)
    write(tmp_path / FILE, rows(tmp_path / FILE, "NeMo", "Megatron-LM 2022"))
    assert plain == pytest.approx(population.common(population.sources(tmp_path)))


def test_figures_that_are_shared_are_in_the_records(tmp_path: Path) -> None:
    write(tmp_path / FILE, rows(tmp_path / FILE, *FRAMEWORKS))
    part = population.sources(tmp_path)[0].parts[0]
    hardware, software = population.with_figures(part, {"passes": 3.0, "gemm@hopper@fp8": 2.0})
    assert software["passes"].tolist() == [3.0]
    assert np.count_nonzero(hardware["gemm"] != part.hardware["gemm"]) == len(part.hardware)


def test_one_source_alone_cannot_be_left_out(tmp_path: Path) -> None:
    write(tmp_path / FILE, rows(tmp_path / FILE, "NeMo"))
    with pytest.raises(TruthError, match="needs the runs of two or more, and there are 1"):
        without_source(tmp_path)


def test_the_command_names_a_profile_or_leaves_a_source_out(tmp_path: Path) -> None:
    write(tmp_path / FILE, rows(tmp_path / FILE, "NeMo", "torchtitan"))
    run = CliRunner().invoke
    named = run(app, ["scoreboard", "--truth", str(tmp_path), "--software", "generic", "--format", "json"])
    assert json.loads(named.stdout)[0]["mape_pct"] == pytest.approx(0.0, abs=1e-6)
    out = run(app, ["scoreboard", "--truth", str(tmp_path), "--leave-one-source-out", "--format", "json"])
    assert [score["used"] for score in json.loads(out.stdout)] == [4, 4]
    both = run(app, ["scoreboard", "--truth", str(tmp_path), "--leave-one-source-out", "--software", "nemo"])
    assert both.exit_code == 2
    assert "goes with neither" in " ".join(both.output.split())
