"""An optimizer of many kernels; the gain is that of the job in which one kernel updates everything."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

FUSED = Job(ranks=2, steps=2, layers=1)


@pytest.mark.parametrize("hidden", [128, 3072])
def test_an_optimizer_of_many_kernels_is_the_first_advice(tmp_path: Path, hidden: int) -> None:
    """The smaller model waits for the host, which has to launch them all, the larger one for memory."""
    fused = replace(FUSED, hidden=hidden)
    unfused = replace(fused, unfused_optimizer=True)
    said = advised(tmp_path, unfused)
    assert said.first.remedy.rule == "unfused_optimizer"
    assert said.first.remedy.known is Known.MODELLED
    assert said.first.remedy.what.startswith("AdamW takes")
    # 17 parameters of 8 operations.
    assert said.first.remedy.what.endswith("in 136 kernels a step: pass fused=True")
    assert said.first.gain_ns == pytest.approx(true_gain_ns(unfused, fused), rel=0.1)


def test_a_fused_optimizer_is_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, FUSED).of_rule("unfused_optimizer")
