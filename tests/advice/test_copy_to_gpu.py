"""Batches whose copies hold the host or the GPU; the gain is that of the job that copies ahead."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.job_advice import advise
from lumos_df.trace.ingest import ingest
from tests.advice.emulated import BRIEF, advised, true_gain_ns
from tests.emulator import Job, simulate, write

JOB = Job(ranks=2, steps=3)


# Of the smaller batch most of the time is the wait for what the stream had been sent before.
@pytest.mark.parametrize(("batch_bytes", "moved"), [(500_000, "488 KiB"), (10_000_000, "9.54 MiB")])
def test_copying_from_pageable_memory_is_the_first_advice(tmp_path: Path, batch_bytes: int, moved: str) -> None:
    pageable, ahead = replace(JOB, pageable_bytes=batch_bytes), replace(JOB, ahead_bytes=batch_bytes)
    first = advised(tmp_path, pageable).first
    assert first.remedy.rule == "copy_to_gpu"
    assert first.remedy.what.startswith(f"{moved} a step copied to the GPU from pageable memory")
    assert first.remedy.rests_on == "6 rows of copies"
    assert first.gain_ns == pytest.approx(true_gain_ns(pageable, ahead), rel=0.1)


def test_copying_between_kernels_is_the_first_advice(tmp_path: Path) -> None:
    between, ahead = replace(JOB, batch_bytes=10_000_000), replace(JOB, ahead_bytes=10_000_000)
    first = advised(tmp_path, between).first
    assert first.remedy.rule == "copy_to_gpu"
    assert first.remedy.what.startswith("9.54 MiB a step copied to the GPU while kernels wait")
    assert first.gain_ns == pytest.approx(true_gain_ns(between, ahead), rel=0.1)


def test_pinned_copies_ahead_are_fine(tmp_path: Path) -> None:
    assert not advised(tmp_path, replace(JOB, ahead_bytes=10_000_000)).of_rule("copy_to_gpu")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (replace(JOB, pageable_bytes=10_000_000), "from pageable memory"),
        (replace(JOB, batch_bytes=10_000_000), "while kernels wait"),
    ],
)
def test_copies_whose_bytes_are_not_recorded_are_told_by_their_kind(tmp_path: Path, job: Job, words: str) -> None:
    for path in write(simulate(job), BRIEF, tmp_path / "traces"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for event in trace["traceEvents"]:
            event.get("args", {}).pop("bytes", None)
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert not ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1).failed
    [found] = advise(tmp_path / "corpus")
    assert found.advice[0].remedy.what.startswith(f"each batch copied to the GPU {words}")
