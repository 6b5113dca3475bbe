"""A rank that sleeps, or works more slowly, is waited for; the gain is that of the job in which it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

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


def test_a_rank_by_itself_is_never_late(tmp_path: Path) -> None:
    assert not advised(tmp_path, Job(ranks=1, steps=2)).of_rule("late_rank")
