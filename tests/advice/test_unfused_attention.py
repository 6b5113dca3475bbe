"""Attention by several kernels; the gain is that of the job in which one does it."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from lumos_df.advice.rules import fused_elementwise
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

# The emulator's time is that of a causal mask. This one leaves out no score, at the rate that kernels of an A100 reach
# with so few heads.
FUSED = Job(ranks=2, steps=2, layers=2, heads=8, sequence=2048, batch=2, factors=(("flash", 2.6),))
UNFUSED = replace(FUSED, unfused_attention=True)


def test_scores_in_memory_are_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, UNFUSED)
    assert said.first.remedy.rule == "unfused_attention"
    assert said.first.remedy.known is Known.MODELLED
    assert said.first.remedy.what.endswith("use scaled_dot_product_attention")
    # Two steps of two layers on two ranks, forward and backward.
    assert said.first.remedy.rests_on == "16 softmaxes"
    assert said.first.gain_ns == pytest.approx(true_gain_ns(UNFUSED, FUSED), rel=0.1)
    # The scale and the mask go with it, and are no chain of their own.
    assert not [*fused_elementwise.remedies(said.job)]


def test_fused_attention_is_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, FUSED).of_rule("unfused_attention")
