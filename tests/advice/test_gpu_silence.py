"""A GPU whose host was not recorded stands still; the gain is that of the job in which it goes on."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, Advised, advice_on
from tests.emulator import Job, simulate, write

HEALTHY = Job(ranks=1, steps=3, batch=8)
SILENT = replace(HEALTHY, silence_ns=30_000_000)


def of_gpu_alone(folder: Path, job: Job) -> Advised:
    """Return the advice on what the profiler writes of the GPU."""
    for file in write(simulate(job), BRIEF, folder / "traces"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        on_gpu = {"kernel", "gpu_memcpy", "gpu_memset"}
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") in on_gpu]
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return advice_on(folder)


def span_ns(job: Job) -> int:
    """Return how long the GPU works."""
    rows = simulate(job).recordings[0].gpu
    return max(row.end for row in rows) - min(row.start for row in rows)


def test_a_gpu_that_stands_still_is_the_first_advice(tmp_path: Path) -> None:
    first = of_gpu_alone(tmp_path, SILENT).first
    assert first.remedy.rule == "gpu_silence"
    assert first.remedy.rests_on == "2 silences of the GPU"
    # All of the recording is one step.
    assert first.gain_ns == pytest.approx(span_ns(SILENT) - span_ns(HEALTHY), rel=0.1)


def test_a_gpu_that_works_is_left_alone(tmp_path: Path) -> None:
    assert not of_gpu_alone(tmp_path, HEALTHY).of_rule("gpu_silence")
