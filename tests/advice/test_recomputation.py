"""Layers run again in the backward pass although memory has room; the gain is that of keeping activations."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, Advised, advice_on, advised, true_gain_ns
from tests.emulator import Job, Profiler, training
from tests.emulator.hardware import DEVICE
from tests.trace.literal import Event, annotation, op, write

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


def on_host(folder: Path, *, again: bool) -> Advised:
    """Return what is said of a host that goes up and down three layers, and perhaps up again before each down."""
    events: list[Event] = []
    at = 0
    for step in range(3):
        begin, at = at, at + 10
        for layer in range(3):
            events.append(op("aten::mm", at, 290, Sequence_number=10 * step + layer, Fwd_thread_id=0))
            at += 300
        for layer in reversed(range(3)):
            number, lasts = 10 * step + layer, 690 + 300 * again
            node = "autograd::engine::evaluate_function: MmBackward0"
            events.append(op(node, at, lasts, Sequence_number=number, Fwd_thread_id=1))
            events.append(op("MmBackward0", at + 1, lasts - 2, Sequence_number=number, Fwd_thread_id=1))
            if again:
                events.append(op("aten::mm", at + 2, 298, Sequence_number=number + 1000, Fwd_thread_id=0))
                at += 300
            events.append(op("aten::mm", at + 2, 680))
            at += 700
        events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_a_host_is_told_to_keep_activations_if_it_has_room(tmp_path: Path) -> None:
    first = on_host(tmp_path, again=True).first
    assert first.remedy.rule == "recomputation"
    assert first.remedy.what.endswith("keep them, if the host's memory has room")
    assert first.gain_ns == pytest.approx(900_000, rel=0.01)


def test_a_host_that_keeps_activations_is_fine(tmp_path: Path) -> None:
    assert not on_host(tmp_path, again=False).of_rule("recomputation")
