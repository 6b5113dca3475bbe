"""Parameters gathered again for the backward pass; the gain is that of the job that keeps them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advised, advised_in_two_groups, true_gain_ns
from tests.emulator import Job, Profiler, training
from tests.emulator.hardware import DEVICE

KEEPS = Job(ranks=4, layers=6, steps=3, zero=3, kept_whole=True, factors=(("AllGather", 20.0),))
"""Even one layer ahead gathers hold kernels up."""
AGAIN = replace(KEEPS, kept_whole=False)
MEMORY = Profiler(stacks=False)


def test_gathers_of_what_memory_has_room_for_are_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, AGAIN, MEMORY).first
    assert first.remedy.rule == "kept_parameters"
    # Six layers of 12 x 1024^2 elements of 2 bytes, and biases and norms.
    assert "keep 144 MiB of them beside" in first.remedy.what
    true = true_gain_ns(AGAIN, KEEPS)
    assert first.gain_ns == pytest.approx(true, rel=0.05)
    assert first.low_ns < true < first.high_ns


def test_groups_that_gather_side_by_side_take_no_longer(tmp_path: Path) -> None:
    [one] = advised(tmp_path / "one", AGAIN, MEMORY).of_rule("kept_parameters")
    [two] = advised_in_two_groups(tmp_path / "two", AGAIN, MEMORY).of_rule("kept_parameters")
    assert two.remedy.what == one.remedy.what


def test_a_full_memory_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DEVICE", replace(DEVICE, memory_bytes=1 << 30))
    assert not advised(tmp_path, AGAIN, MEMORY).of_rule("kept_parameters")


def test_nothing_is_said_without_memory_records(tmp_path: Path) -> None:
    assert not advised(tmp_path, AGAIN, BRIEF).of_rule("kept_parameters")


def test_jobs_that_keep_them_are_fine(tmp_path: Path) -> None:
    assert not advised(tmp_path, KEEPS, MEMORY).of_rule("kept_parameters")
