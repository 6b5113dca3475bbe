"""Real runs of one H200: what is advised first, and whether the run without the fault, or captured, took so much less.

The steps of each were timed without the profiler; h200/runs.csv has those of all.
"""

import csv
from pathlib import Path

import pytest

from lumos_df.advice.job_advice import JobAdvice, advise
from lumos_df.trace.ingest import ingest

_H200 = Path(__file__).parents[1] / "recordings" / "h200"
_NOISE_MS = 2.5
"""Steps that wait for the host differ by so much, a tenth, from run to run: its core is shared."""


def advised(folder: Path, recording: str) -> JobAdvice:
    """Return what is said of a recording."""
    corpus = folder / "corpus"
    assert not ingest([_H200 / recording], corpus, workers=1).failed
    (job,) = advise(corpus)
    return job


def step_ms(net: str, change: str) -> float:
    """Return the median step of a run without the profiler, ms."""
    with (_H200 / "runs.csv").open(encoding="utf-8") as file:
        return next(
            float(row["median_ms"]) for row in csv.DictReader(file) if [row["net"], row["change"]] == [net, change]
        )


@pytest.mark.parametrize(
    ("recording", "cure", "rule"),
    [
        ("nets/gpt2--base", "graphed", "launch_bound"),
        ("nets/resnet50--base", "graphed", "launch_bound"),
        ("nets/bert--base", "tf32", "kernel_precision"),
        ("nets/llama--base", "fused_optimizer", "unfused_optimizer"),
        ("faults/gpt2--other_sizes", "base", "new_sizes"),
    ],
)
def test_the_cure_that_was_recorded_comes_first_and_gains_what_is_told(
    tmp_path: Path, recording: str, cure: str, rule: str
) -> None:
    net, change = Path(recording).name.split("--")
    job, true_ms = advised(tmp_path, recording), step_ms(net, change) - step_ms(net, cure)
    first = job.found[0]
    assert 1e-6 * job.step_ns == pytest.approx(step_ms(net, change), rel=0.02)
    assert first.remedy.rule == rule
    assert 1e-6 * first.low_ns - _NOISE_MS < true_ms < 1e-6 * first.high_ns + _NOISE_MS
    assert 1e-6 * first.gain_ns == pytest.approx(true_ms, rel=0.1, abs=_NOISE_MS)


def test_logits_that_are_copied_to_pageable_memory_come_first(tmp_path: Path) -> None:
    """A tenth of the gain is that the memory is freed, which is a silence."""
    first = advised(tmp_path, "faults/gpt2--logits_to_host").found[0]
    assert first.remedy.rule == "copy_to_host"
    assert 1e-6 * first.gain_ns == pytest.approx(step_ms("gpt2", "logits_to_host") - step_ms("gpt2", "base"), rel=0.1)


@pytest.mark.parametrize("recording", ["nets/vit--base", "faults/gpt2--graphed"])
def test_a_gpu_that_works_all_the_time_without_the_profiler_waits_for_no_launches(
    tmp_path: Path, recording: str
) -> None:
    assert "launch_bound" not in [each.remedy.rule for each in advised(tmp_path, recording).found]
