"""Gradients reduced in float32 are twice the bytes; the gain is that of the job that reduces 16 bits."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

SINGLE = Job(ranks=2, steps=3, factors=(("AllReduce", 20.0),), reduced_bytes=4)
HALF = replace(SINGLE, compressed=True)


@pytest.mark.parametrize("slowness", [20.0, 8.0, 4.0, 2.5])
def test_reducing_float32_is_the_first_advice(tmp_path: Path, slowness: float) -> None:
    single, half = (replace(job, factors=(("AllReduce", slowness),)) for job in (SINGLE, HALF))
    advice = advised(tmp_path, single).first
    assert advice.remedy.rule == "gradient_precision"
    assert advice.remedy.what.startswith("160 MiB of gradients are reduced in float32 a step and rank")
    assert advice.remedy.known is Known.MODELLED
    assert advice.gain_ns == pytest.approx(true_gain_ns(single, half), rel=0.1)


def test_on_fast_links_the_casts_are_not_worth_it(tmp_path: Path) -> None:
    fast = advised(tmp_path, replace(SINGLE, factors=()))
    assert fast.of_rule("gradient_precision") == []


def test_gradients_of_16_bits_are_fine(tmp_path: Path) -> None:
    said = advised(tmp_path, HALF).advice
    assert "gradient_precision" not in [advice.remedy.rule for advice in said]
