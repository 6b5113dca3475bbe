"""The time of a matrix product: against its slow twin, the roofline, and what was measured."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.model.fitted import load, vector
from lumos_df.model.kernels.gemm import gemm_seconds, misaligned
from tests.model import kernels
from tests.model.kernels import GPUS, H100, Gpu
from tools import deepgemm

SIZE = st.integers(1, 70_000)
GPU = st.sampled_from(GPUS)


def seconds(m: int, n: int, k: int, gpu: Gpu, batch: int = 1) -> float:
    parameters = vector(load(gpu.name).gemm["bf16"])
    return float(gemm_seconds(m, n, k, batch, 2, gpu.peak_flops, gpu.hbm_bandwidth, gpu.sms, parameters))


@settings(deadline=None)  # the first call compiles
@given(SIZE, SIZE, SIZE, st.integers(1, 300), st.sampled_from((1, 2)), GPU, st.floats(0.5, 2))
def test_the_compiled_function_is_its_twin(
    m: int, n: int, k: int, batch: int, size: int, gpu: Gpu, factor: float
) -> None:
    parameters = replace(load(gpu.name).gemm["bf16"], training_factor=factor, cast_bytes=3.0)
    found = gemm_seconds(m, n, k, batch, size, gpu.peak_flops, gpu.hbm_bandwidth, gpu.sms, vector(parameters))
    assert found == pytest.approx(kernels.gemm(m, n, k, batch, size, gpu, parameters), rel=1e-9)


@settings(deadline=None)  # the first call compiles
@given(SIZE, SIZE, SIZE, GPU)
def test_never_faster_than_the_roofline(m: int, n: int, k: int, gpu: Gpu) -> None:
    assert seconds(m, n, k, gpu) >= 2 * m * n * k / gpu.peak_flops
    assert seconds(m, n, k, gpu) >= 2 * (m * k + k * n + m * n) / gpu.hbm_bandwidth


@settings(deadline=None)  # the first call compiles
@given(SIZE, SIZE, SIZE, GPU)
def test_twice_the_work_never_takes_less(m: int, n: int, k: int, gpu: Gpu) -> None:
    one = seconds(m, n, k, gpu) * (1 - 1e-12)
    assert seconds(2 * m, n, k, gpu) >= one
    assert seconds(m, 2 * n, k, gpu) >= one
    assert seconds(m, n, 2 * k, gpu) >= one
    assert seconds(m, n, k, gpu, batch=2) >= one


def test_one_row_of_tiles_more_than_a_wave_costs_more_than_its_share() -> None:
    parameters = replace(load("a100-sxm-80").gemm["bf16"], quantisation=1.0)
    full, more = (
        gemm_seconds(m, 108 * 128, 4096, 1, 2, 312e12, 2.039e12, 108, vector(parameters)) for m in (4096, 4097)
    )
    assert 1.02 < more / full < 1.2


def test_a_product_bound_by_memory_takes_the_time_of_its_bytes() -> None:
    weight = 8192 * 28672 * 2
    assert 0.6 < weight / H100.hbm_bandwidth / seconds(1, 28672, 8192, H100) < 0.95


@pytest.mark.parametrize(
    ("gpu", "m", "n", "k", "tflops"),
    [
        (GPUS[0], 1024, 10240, 5120, 271.2),
        (GPUS[1], 2048, 2048, 13312, 794.5),
        (GPUS[2], 1792, 16128, 3072, 1745.0),
    ],
    ids=["A100", "H100", "B200"],
)
def test_the_best_product_anyone_measured_is_near(gpu: Gpu, m: int, n: int, k: int, tflops: float) -> None:
    """stas00/ml-engineering 744d01e, compute/accelerator: the fastest of many shapes."""
    found = 2 * m * n * k / seconds(m, n, k, gpu) / 1e12
    assert 0.75 * tflops < found < 1.05 * tflops


@pytest.mark.parametrize(
    ("gpu", "m", "n", "k", "tflops"), [(GPUS[1], 1024, 9216, 14336, 1402.6), (GPUS[2], 15360, 4096, 3072, 3432)]
)
def test_products_of_converted_operands_are_near_the_best_anyone_measured(
    gpu: Gpu, m: int, n: int, k: int, tflops: float
) -> None:
    """The same source, of torch's scaled products of 8-bit operands; the fit has the conversion of A to take out."""
    fitted = load(gpu.name)
    bare, whole = fitted.gemm["fp8"].converted(fitted.gemm["bf16"].floor_s), fitted.gemm["fp8"]
    found, with_conversion = (
        2 * m * n * k / gemm_seconds(m, n, k, 1, 1, 2 * gpu.peak_flops, gpu.hbm_bandwidth, gpu.sms, vector(each)) / 1e12
        for each in (bare, whole)
    )
    assert 0.85 * tflops < found < 1.02 * tflops
    assert with_conversion < 0.85 * found


@pytest.mark.parametrize("source", deepgemm.CURRENT)
def test_products_with_scales_of_blocks_are_near_those_that_no_fit_saw(source: str) -> None:
    """Fitted to an engine's on an H100; these are DeepGEMM's on an H800. Those with one scale differ."""
    fitted = load("h100-sxm")
    off = {
        kind: abs(deepgemm.ratios(source, fitted.gemm[kind], fitted.gemm["bf16"].floor_s) - 1).mean()
        for kind in ("fp8", "fp8_block")
    }
    assert off["fp8_block"] < 0.06
    assert off["fp8"] > 0.1


def test_weight_gradients_with_scales_of_blocks_take_longer() -> None:
    """Fitted to the first of them; of groups none was seen. Another's H200 is slower than the authors' H800."""
    fitted, floor_s = load("h100-sxm").gemm["fp8_block"], load("h100-sxm").gemm["bf16"].floor_s
    assert deepgemm.with_weight_gradient(fitted, floor_s).weight_gradient == pytest.approx(
        fitted.weight_gradient, rel=1e-3
    )
    known, groups, other = (
        abs(deepgemm.ratios(each, fitted, floor_s) - 1).mean() for each in deepgemm.WEIGHT_GRADIENTS
    )
    assert max(known, groups) < 0.05
    assert other < 0.18
    with_one_scale = replace(fitted, weight_gradient=1.0)
    assert abs(deepgemm.ratios(deepgemm.WEIGHT_GRADIENTS[1], with_one_scale, floor_s) - 1).mean() > 0.25


def test_rows_of_odd_size_take_longer() -> None:
    """A thread loads 16 bytes, or 8, 4, 2."""
    longer = [misaligned(columns, 2.0) for columns in (50_264, 50_260, 50_258, 50_257)]
    assert longer[0] == 1
    assert [more / less for less, more in pairwise(longer)] == pytest.approx([2**0.45] * 3)
    assert misaligned(50_257, 4.0) == misaligned(50_258, 2.0)
