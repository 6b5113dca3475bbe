"""Stages that wait for the first and last micro-batches; the gain is that of twice as many, each half as large."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.pipelines import pipelines
from lumos_df.advice.rules import more_micro_batches, stage_balance
from tests.advice.emulated import BRIEF, Advised, advice_on, advised
from tests.emulator import Job, training, write
from tests.emulator.megatron import Megatron, simulate

FEW = Megatron(pp=4, layers=4, hidden=4096, ffn=16384, heads=32, sequence=2048, vocabulary=1024, micro_batch=4, steps=2)


def said_of(folder: Path, job: Megatron) -> Advised:
    write(simulate(job), BRIEF, folder / "traces")
    return advice_on(folder)


def mean_step_ns(job: Megatron) -> float:
    return float(np.mean([step.step_ns for step in simulate(job).steps]))


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 4), (2, 2)])
def test_few_micro_batches_are_the_first_advice(tmp_path: Path, stages: int, micro_batches: int) -> None:
    few = replace(FEW, pp=stages, micro_batches=micro_batches)
    first = said_of(tmp_path, few).first
    assert first.remedy.rule == "more_micro_batches"
    waits = f"{stages} stages of the pipeline wait for the first and the last of {micro_batches} micro-batches: "
    assert first.remedy.what.startswith(waits)
    true = mean_step_ns(few) - mean_step_ns(replace(few, micro_batch=2, micro_batches=2 * micro_batches))
    assert first.low_ns < true < first.high_ns


def test_stages_wait_half_as_long_for_halves(tmp_path: Path) -> None:
    # By 1F1B a step lasts as long as the passes of as many micro-batches as there are, and of as many stages but one.
    long, short = (mean_step_ns(replace(FEW, micro_batches=count)) for count in (8, 4))
    [advice] = said_of(tmp_path, FEW).of_rule("more_micro_batches")
    assert advice.gain_ns == pytest.approx((FEW.pp - 1) * (long - short) / 4 / 2, rel=0.15)


def test_a_stage_by_itself_tells_nothing(tmp_path: Path) -> None:
    for path in write(simulate(FEW), BRIEF, tmp_path / "traces")[1:]:
        path.unlink()
    assert not list(more_micro_batches.remedies(advice_on(tmp_path).job))


def test_ranks_that_exchange_within_their_layers_are_no_stages(tmp_path: Path) -> None:
    """As those do that pass parts of a sequence around, which attention needs (ring attention)."""
    names = {"_c10d_functional::all_to_all_single": "c10d::send", "nccl:all_to_all": "nccl:send_recv"}
    names |= {'"all_to_allv"': '"send_recv"'}
    job = Job(ranks=4, layers=4, steps=3, experts=4, factors=(("SendRecv", 8.0),))
    for path in write(training.simulate(job), BRIEF, tmp_path / "traces"):
        text = gzip.decompress(path.read_bytes()).decode()
        for name, other in names.items():
            text = text.replace(name, other)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    of_job = advice_on(tmp_path).job
    assert pipelines(of_job).tolist() == [0, 1, 2, 3]
    assert not list(stage_balance.remedies(of_job))
    assert not list(more_micro_batches.remedies(of_job))


def test_ranks_that_send_nothing_are_no_stages(tmp_path: Path) -> None:
    assert not advised(tmp_path, Job(ranks=2, steps=2)).of_rule("more_micro_batches")
