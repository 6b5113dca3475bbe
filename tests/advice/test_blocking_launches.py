"""Launches that return when their kernel is over; the gain is that of the job whose launches return at once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.rules import blocking_launches
from tests.advice.emulated import advice_on, advised, advised_on_rocm, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import Event, annotation, kernel, launch, op, write

HEALTHY = Job(ranks=2, steps=3)
BLOCKING = replace(HEALTHY, blocking=True)


@pytest.mark.parametrize("sequence", [128, 512])
def test_launches_that_wait_are_the_first_advice(tmp_path: Path, sequence: int) -> None:
    healthy, blocking = (replace(job, sequence=sequence) for job in (HEALTHY, BLOCKING))
    said = advised(tmp_path, blocking)
    first = said.first
    assert first.remedy.rule == "blocking_launches"
    assert first.remedy.what.endswith(": run without CUDA_LAUNCH_BLOCKING")
    true = true_gain_ns(blocking, healthy)
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns
    # A launch waits for its kernel in the replay, too.
    assert said.job.steps_ns == pytest.approx(said.job.recorded_ns, rel=0.01)


def test_of_hip_its_own_variable_is_named(tmp_path: Path) -> None:
    assert "without HIP_LAUNCH_BLOCKING" in advised_on_rocm(tmp_path, BLOCKING).first.remedy.what


def test_launches_that_return_at_once_are_fine(tmp_path: Path) -> None:
    assert not list(blocking_launches.remedies(advised(tmp_path, HEALTHY).job))


def test_kernels_shorter_than_slow_launches_tell_nothing(tmp_path: Path) -> None:
    events: list[Event] = []
    for number, begin in enumerate(range(0, 6000, 200)):
        lasts = int(np.random.default_rng(number).integers(20, 100))
        events += [op("aten::add", begin + 5, lasts + 10), launch(begin + 8, lasts, number + 1)]
        events.append(kernel("add", begin + 12, 2 + number % 3, correlation=number + 1))
    events += [annotation(f"ProfilerStep#{step}", 2000 * step, 1999) for step in range(3)]
    write(tmp_path / "traces" / "rank0.json", events)
    assert not list(blocking_launches.remedies(advice_on(tmp_path).job))
