"""Attention of float32 beside products of bfloat16; the gain is that of the job that attends in bfloat16."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

# As in the test of unfused attention, this one leaves out no score.
HALF = Job(ranks=2, steps=2, layers=2, heads=8, sequence=2048, batch=2, factors=(("flash", 2.6),))
SINGLE = replace(HALF, single_attention=True)


def test_attention_of_float32_is_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, SINGLE).first
    assert first.remedy.rule == "attention_precision"
    assert first.remedy.known is Known.MODELLED
    assert first.remedy.rests_on == "16 kernels"
    assert first.gain_ns == pytest.approx(true_gain_ns(SINGLE, HALF), rel=0.1)


@pytest.mark.parametrize("job", [HALF, replace(SINGLE, products="tf32")])
def test_a_job_of_one_precision_is_left_alone(tmp_path: Path, job: Job) -> None:
    assert not advised(tmp_path, job).of_rule("attention_precision")
