"""A vocabulary of an odd size; the gain is that of the job in which it is padded."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

PADDED = Job(ranks=2, steps=2, layers=1, vocabulary=8200, factors=(("align1", 4.0),))
ODD = replace(PADDED, vocabulary=8193)


def test_a_vocabulary_of_an_odd_size_is_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, ODD)
    assert said.first.remedy.rule == "kernel_shapes"
    assert said.first.remedy.known is Known.MODELLED
    assert "no multiples of 8" in said.first.remedy.what
    assert "8193" in said.first.remedy.what
    # Two steps on two ranks, one product forward and two backward.
    assert said.first.remedy.rests_on == "12 kernels"
    assert said.first.gain_ns == pytest.approx(true_gain_ns(ODD, PADDED), rel=0.1)


def test_padded_sizes_are_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, PADDED).of_rule("kernel_shapes")
