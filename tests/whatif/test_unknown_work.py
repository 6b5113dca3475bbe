"""Kernels whose work no shapes tell, on another GPU: by their family and the precision of their names."""

import gzip
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.model.hardware import Hardware
from lumos_df.schema.codes import ATTENTION, CONVOLUTION, ELEMENTWISE, GEMM
from lumos_df.schema.dtypes import BF16, FP16, PRECISION_TABLE
from lumos_df.whatif.durations.kernel_times import KernelWork
from lumos_df.whatif.durations.unknown_work import ERROR, by_family
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.settings import parse
from tests.conftest import ROOT
from tests.emulator import Job
from tests.whatif.conftest import emulate, ingested

TRUTH = Path(os.environ.get("LUMOS_TRUTH", ROOT.parent / "shared" / "truth"))
SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
MEASURED = (("a100_sxm", "a100-sxm-80"), ("h100_sxm", "h100-sxm"), ("b200_sxm", "b200"))


def machine(name: str, precision: int = FP16) -> Machine:
    """Return a GPU that multiplies a precision."""
    return Machine.of(Hardware.read(name), PRECISION_TABLE[precision])


def taken_s(family: int, name: str, time_s: np.ndarray, was: Machine, will: Machine) -> np.ndarray:
    """Return what kernels of one name take on another GPU, s; their floor is 2 us [k]."""
    count = len(time_s)
    row = np.arange(count, dtype=np.int32)
    names = ("before", "after", "linear", "size", "size_after", "least", "doubt")
    unknown: dict[str, Any] = {each: np.full(count, np.nan) for each in names}
    kernels = KernelWork(row=row, time=time_s, floor=np.minimum(time_s, 2e-6), key=row.astype(np.int64), **unknown)
    rows = SimpleNamespace(names=[name], name=np.zeros(count, np.int32), family=np.full(count, family, np.int8))
    trace: Any = SimpleNamespace(rows=rows)
    return by_family(kernels, trace, was, will)[0]


def taken_us(family: int, name: str, time_us: float, to: str) -> float:
    """Return what a kernel of an A100 takes on another GPU, us."""
    was, will = machine("a100-sxm-80"), machine(to)
    return float(taken_s(family, name, np.array([time_us * 1e-6]), was, will)[0]) * 1e6


def test_what_moves_tensors_follows_the_memory_and_the_number_of_multiprocessors() -> None:
    # 1.93 times the rate of the memory, 132 multiprocessors in place of 108; 0.85 of the rate are reached.
    faster = ((0.85 / 1.93) ** 2 + (1 - 0.85**2) * (108 / 132) ** 2) ** 0.5
    assert taken_us(ELEMENTWISE, "vectorized_elementwise", 502.0, "h100-sxm") == pytest.approx(500 * faster, rel=0.02)
    # Of fused attention what sums up is no product.
    assert taken_us(ATTENTION, "flash_bwd_dot_do_o_kernel", 502.0, "h100-sxm") == pytest.approx(500 * faster, rel=0.02)


def test_convolutions_follow_the_memory_only_where_the_peak_grows_as_much() -> None:
    assert taken_us(CONVOLUTION, "xmma_fprop", 502.0, "h100-sxm") == pytest.approx(500 / 1.93, rel=0.02)
    was, will = machine("h100-sxm"), machine("h200-sxm")
    time = np.array([500e-6])
    assert taken_s(CONVOLUTION, "xmma_fprop", time, was, will)[0] == pytest.approx(500e-6, rel=0.01)


def test_long_products_follow_the_peak_and_short_ones_what_it_takes_to_start() -> None:
    peaks = machine("a100-sxm-80").row["peak_flops"][BF16] / machine("b200").row["peak_flops"][BF16]
    short, long = (taken_us(GEMM, "bf16_gemm", us, "b200") / us for us in (8.0, 20_000.0))
    assert long == pytest.approx(peaks, rel=0.25)
    assert 2 * long < short < 0.5
    assert taken_us(ATTENTION, "flash_fwd_kernel", 20_000.0, "b200") / 20_000 == pytest.approx(peaks, rel=0.3)


def test_what_names_tell_of_precision_decides_the_peak() -> None:
    single, rounded = (taken_us(GEMM, name, 20_000.0, "b200") for name in ("ampere_sgemm", "s1688gemm_64x64"))
    assert rounded < 0.7 * single


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the corpora of a job whose products take half of the GPU's time, with shapes and without."""
    folder = tmp_path_factory.mktemp("shapes")
    with_shapes = emulate(folder, Job(ranks=2, layers=3, hidden=2048, batch=16))
    (folder / "without").mkdir()
    for file in (folder / "four").glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        for event in trace["traceEvents"]:
            for name in SHAPES:
                event.get("args", {}).pop(name, None)
        (folder / "without" / file.name).write_bytes(gzip.compress(json.dumps(trace).encode()))
    return with_shapes, ingested(folder / "corpus_without", folder / "without")


def answer(corpus: Path, *texts: str) -> dict[str, Any]:
    row: dict[str, Any] = estimate(corpus, parse([*texts])).to_pylist()[0]
    return row


@pytest.mark.parametrize("hardware", ["h100-sxm", "b200", "a100-sxm-40", "tpu-v6e"])
def test_without_shapes_another_gpu_is_about_as_fast_as_with_them(both: tuple[Path, Path], hardware: str) -> None:
    known, told = (answer(corpus, f"hardware={hardware}") for corpus in both)
    assert told["gpu_busy_ns"] == pytest.approx(known["gpu_busy_ns"], rel=0.15)
    assert told["low_s"] < known["iteration_time_s"] < told["high_s"]
    assert told["unscaled_gpu_pct"] == 0
    assert any("% of GPU time the work is not known, because no shapes" in text for text in told["warnings"])
    assert not any("work is not known" in text for text in known["warnings"])


def test_other_replicas_on_another_gpu_keep_the_work_and_other_samples_do_not(both: tuple[Path, Path]) -> None:
    _, without = both
    one, both_changed = answer(without, "hardware=b200"), answer(without, "hardware=b200", "dp=4")
    assert both_changed["exposed_compute_ns"] == pytest.approx(one["exposed_compute_ns"], rel=0.05)
    with pytest.raises(QueryError, match=r"9[0-9]% of GPU time could not be rescaled, because no shapes"):
        answer(without, "hardware=b200", "batch_scale=2")


@pytest.mark.skipif(not TRUTH.exists(), reason=f"no measured kernels at {TRUTH}; name their folder in LUMOS_TRUTH")
def test_eight_of_ten_measured_products_are_as_near_as_said() -> None:
    table = pl.read_parquet(TRUTH / "kernels" / "gemm.parquet").filter(dtype="bfloat16")
    shape = ["m", "n", "k"]
    times = {gpu: table.filter(gpu=gpu).group_by(shape).agg(pl.col("latency_us").min()) for gpu, _ in MEASURED}
    errors = []
    for old, was in MEASURED:
        for new, will in MEASURED:
            if new != old:
                pair = times[old].join(times[new], on=shape)
                time = pair["latency_us"].to_numpy() * 1e-6
                after = taken_s(GEMM, "bf16_gemm", time, machine(was, BF16), machine(will, BF16))
                errors.append(np.log(after * 1e6 / pair["latency_us_right"].to_numpy()))
    within = np.mean(np.abs(np.concatenate(errors)) < np.log1p(ERROR))
    assert 0.78 < within < 0.84
