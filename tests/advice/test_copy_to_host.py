"""Copies to the host hold the kernels behind them; the gain is that of the job that copies on another stream."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

HELD = Job(ranks=2, steps=3, batch=8, offloaded_bytes=20_000_000)
APART = replace(HELD, offloads_apart=True)


def test_copies_that_kernels_wait_for_are_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, HELD).first
    assert first.remedy.rule == "copy_to_host"
    assert first.remedy.what.startswith("19.1 MiB a step are copied to the host while kernels wait")
    assert first.gain_ns == pytest.approx(true_gain_ns(HELD, APART), rel=0.1)


def test_copies_beside_kernels_are_fine(tmp_path: Path) -> None:
    assert not advised(tmp_path, APART).of_rule("copy_to_host")
