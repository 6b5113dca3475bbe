"""A data loader that is not ready; the gain is that of the job in which it is."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advised, true_gain_ns
from tests.emulator import Job

HEALTHY = Job(ranks=2, steps=3, batch=8, loader_ns=10_000)


@pytest.mark.parametrize("stacks", [False, True])
def test_a_slow_loader_is_the_first_advice(tmp_path: Path, stacks: bool) -> None:  # noqa: FBT001
    slow = replace(HEALTHY, loader_ns=5_000_000)
    said = advised(tmp_path, slow, replace(BRIEF, stacks=stacks))
    assert said.first.remedy.rule == "data_loader"
    assert (
        said.first.remedy.what == "the host waits 5.00 ms a step for the data loader: num_workers above 0, pin_memory"
    )
    assert said.first.remedy.rests_on == "6 calls of the loader"
    assert said.first.gain_ns == pytest.approx(true_gain_ns(slow, HEALTHY), rel=0.1)


def test_a_loader_that_is_ready_is_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, HEALTHY).of_rule("data_loader")
