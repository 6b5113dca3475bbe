"""Products of one block more than the GPU has multiprocessors; the gain is that of the job that loses no wave."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

# Of every product more than half of the last wave is idle: 7 x 16 blocks of 128 x 128 on 108 multiprocessors.
LOSING = Job(ranks=2, steps=2, layers=2, hidden=2048, vocabulary=2048, sequence=128, batch=7, lost_wave=0.45)
FILLED = replace(LOSING, lost_wave=0.0)


def test_half_filled_waves_are_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, LOSING)
    assert said.first.remedy.rule == "wave_quantisation"
    assert said.first.remedy.known is Known.MODELLED
    assert "[896, 8192] x [8192, 2048] in 112 blocks on 108 multiprocessors" in said.first.remedy.what
    assert said.first.gain_ns == pytest.approx(true_gain_ns(LOSING, FILLED), rel=0.1)


def test_whole_waves_are_left_alone(tmp_path: Path) -> None:
    # 27 x 4 blocks in the layers and the head; gradients of weights have fewer than one wave.
    whole = Job(ranks=1, steps=2, layers=1, hidden=512, vocabulary=512, sequence=128, batch=27, lost_wave=0.45)
    assert not advised(tmp_path, whole).of_rule("wave_quantisation")
