"""The time of a kernel that memory bounds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.model.fitted import load, vector
from lumos_df.model.kernels.elementwise import elementwise_seconds
from tests.model import kernels
from tests.model.kernels import GPUS, Gpu


@settings(deadline=None)  # the first call compiles
@given(st.floats(1, 1e12), st.sampled_from(GPUS), st.floats(0.5, 2))
def test_the_compiled_function_is_its_twin_and_never_faster_than_memory(moved: float, gpu: Gpu, factor: float) -> None:
    parameters = replace(load(gpu.name).memory, training_factor=factor)
    found = elementwise_seconds(moved, gpu.hbm_bandwidth, vector(parameters))
    assert found == pytest.approx(kernels.elementwise(moved, gpu, parameters), rel=1e-9)
    assert found >= factor * moved / gpu.hbm_bandwidth


def test_a_small_kernel_takes_microseconds_a_large_one_its_bytes() -> None:
    parameters = vector(load("h100-sxm").memory)
    assert 1e-6 < elementwise_seconds(1, 3.35e12, parameters) < 6e-6
    assert elementwise_seconds(4e9, 3.35e12, parameters) == pytest.approx(4e9 / 3.35e12 / 0.9, rel=0.05)
