"""The GPU of a recording: what it multiplies where its trace does not say, and what is known of one that is unknown."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from lumos_df.base.errors import LumosError, QueryError
from lumos_df.model.hardware import Hardware
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.recorded_gpu import Machine, recorded_on, usual_precision
from lumos_df.whatif.job.settings import parse, parse_known
from tests.conftest import Run
from tests.emulator import Job
from tests.emulator.hardware import DEVICE
from tests.whatif.conftest import emulate, ingested

CHANGE = "hardware=b200"
"""Four times as fast, by its peaks."""


@pytest.mark.parametrize(("hardware", "dtype"), [("h100-sxm", "float16"), ("tpu-v5p", "bfloat16")])
def test_a_job_that_does_not_tell_multiplies_16_bits_that_its_gpu_has(hardware: str, dtype: str) -> None:
    machine = Hardware.read(hardware)
    assert usual_precision(machine).dtype == dtype
    assert Machine.of(machine, usual_precision(machine)).element_bytes == 2


@pytest.mark.parametrize(
    ("device", "like", "known", "guessed"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm", True, False),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-32", False, False),
        # A make is no chip.
        ("NVIDIA GeForce RTX 3090", "a100-sxm-80", False, True),
        (None, "a100-sxm-80", False, True),
    ],
)
def test_a_gpu_is_known_or_known_by_its_chip_or_unknown(
    device: str | None, like: str, *, known: bool, guessed: bool
) -> None:
    gpu = recorded_on(device)
    assert (gpu.hardware.name, gpu.known, gpu.guessed) == (like, known, guessed)
    assert (gpu.warning is None) == known


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpus")
    emulate(folder, Job(ranks=2, layers=3, hidden=2048, batch=16))
    return folder / "four"


def on(folder: Path, traces: Path, device: str) -> Path:
    """Return a corpus of the traces as if another device had run them."""
    (folder / "traces").mkdir(parents=True)
    for file in traces.glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode().replace(DEVICE.name, device)
        (folder / "traces" / file.name).write_bytes(gzip.compress(text.encode()))
    return ingested(folder / "corpus", folder / "traces")


def answer(corpus: Path, *texts: str, known: str | None = None, force: bool = False) -> dict[str, Any]:
    """Return the first row; `known`: the GPU that ran."""
    _, gpu = parse_known([f"hardware={known}"] if known else [])
    row: dict[str, Any] = estimate(corpus, parse([*texts]), ran_on=gpu, force=force).to_pylist()[0]
    return row


def test_a_gpu_that_is_told_is_as_good_as_one_that_the_trace_names(traces: Path, tmp_path: Path) -> None:
    named, unnamed = on(tmp_path / "named", traces, "NVIDIA H100 80GB HBM3"), on(tmp_path / "unnamed", traces, "Sand 1")
    expected, told = answer(named, CHANGE), answer(unnamed, CHANGE, known="h100-sxm")
    for field in ("step_ns", "low_s", "high_s", "mfu_pct", "causes"):
        assert told[field] == expected[field]
    # What a trace says yields to what is told.
    assert answer(named, CHANGE, known="a100-sxm-80")["step_ns"] < told["step_ns"]


def test_another_gpu_than_an_unknown_one_is_refused_and_forced_holds_any(traces: Path, tmp_path: Path) -> None:
    corpus = on(tmp_path, traces, "Sand 1")
    with pytest.raises(QueryError, match=r"Sand 1 is not among the known GPUs.* --known hardware=NAME\|FILE"):
        answer(corpus, CHANGE)
    forced = answer(corpus, CHANGE, force=True)
    assert forced["causes"][0].startswith("the GPU that ran, taken for a100-sxm-80, ±")
    for name in ("h20", "a100-sxm-40", "h200-sxm"):
        assert forced["low_s"] < answer(corpus, CHANGE, known=name)["iteration_time_s"] < forced["high_s"]
    # Where the GPU stays, hardly anything depends on it: no more than what bounds the laws of its links.
    layers, told = answer(corpus, "layers=6"), answer(corpus, "layers=6", known="h100-sxm")
    assert not any("the GPU that ran" in cause for cause in layers["causes"])
    assert layers["iteration_time_s"] == pytest.approx(told["iteration_time_s"], rel=1e-3)


def test_of_a_chip_in_another_build_the_interval_is_wider(traces: Path, tmp_path: Path) -> None:
    corpus = on(tmp_path, traces, "NVIDIA A100-PG509-200")
    chip, told = answer(corpus, CHANGE), answer(corpus, CHANGE, known="a100-sxm-40")
    # But for what bounds the laws of its links.
    assert chip["iteration_time_s"] == pytest.approx(told["iteration_time_s"], rel=0.02)
    assert chip["high_s"] / chip["low_s"] > 1.05 * told["high_s"] / told["low_s"]
    assert any("taken for a100-sxm-40" in cause for cause in chip["causes"])


def test_a_gpu_that_cannot_be_is_one_line(emulated: Path, lumos: Run) -> None:
    for texts, said in (
        (["hardware=h10-sxm"], "h100-sxm"),
        (["hardware=h100-sxm", "hardware=h200-sxm"], "said twice"),
        (["hidden=4096", "hardwear=h100-sxm"], "hardwear"),
    ):
        with pytest.raises(LumosError, match=said):
            parse_known(texts)
    done = lumos("estimate", "--corpus", str(emulated), "--set", CHANGE, "--known", "hardware=h10-sxm")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
