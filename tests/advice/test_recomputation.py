"""Layers run again in the backward pass although memory has room; the gain is that of keeping activations."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advised, true_gain_ns
from tests.emulator import Job, Profiler, training
from tests.emulator.hardware import DEVICE

KEEPS = Job(ranks=2, steps=3)
RECOMPUTES = replace(KEEPS, recompute="full")
MEMORY = Profiler(stacks=False)


def test_recomputation_with_room_for_activations_is_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, RECOMPUTES, MEMORY).first
    assert first.remedy.rule == "recomputation"
    # A layer keeps 18 tensors of tokens x hidden, 4 MiB each, and there are two.
    assert "keep 144 MiB of them beside" in first.remedy.what
    assert first.remedy.rests_on == "120 rows of recomputation on GPUs"
    assert first.gain_ns == pytest.approx(true_gain_ns(RECOMPUTES, KEEPS), rel=0.1)


def test_recomputation_that_a_full_memory_needs_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(DEVICE, memory_bytes=600 << 20)
    monkeypatch.setattr(training, "DEVICE", small)
    assert not advised(tmp_path, RECOMPUTES, MEMORY).of_rule("recomputation")


def test_nothing_is_said_without_memory_records(tmp_path: Path) -> None:
    assert not advised(tmp_path, RECOMPUTES, BRIEF).of_rule("recomputation")


def test_jobs_that_keep_activations_are_fine(tmp_path: Path) -> None:
    assert not advised(tmp_path, KEEPS, MEMORY).of_rule("recomputation")
