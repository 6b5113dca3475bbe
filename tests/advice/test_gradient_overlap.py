"""One reduction of all gradients hides behind nothing; the gain is that of buckets that go during the backward pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

HEALTHY = Job(ranks=2, steps=3, bucket_bytes=25 << 20)


@pytest.mark.parametrize("job", [HEALTHY, replace(HEALTHY, ranks=4, layers=4, batch=8)])
def test_one_reduction_at_the_end_is_the_first_advice(tmp_path: Path, job: Job) -> None:
    late = replace(job, bucket_bytes=1 << 40)
    first = advised(tmp_path, late).first
    assert first.remedy.rule == "gradient_overlap"
    assert first.remedy.what.startswith("the backward pass could hide")
    assert first.remedy.rests_on == "3 reductions"
    assert first.gain_ns == pytest.approx(true_gain_ns(late, job), rel=0.1)


@pytest.mark.parametrize("job", [HEALTHY, replace(HEALTHY, ranks=4, layers=4, batch=8)])
def test_kernels_that_wait_for_each_reduction_are_the_first_advice(tmp_path: Path, job: Job) -> None:
    slow = replace(job, factors=(("AllReduce", 3.0),))
    awaited = replace(slow, awaited=True)
    said = advised(tmp_path, awaited)
    true = true_gain_ns(awaited, slow)
    assert said.first.remedy.rule == "gradient_overlap"
    assert said.first.gain_ns == pytest.approx(true, rel=0.1)
    assert said.first.low_ns < true < said.first.high_ns


@pytest.mark.parametrize("bucket_bytes", [1, 25_000_000, 25 << 20])
def test_buckets_that_go_when_they_are_full_are_fine(tmp_path: Path, bucket_bytes: int) -> None:
    said = advised(tmp_path, replace(HEALTHY, bucket_bytes=bucket_bytes)).advice
    assert "gradient_overlap" not in [advice.remedy.rule for advice in said]
