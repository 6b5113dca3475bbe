"""Small kernels launched one by one; the gain is that of the job whose layers came as CUDA graphs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advise.emulated import advised, true_gain_ns
from tests.emulator import Job

SMALL = Job(ranks=2, steps=2, layers=8, batch=1)


def test_many_small_launches_are_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, SMALL)
    assert said.first.remedy.rule == "launch_bound"
    assert "kernels a step: capture forward and backward" in said.first.remedy.what
    assert said.first.gain_ns == pytest.approx(true_gain_ns(SMALL, replace(SMALL, captured="layer")), rel=0.1)


def test_a_sleep_among_the_launches_is_none_of_them(tmp_path: Path) -> None:
    asleep = replace(SMALL, silence_ns=20_000_000)
    (capture,) = advised(tmp_path, asleep).of_rule("launch_bound")
    assert capture.gain_ns == pytest.approx(true_gain_ns(asleep, replace(asleep, captured="layer")), rel=0.1)


@pytest.mark.parametrize("healthy", [replace(SMALL, captured="model"), Job(ranks=2, steps=2, batch=16)])
def test_graphs_and_large_kernels_are_left_alone(tmp_path: Path, healthy: Job) -> None:
    assert not advised(tmp_path, healthy).of_rule("launch_bound")
