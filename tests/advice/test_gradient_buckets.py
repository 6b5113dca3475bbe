"""Every gradient reduced by itself costs the latency of a transfer each time; the gain is that of the usual buckets."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

# As CUDA graphs, so that steps in which nothing hides small reductions wait for nothing else.
HEALTHY = Job(ranks=2, steps=3, batch=1, captured="layer")
SMALL = replace(HEALTHY, bucket_bytes=1)


def test_a_reduction_for_every_gradient_is_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, SMALL).first
    assert first.remedy.rule == "gradient_buckets"
    assert "a step, 6.00 KiB at a time, each 20.0 us whatever its size: use buckets of" in first.remedy.what
    assert first.remedy.rests_on == "87 reductions, of which 75 would go"
    assert first.gain_ns == pytest.approx(true_gain_ns(SMALL, HEALTHY), rel=0.1)


def test_small_buckets_that_hide_behind_the_backward_pass_are_fine(tmp_path: Path) -> None:
    busy = replace(HEALTHY, batch=4, captured="")
    assert true_gain_ns(replace(busy, bucket_bytes=1), busy) < 0
    assert not advised(tmp_path, replace(busy, bucket_bytes=1)).of_rule("gradient_buckets")


def test_buckets_of_the_usual_size_are_fine(tmp_path: Path) -> None:
    said = advised(tmp_path, HEALTHY).advice
    assert "gradient_buckets" not in [advice.remedy.rule for advice in said]
