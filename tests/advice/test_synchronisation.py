"""Numbers read from the GPU in mid-step, and an allocator out of memory; gains are those of the job without."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, advised_on_rocm, true_gain_ns
from tests.emulator import Job

HEALTHY = Job(ranks=2, steps=3, batch=16)
READS = Job(ranks=2, steps=2, layers=8, batch=4)


@pytest.mark.parametrize("healthy", [READS, replace(READS, layers=2), replace(READS, batch=8)])
def test_numbers_that_every_layer_reads_are_the_first_advice(tmp_path: Path, healthy: Job) -> None:
    reading = replace(healthy, reads=True)
    said = advised(tmp_path, reading)
    assert said.first.remedy.rule == "synchronisation"
    assert said.first.remedy.what.startswith("aten::item makes the host wait for the GPU")
    assert said.first.gain_ns == pytest.approx(true_gain_ns(reading, healthy), rel=0.1)


@pytest.mark.parametrize("batch", [2, 16])
def test_an_allocator_that_waits_is_told(tmp_path: Path, batch: int) -> None:
    roomy = replace(HEALTHY, batch=batch)
    scarce = replace(roomy, scarce_memory=True)
    said = advised(tmp_path, scarce)
    (allocator,) = said.of_rule("synchronisation")[:1]
    # The smaller batch has a host that is slow anyway.
    assert (said.first is allocator) == (batch == 16)
    assert allocator.remedy.what.startswith("the allocator calls the driver")
    assert allocator.gain_ns == pytest.approx(true_gain_ns(scarce, roomy), rel=0.1)


def test_a_program_that_gives_memory_back_is_told_not_to(tmp_path: Path) -> None:
    emptied = replace(HEALTHY, emptied=True)
    first = advised(tmp_path, emptied).first
    assert first.remedy.what.startswith("the allocator calls the driver")
    assert first.remedy.what.endswith(": leave out torch.cuda.empty_cache()")
    assert first.gain_ns == pytest.approx(true_gain_ns(emptied, HEALTHY), rel=0.1)


def test_an_allocator_of_rocm_has_no_segments_that_expand(tmp_path: Path) -> None:
    said = advised_on_rocm(tmp_path, replace(HEALTHY, scarce_memory=True))
    what = said.of_rule("synchronisation")[0].remedy.what
    assert what.startswith("the allocator calls the driver")
    assert what.endswith(": leave it more memory")


@pytest.mark.parametrize(("steps", "advice"), [(1, "warm up first; where it stays, exp"), (3, "exp")])
def test_memory_of_the_only_step_may_be_that_of_a_first_one(tmp_path: Path, steps: int, advice: str) -> None:
    said = advised(tmp_path, replace(HEALTHY, steps=steps, scarce_memory=True))
    (what,) = [each.remedy.what for each in said.of_rule("synchronisation") if "allocator" in each.remedy.what]
    assert re.fullmatch(rf"the allocator calls the driver, [^:]+: {advice}andable_segments:True, or .*", what)


def test_a_loss_read_when_the_gpu_is_busy_costs_nothing(tmp_path: Path) -> None:
    assert not advised(tmp_path, HEALTHY).of_rule("synchronisation")
