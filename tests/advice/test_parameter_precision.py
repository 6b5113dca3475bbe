"""Parameters gathered in float32 are twice the bytes; the gain is that of the job that gathers 16 bits."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import parameter_precision
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import FaultyJob


@pytest.mark.parametrize("zero", [1, 3])
def test_gathering_float32_is_the_first_advice(tmp_path: Path, zero: int) -> None:
    half = FaultyJob(ranks=4, steps=3, zero=zero, factors=(("AllGather", 3.0),))
    single = replace(half, gathered_bytes=4)
    first = advised(tmp_path, single).first
    assert first.remedy.rule == "parameter_precision"
    true = true_gain_ns(single, half)
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


def test_parameters_of_16_bits_are_fine(tmp_path: Path) -> None:
    assert not list(parameter_precision.remedies(advised(tmp_path, FaultyJob(ranks=2, steps=2, zero=3)).job))


def test_who_multiplies_in_float32_needs_them_so(tmp_path: Path) -> None:
    single = FaultyJob(ranks=2, steps=2, zero=3, gathered_bytes=4, products="tf32")
    assert not list(parameter_precision.remedies(advised(tmp_path, single).job))
