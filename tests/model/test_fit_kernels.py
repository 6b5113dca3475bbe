"""The fit: a small table made by a rule, bad input, and the error on measured kernels that it did not see."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lumos_df.model import fitted
from lumos_df.model.fitted import GemmParameters, ScaleUpParameters, load, vector
from lumos_df.schema.collective_kinds import FITTED_COLLECTIVES
from tests.conftest import ROOT
from tools.fit_kernels import Measured, block_scaled, gemm, scale_up
from tools.least_deviations import fit
from tools.measured_gpus import GPUS

TRUTH = Path(os.environ.get("LUMOS_TRUTH", ROOT.parent / "shared" / "truth"))
measured = pytest.mark.skipif(not TRUTH.is_dir(), reason=f"no measured kernels in LUMOS_TRUTH ({TRUTH})")

SIZES = (256, 1024, 4096, 16384)
MATRICES = [(m, n, k) for m in (1, 8, 64, 1024, 4096, 16384) for n, k in itertools.product(SIZES, SIZES)]
ROWS = [(batch, length, heads) for batch in (1, 4) for length in (256, 1024, 4096, 8192) for heads in (8, 32)]
COLLECTIVES = [
    (kind, group, 2.0**power)
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    for group in (2, 4, 8)
    for power in range(9, 29)
]


@pytest.fixture(scope="module")
def small_truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of an A100 by rule: 70 % of its peak, 85 % of its memory, 75 % of its links, and a start."""
    truth = tmp_path_factory.mktemp("truth")
    (truth / "kernels").mkdir()
    matrices = [
        (m, n, k, 3.0 + 1e6 * max(2 * m * n * k / 0.7 / 312e12, 2 * (m * n + m * k + n * k) / 0.85 / 2.039e12))
        for m, n, k in MATRICES
    ]
    pl.DataFrame(matrices, ["m", "n", "k", "latency_us"], orient="row").with_columns(
        gpu=pl.lit("a100_sxm"), dtype=pl.lit("bfloat16")
    ).write_parquet(truth / "kernels" / "gemm.parquet")
    rows = [
        (batch, length, heads, heads, 128, 0.01 + 1e3 * 2 * batch * heads * 128 * length**2 / 0.6 / 312e12)
        for batch, length, heads in ROWS
    ]
    names = ["batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "latency"]
    kind = {"gpu": "a100_sxm", "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    pl.DataFrame(rows, names, orient="row").with_columns(
        window_size=pl.lit(None, pl.Int64), **{name: pl.lit(value) for name, value in kind.items()}
    ).write_parquet(truth / "kernels" / "attention_forward.parquet")
    transfers = [
        (op, group, size, 0.005 + 0.001 * group + 2e3 * size * (2 if op == "all_reduce" else 1) / 225e9)
        for op, group, size in COLLECTIVES
    ]
    pl.DataFrame(transfers, ["op_name", "num_gpus", "message_size", "latency"], orient="row").with_columns(
        gpu=pl.lit("a100_sxm"), nccl_dtype=pl.lit("half")
    ).write_parquet(truth / "kernels" / "nccl.parquet")
    return truth


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.fit_kernels", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=300,
    )


