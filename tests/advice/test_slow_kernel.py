"""Single kernels that take far longer than others of their name and shapes; the gain is that of the job without."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, mean_step_ns, true_gain_ns
from tests.emulator import Job

EVEN = Job(ranks=2, layers=8, steps=3, batch=8)
SLOW = replace(EVEN, slow_first=(("GeluCUDAKernelImpl", 30.0),))


def test_one_slow_kernel_of_each_step_is_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, SLOW)
    assert said.first.remedy.rule == "slow_kernel"
    assert said.first.remedy.what.startswith("single kernels of aten::gelu take ")
    assert ", in 3 of 3 steps, than most of their name and shapes: " in said.first.remedy.what
    assert said.first.remedy.rests_on == "6 kernels on 2 ranks"
    true = true_gain_ns(SLOW, EVEN)
    assert true > 0.05 * mean_step_ns(SLOW)
    assert said.first.gain_ns == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(EVEN, id="none is slow"),
        pytest.param(replace(EVEN, kernel_noise=0.3), id="all vary"),
        pytest.param(replace(EVEN, factors=(("GeluCUDAKernelImpl", 30.0),)), id="all are slow"),
        pytest.param(replace(EVEN, layers=2, slow_first=(("GeluCUDAKernelImpl", 30.0),)), id="every other one is slow"),
        pytest.param(replace(EVEN, slow_first=(("GeluCUDAKernelImpl", 1.9),)), id="not twice as long"),
    ],
)
def test_what_most_kernels_do_is_no_slow_kernel(tmp_path: Path, other: Job) -> None:
    assert not advised(tmp_path, other).of_rule("slow_kernel")
