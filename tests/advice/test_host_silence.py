"""A host that does nothing recorded; the gain is that of the job in which it goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import host_silence
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import annotation, op, write

HEALTHY = Job(ranks=2, steps=3, batch=8)


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        (False, "nothing recorded for 5.00 ms a step before aten::to"),
        (True, "5.01 ms a step in train.py(20): train_step"),
    ],
)
def test_a_silence_of_all_ranks_is_the_first_advice(tmp_path: Path, stacks: bool, named: str) -> None:  # noqa: FBT001
    silent = replace(HEALTHY, silence_ns=5_000_000)
    said = advised(tmp_path, silent, replace(BRIEF, stacks=stacks))
    assert said.first.remedy.rule == "host_silence"
    assert said.first.remedy.what.startswith(named)
    assert said.first.gain_ns == pytest.approx(true_gain_ns(silent, HEALTHY), rel=0.1)


def test_a_silence_goes_by_what_the_program_called_it(tmp_path: Path) -> None:
    events = []
    for step, at in enumerate(range(0, 4000, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999), annotation("write_logs", at + 150, 700)]
        events += [op("aten::mm", at + 1, 100), op("aten::add", at + 900, 90)]
    write(tmp_path / "traces" / "rank0.json", events)
    what = advice_on(tmp_path).first.remedy.what
    assert what.startswith("nothing recorded for 799 us a step in write_logs, before aten::add: ")


def test_a_silence_is_told_as_long_as_what_it_gains(tmp_path: Path) -> None:
    """All five steps end in one, but no row ends the last."""
    events = []
    for step, at in enumerate(range(0, 5000, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999), op("aten::mm", at + 1, 300)]
    write(tmp_path / "traces" / "rank0.json", events)
    first = advice_on(tmp_path).first
    assert first.remedy.what.startswith("nothing recorded for 559 us a step before the next step: ")
    assert first.gain_ns == pytest.approx(559_000, rel=0.01)


@pytest.mark.parametrize(
    "other", [HEALTHY, replace(HEALTHY, sleep_rank=1, sleep_ns=5_000_000), replace(HEALTHY, loader_ns=5_000_000)]
)
def test_a_silence_of_one_rank_or_of_a_loader_is_none(tmp_path: Path, other: Job) -> None:
    assert not list(host_silence.remedies(advised(tmp_path, other).job))
