"""Batches of other lengths on each rank of a step; the gain is that of the job in which all have the mean."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

EVEN = Job(ranks=4, layers=2, steps=4, batch=8, sequence=512)
UNEVEN = replace(EVEN, lengths=(256, 640, 768, 384))
"""As many tokens in each step."""


def test_lengths_that_differ_by_rank_and_step_are_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, UNEVEN).first
    assert first.remedy.rule == "uneven_batches"
    assert "even out samples, or tokens" in first.remedy.what
    true = true_gain_ns(UNEVEN, EVEN)
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(EVEN, id="as many tokens everywhere"),
        pytest.param(replace(EVEN, longer=64), id="as many on all ranks"),
        pytest.param(replace(EVEN, kernel_noise=0.15, jitter_ns=20_000), id="kernels differ by chance"),
        pytest.param(replace(EVEN, experts=8), id="experts of as many tokens"),
    ],
)
def test_ranks_with_like_tensors_are_fine(tmp_path: Path, job: Job) -> None:
    assert not advised(tmp_path, job).of_rule("uneven_batches")


def test_parts_of_a_model_are_no_batches(tmp_path: Path) -> None:
    """Optimizers that share out parameters work on tensors of other sizes, the same ones in each step."""
    assert not advised(tmp_path, replace(EVEN, zero=1, unfused_optimizer=True)).of_rule("uneven_batches")
