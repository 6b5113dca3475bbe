"""Experts on other ranks are sent tokens while the GPU waits; the gain is that of the job that sends half the bytes."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

SLOW = Job(ranks=4, steps=2, layers=2, batch=4, experts=4, factors=(("SendRecv", 8.0),))
HALF = replace(SLOW, factors=(("SendRecv", 4.0),))


def test_exchanges_that_the_gpu_waits_for_are_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, SLOW).first
    assert first.remedy.rule == "exchange_size"
    assert first.remedy.what.startswith("all_to_all transfers for ")
    assert first.gain_ns == pytest.approx(true_gain_ns(SLOW, HALF), rel=0.1)


def test_a_job_without_experts_exchanges_nothing(tmp_path: Path) -> None:
    assert not advised(tmp_path, replace(SLOW, experts=0)).of_rule("exchange_size")


def test_exchanges_behind_other_work_are_fine(tmp_path: Path) -> None:
    hidden = replace(SLOW, factors=(("SendRecv", 0.1),), paired=True)
    assert not advised(tmp_path, hidden).of_rule("exchange_size")
