"""Work that one rank alone has; the gain is that of the job in which no rank has it."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import extra_work
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.advice.test_more_micro_batches import said_of
from tests.emulator import FaultyJob, simulate, write
from tests.emulator.megatron import Megatron

EVEN = FaultyJob(ranks=4, steps=5, batch=8)
"""The first step, before which nothing ran, is late on no rank."""


@pytest.mark.parametrize("evaluations", [1, 2])
def test_an_evaluation_on_one_rank_is_the_first_advice(tmp_path: Path, evaluations: int) -> None:
    alone = replace(EVEN, evaluations=evaluations)
    first = advised(tmp_path, alone).first
    assert first.remedy.rule == "extra_work"
    assert first.remedy.what.startswith("rank 0 alone runs aten::linear, ")
    assert "in 5 of 5 steps" in first.remedy.what
    true = true_gain_ns(alone, EVEN)
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


def test_a_rank_that_takes_longer_for_the_same_has_no_more(tmp_path: Path) -> None:
    said = advised(tmp_path, replace(EVEN, sleep_rank=1, sleep_ns=3_000_000))
    assert said.first.remedy.rule == "late_rank"
    assert not list(extra_work.remedies(said.job))


def test_a_rank_that_runs_the_same_under_another_name_has_no_more(tmp_path: Path) -> None:
    """As torch.compile numbers its regions, and compiles some again on one rank alone."""
    for path in write(simulate(replace(EVEN, sleep_rank=1, sleep_ns=3_000_000)), BRIEF, tmp_path / "traces"):
        text = gzip.decompress(path.read_bytes())
        again = text.replace(b'"aten::linear"', b'"Torch-Compiled Region: 0/1"') if "rank1" in path.name else text
        path.write_bytes(gzip.compress(again))
    assert not list(extra_work.remedies(advice_on(tmp_path).job))


def test_stages_run_programs_of_their_own(tmp_path: Path) -> None:
    job = Megatron(pp=2, layers=2, hidden=512, ffn=2048, heads=8, sequence=512, steps=2)
    assert not list(extra_work.remedies(said_of(tmp_path, job).job))
