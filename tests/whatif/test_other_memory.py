"""Kernels on a GPU with another memory: literal ones, and jobs recorded on two GPUs."""

from pathlib import Path

import numpy as np
import pytest

from lumos_df.model.hardware import Hardware
from lumos_df.schema.dtypes import BF16, PRECISION_TABLE
from lumos_df.whatif.durations.other_memory import convolution_ratio, moved_besides, other_time, untold_ratio
from lumos_df.whatif.job.recorded_gpu import Machine
from tests.bench.other_gpu import Pair, pairs

RECORDINGS = Path(__file__).parent.parent / "recordings"
HALF = np.array([0.5])


def machine(name: str) -> Machine:
    return Machine.of(Hardware.read(name), PRECISION_TABLE[BF16])


@pytest.mark.parametrize(
    ("memory", "twice_the_rate", "twice_the_multiprocessors"),
    [
        # All of it is the memory's, also where its bytes would take longer; nothing; three fifths, four besides.
        (10.0, 5.0, 10.0),
        (12.0, 5.0, 10.0),
        (0.0, 10.0, 5.0),
        (6.0, (3**2 + 8**2) ** 0.5, (6**2 + 4**2) ** 0.5),
    ],
)
def test_what_waits_for_the_memory_follows_it(
    memory: float, twice_the_rate: float, twice_the_multiprocessors: float
) -> None:
    time, moved, same = np.array([10.0]), np.array([memory]), np.ones(1)
    assert other_time(time, moved, HALF, same)[0] == pytest.approx(twice_the_rate)
    assert other_time(time, moved, same, HALF)[0] == pytest.approx(twice_the_multiprocessors)
    assert other_time(time, moved, same, same)[0] == pytest.approx(10.0)


def test_what_fits_into_the_cache_does_not_come_from_the_memory() -> None:
    rate = machine("h100-sxm").memory_rate
    moved = np.array([20e6, 125e6]) / rate
    assert moved_besides(moved, machine("h100-sxm")) == pytest.approx([0.0, 100e6 / rate])


def test_the_same_gpu_takes_as_long() -> None:
    same = machine("h100-sxm")
    assert untold_ratio(same, same) == pytest.approx(1.0)
    assert convolution_ratio(same, same) == 1.0


@pytest.fixture(scope="module")
def recorded_on_both() -> list[Pair]:
    return [pair for name in ("l2_w1024_b2_s4096_eager", "l4_w2048_b16_s1024_eager") for pair in pairs(name)]


def test_a_job_recorded_on_an_h100_and_an_h200_tells_one_of_the_other(recorded_on_both: list[Pair]) -> None:
    assert len(recorded_on_both) == 4
    for pair in recorded_on_both:
        # As much less as the memory is faster, they were 8 to 10 and 4 to 5 % off.
        assert abs(pair.error_pct) < 3.5, pair
