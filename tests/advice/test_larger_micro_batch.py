"""Small kernels wait for a host that takes as long for twice the samples; the gain is that for as many as before."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advised, mean_step_ns
from tests.emulator import Job, Profiler, training
from tests.emulator.hardware import DEVICE

SMALL = Job(ranks=2, steps=3, batch=1)
MEMORY = Profiler(stacks=False)


@pytest.mark.parametrize("batch", [1, 2])
def test_twice_the_samples_is_the_first_advice(tmp_path: Path, batch: int) -> None:
    small = replace(SMALL, batch=batch)
    first = advised(tmp_path, small, MEMORY).first
    assert first.remedy.rule == "larger_micro_batch"
    twice = mean_step_ns(replace(SMALL, batch=2 * batch)) / 2
    assert first.gain_ns == pytest.approx(mean_step_ns(small) - twice, rel=0.1)


def test_nothing_is_said_where_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DEVICE", replace(DEVICE, memory_bytes=450 << 20))
    assert not advised(tmp_path, SMALL, MEMORY).of_rule("larger_micro_batch")


def test_nothing_is_said_without_memory_records(tmp_path: Path) -> None:
    assert not advised(tmp_path, SMALL, BRIEF).of_rule("larger_micro_batch")


def test_a_busy_gpu_needs_no_more_samples(tmp_path: Path) -> None:
    said = advised(tmp_path, replace(SMALL, batch=8), MEMORY).advice
    assert "larger_micro_batch" not in [advice.remedy.rule for advice in said]
