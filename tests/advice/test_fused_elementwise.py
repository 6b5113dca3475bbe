"""A formula of many pointwise kernels; the gain is that of the job in which one kernel computes it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.remedy import Known
from lumos_df.advice.rules import fused_elementwise
from lumos_df.schema.codes import GEMM
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

FUSED = Job(ranks=2, steps=2, layers=2, hidden=2048)
CHAIN = replace(FUSED, unfused_gelu=True)


def test_a_chain_of_pointwise_kernels_is_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, CHAIN)
    assert said.first.remedy.rule == "fused_elementwise"
    assert said.first.remedy.known is Known.MODELLED
    # A layer has one forward and one backward.
    assert said.first.remedy.what.startswith("4 chains of pointwise kernels read again what they wrote, ")
    assert said.first.remedy.rests_on == f"{2 * 2 * 4 * 7} kernels"
    assert said.first.gain_ns == pytest.approx(true_gain_ns(CHAIN, FUSED), rel=0.1)


def test_single_pointwise_kernels_are_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, FUSED).of_rule("fused_elementwise")


def test_what_a_larger_operator_does_around_its_own_work_is_no_chain(tmp_path: Path) -> None:
    job = advised(tmp_path, CHAIN).job
    for place, calls in enumerate(job.kernel_calls):
        product = calls.operator[calls.family == GEMM][0]
        job.kernel_calls[place] = replace(calls, operator=np.full_like(calls.operator, product))
    assert not [*fused_elementwise.remedies(job)]
