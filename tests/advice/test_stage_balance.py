"""Stages of a pipeline that compute longer than others; the gain is that of the job whose stages compute as long."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.advice.emulated import BRIEF, Advised, advice_on, advised
from tests.emulator import Job, write
from tests.emulator.megatron import Megatron, Outcome, simulate

HEADED = Megatron(pp=2, layers=2, hidden=512, ffn=2048, heads=8, sequence=512, micro_batches=4)
"""Of as many layers each; the last stage has the products with the vocabulary, too."""


def said_of(folder: Path, outcome: Outcome) -> Advised:
    write(outcome, BRIEF, folder / "traces")
    return advice_on(folder)


def mean_step_ns(outcome: Outcome) -> float:
    return float(np.mean([step.step_ns for step in outcome.steps]))


def test_a_longer_stage_is_the_first_advice(tmp_path: Path) -> None:
    wrong = simulate(HEADED)
    works = np.array([sum(r.end - r.start for r in of.gpu if not r.collective) for of in wrong.recordings])
    even = simulate(replace(HEADED, slower=tuple((works.mean() / works).tolist())))
    said = said_of(tmp_path, wrong)
    first = said.first
    assert first.remedy.rule == "stage_balance"
    assert ", rank 1 for " in first.remedy.what
    assert not said.of_rule("late_rank")
    true = mean_step_ns(wrong) - mean_step_ns(even)
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


def test_ranks_have_their_own_numbers_where_the_first_was_not_recorded(tmp_path: Path) -> None:
    write(simulate(replace(HEADED, pp=4, layers=4)), BRIEF, tmp_path / "traces")[0].unlink()
    [advice] = advice_on(tmp_path).of_rule("stage_balance")
    assert ", rank 3 for " in advice.remedy.what


def test_a_slower_gpu_among_stages_alike_is_late(tmp_path: Path) -> None:
    alike = replace(HEADED, pp=4, layers=4, hidden=2048, ffn=8192, vocabulary=512, sequence=1024)
    wrong = simulate(replace(alike, slower=(1, 1.5, 1, 1)))
    [late] = said_of(tmp_path, wrong).of_rule("late_rank")
    assert late.remedy.what.endswith(": slower work of the GPU")
    assert late.gain_ns == pytest.approx(mean_step_ns(wrong) - mean_step_ns(simulate(alike)), rel=0.25)


def test_ranks_that_send_nothing_are_no_stages(tmp_path: Path) -> None:
    assert not advised(tmp_path, Job(ranks=2, steps=2, single_rank=1)).of_rule("stage_balance")
