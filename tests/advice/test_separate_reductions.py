"""Numbers averaged one after another at the end of a step; the gain is that of the job that averages all at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

ONCE = Job(ranks=4, layers=2, steps=3, batch=8, averaged=1)
EACH = replace(ONCE, averaged=12)


def test_numbers_averaged_one_after_another_are_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, EACH).first
    assert first.remedy.rule == "separate_reductions"
    assert first.remedy.what.startswith("12 reductions one after another behind the backward pass")
    true = true_gain_ns(EACH, ONCE)
    assert first.gain_ns == pytest.approx(true, rel=0.05)
    assert first.low_ns < true < first.high_ns


@pytest.mark.parametrize("job", [ONCE, replace(ONCE, averaged=0, bucket_bytes=1_000_000)])
def test_one_reduction_and_those_of_gradients_are_fine(tmp_path: Path, job: Job) -> None:
    assert not advised(tmp_path, job).of_rule("separate_reductions")
