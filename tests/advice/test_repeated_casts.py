"""Parameters cast in each micro-batch; the gain is that of the job that casts them in the first alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import repeated_casts
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import FaultyJob

ONCE = FaultyJob(ranks=2, steps=2, micro_batches=4, casts=1)


@pytest.mark.parametrize("inside", [False, True])
def test_casts_in_each_micro_batch_are_the_first_advice(tmp_path: Path, *, inside: bool) -> None:
    once = replace(ONCE, casts_inside=inside)
    each = replace(once, casts=4)
    first = advised(tmp_path, each).first
    assert first.remedy.rule == "repeated_casts"
    true = true_gain_ns(each, once)
    assert first.gain_ns == pytest.approx(true, rel=0.05)
    assert first.low_ns < true < first.high_ns


@pytest.mark.parametrize("passes", [1, 4])
def test_casts_in_one_pass_are_needed(tmp_path: Path, passes: int) -> None:
    said = advised(tmp_path, replace(ONCE, micro_batches=passes))
    assert not list(repeated_casts.remedies(said.job))
