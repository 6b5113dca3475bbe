"""A collective that transfers longer in one step; the gain is that of the job in which it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import slow_transfer
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import FaultyJob, Job, training
from tests.emulator.records import Collective

SOUND = FaultyJob(ranks=4, steps=4)
"""Of four reductions a step."""
LATE = replace(SOUND, late_collective=6)


def test_a_link_that_fails_once_is_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, LATE).first
    assert first.remedy.rule == "slow_transfer"
    assert first.remedy.what.startswith("all_reduce transfers longer in 1 of 4 steps than in most, ")
    true = true_gain_ns(LATE, SOUND)
    assert first.gain_ns == pytest.approx(true, rel=0.05)
    assert first.low_ns < true < first.high_ns


def test_waiting_for_a_late_rank_is_no_transfer(tmp_path: Path) -> None:
    said = advised(tmp_path, replace(SOUND, by_turns_ns=10_000_000))
    assert not list(slow_transfer.remedies(said.job))


def test_two_steps_do_not_tell_which_is_usual(tmp_path: Path) -> None:
    assert not list(slow_transfer.remedies(advised(tmp_path, replace(LATE, steps=2)).job))


def test_links_that_are_always_slow_are_no_event(tmp_path: Path) -> None:
    said = advised(tmp_path, replace(SOUND, slow_first=(("AllReduce", 9.0),)))
    assert not list(slow_transfer.remedies(said.job))


def test_small_ones_that_take_longer_now_and_then_hide_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = training.Trainer.transfer_ns

    def noisy(job: Job, collective: Collective) -> float:
        small = collective.elements < 1_000
        return usual(job, collective) * (2.2 if small and collective.seq % 3 == 0 else 1)

    monkeypatch.setattr(training.Trainer, "transfer_ns", staticmethod(noisy))
    # Of three reductions of gradients a step, and four of metrics.
    [advice] = advised(tmp_path, replace(SOUND, steps=6, averaged=4, late_collective=30)).of_rule("slow_transfer")
    assert advice.remedy.what.startswith("all_reduce transfers longer in 1 of 6 steps than in most, ")
    assert advice.remedy.rests_on == "1 collective"
