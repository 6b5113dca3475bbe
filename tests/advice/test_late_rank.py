"""A rank that sleeps, or works more slowly, is waited for; the gain is that of the job in which it does not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.remedy import Known
from lumos_df.advice.steady_lateness import steady
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import Job, write
from tests.emulator.megatron import Megatron, simulate

HEALTHY = Job(ranks=4, steps=3, batch=8)


@pytest.mark.parametrize("sleep_ns", [3_000_000, 20_000_000])
def test_a_sleeping_rank_is_the_first_advice(tmp_path: Path, sleep_ns: int) -> None:
    sleepy = replace(HEALTHY, sleep_rank=2, sleep_ns=sleep_ns)
    said = advised(tmp_path, sleepy)
    assert said.first.remedy.rule == "late_rank"
    assert said.first.remedy.known is Known.MEASURED
    assert said.first.remedy.what.startswith("rank 2 is waited for")
    assert "nothing recorded, before" in said.first.remedy.what
    assert said.first.remedy.switches == "--no-wait rank=2"
    true = true_gain_ns(sleepy, HEALTHY)
    assert said.first.gain_ns == pytest.approx(true, rel=0.1)
    assert said.first.low_ns <= said.first.gain_ns <= said.first.high_ns


def test_ranks_that_are_alike_are_not_blamed(tmp_path: Path) -> None:
    assert not advised(tmp_path, HEALTHY).of_rule("late_rank")


NOISY = replace(HEALTHY, kernel_noise=0.15, jitter_ns=20_000)
"""Kernels and launches that differ from one time to the next."""


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_rank_that_chance_made_late_is_not_blamed(tmp_path: Path, seed: int) -> None:
    job = replace(NOISY, batch=16, steps=4, seed=seed)
    assert not advised(tmp_path, job).of_rule("late_rank")


def test_a_late_rank_is_told_among_ranks_that_differ(tmp_path: Path) -> None:
    sleepy = replace(NOISY, sleep_rank=2, sleep_ns=3_000_000)
    said = advised(tmp_path, sleepy)
    assert said.first.remedy.rule == "late_rank"
    assert said.first.remedy.what.startswith("rank 2 is waited for")
    assert said.first.low_ns <= true_gain_ns(sleepy, NOISY) <= said.first.high_ns


def test_who_waits_for_a_late_rank_in_a_group_is_not_blamed_in_the_next(tmp_path: Path) -> None:
    sound = Megatron(tp=4, dp=2, layers=1, micro_batches=2, micro_batch=2, vocabulary=8192, steps=3)
    slow = simulate(replace(sound, slower=(1.0,) * 5 + (1.5, 1.0, 1.0)))
    write(slow, BRIEF, tmp_path / "traces")
    (late,) = advice_on(tmp_path).of_rule("late_rank")
    assert late.remedy.what.startswith("rank 5 is waited for")
    true = np.mean([step.step_ns for step in slow.steps]) - np.mean([step.step_ns for step in simulate(sound).steps])
    assert late.low_ns < true < late.high_ns


def test_who_is_late_once_is_not_late_in_every_step() -> None:
    once = np.array([[40.0, 0.0, 0.0], [-20.0, 0.0, 0.0], [-20.0, 0.0, 0.0]])
    assert not steady(once).any()
    assert steady(np.array([[9.0, 11.0], [9.0, 10.0], [-18.0, -21.0]])).tolist() == [True, True, False]


def test_chance_seldom_makes_a_rank_late() -> None:
    normal = np.random.default_rng(0).normal(size=(500, 4, 3))
    late = normal - normal.mean(axis=1, keepdims=True)
    assert np.mean([steady(each).any() for each in late]) < 0.06


def test_one_step_tells_nothing_of_chance() -> None:
    assert steady(np.array([[2.0], [-2.0]])).all()


def test_a_rank_by_itself_is_never_late(tmp_path: Path) -> None:
    assert not advised(tmp_path, Job(ranks=1, steps=2)).of_rule("late_rank")
