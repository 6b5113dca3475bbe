"""Parameters gathered in small pieces; the gain is that of the job that gathers a layer at a time."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import parameter_units
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import FaultyJob

LAYERS = FaultyJob(ranks=4, steps=3, layers=4, zero=3)


@pytest.mark.parametrize("units", [8, 16])
def test_small_units_are_the_first_advice(tmp_path: Path, units: int) -> None:
    small = replace(LAYERS, units=units)
    first = advised(tmp_path, small).first
    assert first.remedy.rule == "parameter_units"
    true = true_gain_ns(small, LAYERS)
    assert first.gain_ns == pytest.approx(true, rel=0.35)
    assert first.low_ns < true < first.high_ns


def test_units_of_a_layer_are_fine(tmp_path: Path) -> None:
    assert not advised(tmp_path, LAYERS).of_rule("parameter_units")


def test_gradients_alone_are_no_units(tmp_path: Path) -> None:
    assert not list(parameter_units.remedies(advised(tmp_path, replace(LAYERS, zero=0)).job))
