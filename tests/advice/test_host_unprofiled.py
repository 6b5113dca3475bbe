"""A host that a profiler slows; gains are those of the job without it, where its steps were timed without it."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, Advised, advice_on, mean_step_ns, true_gain_ns
from tests.emulator import Job, simulate, write

ALONE = Job(ranks=1, steps=3, layers=8, batch=1, python_ns=2_000)
ADDED_NS = 8_000
"""What the profiler adds to each operator."""


def profiled(folder: Path, alone: Job, *, told: bool = True) -> Advised:
    """Return what is said of a job that is slowed by a profiler, and whose steps without it the file tells."""
    slowed = replace(alone, python_ns=alone.python_ns + ADDED_NS)
    for path in write(simulate(slowed), BRIEF, folder / "traces"):
        said = b'{"lumosCapture":{"unprofiledBeforeNs":[%d]},' % round(mean_step_ns(alone))
        text = gzip.decompress(path.read_bytes()).replace(b"{", said if told else b"{", 1)
        path.write_bytes(gzip.compress(text, mtime=0))
    return advice_on(folder)


def test_graphs_gain_what_they_do_without_the_profiler(tmp_path: Path) -> None:
    said = profiled(tmp_path, ALONE)
    first, true = said.first, true_gain_ns(ALONE, replace(ALONE, captured="layer"))
    assert said.job.steps_ns.mean() == pytest.approx(mean_step_ns(ALONE), rel=0.01)
    assert first.remedy.rule == "launch_bound"
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


def test_a_sleep_is_as_long_without_it(tmp_path: Path) -> None:
    asleep = replace(ALONE, silence_ns=20_000_000)
    (silence,) = profiled(tmp_path, asleep).of_rule("host_silence")
    assert silence.gain_ns == pytest.approx(true_gain_ns(asleep, ALONE), rel=0.05)


def test_a_gpu_that_works_all_the_time_without_it_waits_for_nothing(tmp_path: Path) -> None:
    """Under the profiler graphs would gain."""
    busy = replace(ALONE, batch=3)
    assert profiled(tmp_path / "untold", busy, told=False).of_rule("launch_bound")
    assert not profiled(tmp_path, busy).of_rule("launch_bound")
