"""Corrections of a machine: found when the runs say so, near 1 when they do not, and written so that they read back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.base.errors import TruthError
from lumos_df.calibrate import corrections, runs_machine
from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.levenberg_marquardt import minimum, soften
from lumos_df.calibrate.measured_runs import MeasuredRuns, read
from lumos_df.model.hardware import Hardware
from lumos_df.model.software import Software
from tests.calibrate.tables import write

RUNS: list[dict[str, object]] = [
    {"tp": tp, "pp": pp, "dp": 16 // tp // pp, "gbs": gbs, "mbs": mbs, "sp": "yes" if tp > 1 else ""}
    for tp, pp, gbs, mbs in (
        (1, 1, 64, 1),
        (2, 1, 128, 2),
        (8, 1, 64, 1),
        (2, 4, 256, 1),
        (4, 2, 128, 4),
        (1, 8, 128, 1),
    )
]


def runs(file: Path) -> MeasuredRuns:
    return read(Dataset.read("published"), write(file, RUNS))


def slower(truth: MeasuredRuns, **factors: float) -> list[dict[str, object]]:
    """The runs as a machine with factors on its times would have done them."""
    seconds = truth.estimate(*corrections.corrected(truth, factors))[:, 0]
    return [{**run, "iteration_time_s": s} for run, s in zip(RUNS, seconds.tolist(), strict=True)]


def test_a_machine_s_own_runs_need_no_correction(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    truth = read(Dataset.read("published"), write(file, slower(runs(file))))
    assert list(corrections.fit(truth).values()) == pytest.approx([1.0] * len(corrections.CORRECTIONS), abs=1e-3)


def test_a_slow_part_is_found(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    truth = read(Dataset.read("published"), write(file, slower(runs(file), compute=1.3)))
    factors = corrections.fit(truth)
    assert 1.1 < factors["compute"] < 1.35
    # Attention is compute, too.
    assert all(0.8 < factor < 1.2 for name, factor in factors.items() if name not in {"compute", "attention"})
    after = truth.estimate(*corrections.corrected(truth, factors))[:, 0]
    assert np.abs(after / truth.measured_s - 1).max() < 0.06


def test_one_odd_run_of_three_does_not_bend_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    rows = slower(runs(file))[:3]
    rows[1]["iteration_time_s"] = 3 * float(str(rows[1]["iteration_time_s"]))
    truth = read(Dataset.read("published"), write(file, rows))
    assert all(0.7 < factor < 1.4 for factor in corrections.fit(truth).values())


def test_what_is_written_reads_back_as_what_was_fitted(tmp_path: Path) -> None:
    file, output = tmp_path / "runs.csv", tmp_path / "mine.toml"
    truth = runs(file)
    write(file, slower(truth, compute=1.2, scale_up=1.4, host=1.5))
    found = runs_machine.run(file, "h100-sxm", output)
    assert found.runs == 6
    assert found.mape_before_pct > found.mape_left_out_pct > found.mape_after_pct
    assert found.software_files == [str(tmp_path / "mine-nemo.toml")]
    hardware, software = corrections.corrected(truth, found.factors)
    mine = Hardware.read(found.hardware_file).row()
    for name in hardware.dtype.names or ():
        assert mine[name] == pytest.approx(hardware[0][name], rel=1e-12), name
    profile = Software.read(found.software_files[0]).row()
    for name in software.dtype.names or ():
        assert profile[name] == pytest.approx(software[0][name], rel=1e-12), name


def test_software_and_hardware_may_be_told(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.csv", [{**run, "gpu": "", "framework": ""} for run in RUNS])
    found = runs_machine.run(file, "a100-sxm-80", tmp_path / "mine.toml", "torchtitan")
    assert found.software_files == [str(tmp_path / "mine-torchtitan.toml")]
    assert Hardware.read(tmp_path / "mine.toml").generation == "ampere"


def test_two_runs_are_too_few(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.csv", [*RUNS[:2], {"precision": "INT4"}])
    with pytest.raises(TruthError, match="2 usable runs, and a calibration needs 3; 1 refused: precision INT4"):
        runs_machine.run(file, "h100-sxm", tmp_path / "mine.toml")


def test_least_squares_finds_a_known_minimum() -> None:
    def residuals(place: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        # Rosenbrock's valley: least at (1, 1).
        return np.array([10.0 * (place[1] - place[0] ** 2), 1.0 - place[0]])

    assert minimum(residuals, np.array([-1.2, 1.0]), 200) == pytest.approx([1.0, 1.0], abs=1e-3)


def test_softened_deviations_grow_like_their_root() -> None:
    small, large = soften(np.array([1e-4]), 0.1)[0], soften(np.array([-40.0]), 0.1)[0]
    assert small == pytest.approx(1e-4, rel=1e-5)
    assert large**2 == pytest.approx(2 * 0.1 * 40.0, rel=0.01)
    assert large < 0


def test_the_left_out_error_is_of_runs_that_were_not_seen(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    rows = slower(runs(file))
    rows[0]["iteration_time_s"] = 2 * float(str(rows[0]["iteration_time_s"]))
    truth = read(Dataset.read("published"), write(file, rows))
    seconds = corrections.left_out(truth)
    # The others know nothing of the first: its estimate stays what it would be on a machine as it is.
    assert seconds[0] == pytest.approx(truth.measured_s[0] / 2, rel=0.02)


def test_habits_of_a_software_that_nobody_named_are_found(tmp_path: Path) -> None:
    """Collectives of a pipeline over two nodes that wait for every rank, and say so: only there are they longer."""
    file = tmp_path / "runs.csv"
    rows: list[dict[str, object]] = [
        {
            "framework": "generic",
            "model": "gpt3-1.3b",
            "seq": 2048,
            "tp": tp,
            "pp": pp,
            "dp": 16 // tp // pp,
            "gbs": gbs,
        }
        for tp in (1, 2, 4, 8)
        for pp in (1, 2)
        for gbs in (64, 256)
    ]
    truth = read(Dataset.read("published"), write(file, rows))
    seconds = truth.estimate(*corrections.corrected(truth, {"piped_hops": 1.0, "hops": 2.4}))[:, 0]
    found = corrections.fit(replace(truth, measured_s=seconds))
    assert set(corrections.HABITS) & set(found) == {"piped_hops"}
    assert 1.8 < found["hops"] < 2.6
    profile = Software.read("generic")
    assert runs_machine.software_figures(profile, found, "mine")["piped_hops"] is not profile.piped_hops
    # The habits of a software that has a profile are known.
    named = read(Dataset.read("published"), write(file, [{**run, "iteration_time_s": 99.0} for run in RUNS]))
    assert not set(corrections.HABITS) & set(corrections.fit(named))


def test_one_slow_run_of_three_makes_no_habit(tmp_path: Path) -> None:
    """Of a pipeline over two nodes: its collectives may wait for every rank, or this run was slow."""
    plans = {"framework": "generic", "model": "gpt3-1.3b", "seq": 2048, "gbs": 64}
    rows: list[dict[str, object]] = [
        {**plans, "tp": tp, "pp": pp, "dp": 16 // tp // pp} for tp, pp in ((2, 1), (4, 2), (8, 2))
    ]
    truth = read(Dataset.read("published"), write(tmp_path / "runs.csv", rows))
    seconds = truth.estimate()[:, 0] * [1.0, 1.0, 1.5]
    assert not set(corrections.HABITS) & set(corrections.fit(replace(truth, measured_s=seconds)))


def test_the_host_is_never_more_than_beside_the_gpu() -> None:
    """An exponent below 1 would make both together shorter than either alone."""
    profile = replace(Software.read("nemo"), run_ahead=1.5)
    factors = dict.fromkeys((correction.name for correction in corrections.CORRECTIONS), 0.5)
    assert runs_machine.software_figures(profile, factors, "mine")["run_ahead"] == 1.0