def test_the_command_fits_a_table_and_writes_a_file_that_reads(
    small_truth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("--truth", small_truth, "--gpu", "a100-sxm-80", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stdout.splitlines() if "gemm bf16" in line]
    assert {line.split("left out by ")[1].split("  ")[0].strip() for line in errors} == {"(n, k)", "m range"}
    assert [file.name for file in tmp_path.iterdir()] == ["a100-sxm-80.toml"]
    monkeypatch.setattr(fitted, "folder", lambda: tmp_path)
    found = load("a100-sxm-80")
    assert found.memory.efficiency == pytest.approx(0.85, rel=0.05)
    every = np.ones(len(MATRICES), np.bool_)
    table = gemm(pl.read_parquet(small_truth / "kernels" / "gemm.parquet"), GPUS["a100-sxm-80"], "bf16")
    ratio = table.seconds(vector(found.gemm["bf16"]), every) / table.measured_s
    assert np.median(abs(ratio - 1)) < 0.03


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    done = command("--truth", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path}/kernels/gemm.parquet: no such file" in done.stderr


def test_a_gpu_that_was_not_measured_is_a_wrong_option(tmp_path: Path) -> None:
    done = command("--truth", tmp_path, "--gpu", "h100")
    assert done.returncode == 2
    assert "a100-sxm-80" in done.stderr


def test_the_median_is_fitted_whatever_a_few_rows_say() -> None:
    """A start and a rate of a protocol, with one row of ten that took a hundred times as long."""
    payload = np.geomspace(1e3, 1e9, 50)
    truth = 1e-5 + payload / (0.5 * 300e9)
    odd = truth * np.where(np.arange(50) % 10 == 3, 100.0, 1.0)
    names = ("simple_base_s", "simple_rate")
    start = vector(load("a100-sxm-80").scale_up["all_gather"])

    def seconds(parameters: np.ndarray) -> np.ndarray:
        by_name = ScaleUpParameters(*parameters)
        return np.asarray(by_name.simple_base_s + payload / (by_name.simple_rate * 300e9))

    found = ScaleUpParameters(*fit(start, ScaleUpParameters, names, seconds, odd, np.ones(50)))
    assert found.simple_base_s == pytest.approx(1e-5, rel=0.01)
    assert found.simple_rate == pytest.approx(0.5, rel=0.01)


@measured
@pytest.mark.parametrize("name", GPUS)
def test_products_of_shapes_that_the_fit_did_not_see(name: str) -> None:
    """Half the pairs (n, k) are fitted, the other half judges: 6 % in the median, also of training's shapes."""
    table = gemm(pl.read_parquet(TRUTH / "kernels" / "gemm.parquet"), GPUS[name], "bf16")
    out = table.left_out["(n, k)"] % 2 == 0
    off = abs(table.seconds(table.fit(~out), out) / table.measured_s[out] - 1)
    training = table.regions["m >= 1024, n, k >= 512"][out]
    assert np.median(off) < 0.062
    assert np.median(off[training]) < 0.055


@measured
@pytest.mark.parametrize("name", GPUS)
def test_collectives_of_one_node(name: str) -> None:
    found = load(name)
    table = pl.read_parquet(TRUTH / "kernels" / "nccl.parquet")
    for kind in FITTED_COLLECTIVES:
        rows = scale_up(table, GPUS[name], kind)
        every = np.ones(len(rows.measured_s), np.bool_)
        ratio = rows.seconds(vector(found.scale_up[kind]), every) / rows.measured_s
        assert np.median(abs(ratio - 1)) < 0.05
        assert abs(np.median(ratio) - 1) < 0.03


@measured
@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, gpu in GPUS.items() for dtype in gpu.gemm])
def test_the_files_hold_what_the_command_fits(name: str, dtype: str) -> None:
    table = gemm(
        pl.read_parquet(TRUTH / "kernels" / "gemm.parquet"),
        GPUS[name],
        dtype,
        load(name).gemm["bf16"] if dtype == "fp8" else None,
    )
    assert_as_good_as_a_fresh_fit(table, load(name).gemm[dtype])


@measured
def test_the_file_holds_what_the_command_fits_to_products_with_scales_of_blocks() -> None:
    known = load("h100-sxm").gemm
    assert_as_good_as_a_fresh_fit(
        block_scaled(pl.read_parquet(TRUTH / "kernels" / "gemm.parquet"), GPUS["h100-sxm"], known["fp8"]),
        known["fp8_block"],
    )


def assert_as_good_as_a_fresh_fit(table: Measured, stored: GemmParameters) -> None:
    """Nobody changed the model and forgot the files."""
    every = np.ones(len(table.measured_s), np.bool_)

    def cost(parameters: GemmParameters) -> float:
        off = abs(np.log(table.seconds(vector(parameters), every) / table.measured_s))
        return float(table.weight @ off / table.weight.sum())

    assert cost(stored) < 1.03 * cost(GemmParameters(*table.fit(every)))
