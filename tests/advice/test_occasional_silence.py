"""Hosts that are silent in some steps; the gain is that of the job in which they are not."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advice_on, advised, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import annotation, op, write

HEALTHY = Job(ranks=3, steps=6, batch=4)


def silent(folder: Path, *in_steps: int) -> Path:
    """Write a job of one rank, whose host is silent at the end of some of nine steps."""
    events, at = [], 0
    for step in range(9):
        lasts = 6000 if step in in_steps else 1000
        events += [annotation(f"ProfilerStep#{step}", at, lasts - 1), op("aten::mm", at + 1, 990)]
        at += lasts
    write(folder / "traces" / "rank0.json", events)
    return folder


def test_ranks_that_are_silent_by_turns_should_be_so_together(tmp_path: Path) -> None:
    wrong = replace(HEALTHY, by_turns_ns=6_000_000)
    first = advised(tmp_path, wrong).first
    assert first.remedy.rule == "occasional_silence"
    assert first.remedy.what.startswith("nothing recorded for 2.00 ms a step before aten::to, in 6 of 18 steps")
    assert first.remedy.what.endswith("; let all ranks do it in the same step")
    assert first.gain_ns == pytest.approx(true_gain_ns(wrong, HEALTHY), rel=0.02)


def test_what_every_third_step_has_goes_by_no_number_of_a_step(tmp_path: Path) -> None:
    first = advice_on(silent(tmp_path, 1, 4, 7)).first
    assert first.remedy.rule == "occasional_silence"
    assert first.remedy.what.startswith("nothing recorded for 1.67 ms a step before the next step, in 3 of 9 steps: ")
    assert first.gain_ns == pytest.approx(15_000_000 / 9, rel=0.02)


def test_garbage_is_collected_wherever_the_program_is(tmp_path: Path) -> None:
    names, events, at = ("aten::mm", "aten::add", "aten::mul"), [], 0
    for step in range(9):
        first = at
        for place, name in enumerate(names):
            at += 5000 if step in (1, 4, 7) and step // 3 == place else 0
            events.append(op(name, at + 1, 300))
            at += 305
        events.append(annotation(f"ProfilerStep#{step}", first, at - first))
        at += 5
    write(tmp_path / "traces" / "rank0.json", events)
    first_said = advice_on(tmp_path).first
    assert first_said.remedy.rule == "occasional_silence"
    assert first_said.remedy.what.startswith("nothing recorded for 1.67 ms a step at varying places, in 3 of 9 steps: ")
    assert first_said.gain_ns == pytest.approx(15_000_000 / 9, rel=0.02)


def test_what_one_step_has_is_a_stall(tmp_path: Path) -> None:
    first = advice_on(silent(tmp_path, 4)).first
    assert first.remedy.rule == "stall"
    assert first.remedy.what.startswith("a silence before the next step, in 1 of 9 steps, takes 5.00 ms longer")


@pytest.mark.parametrize(
    "other", [HEALTHY, replace(HEALTHY, silence_ns=5_000_000), replace(HEALTHY, sleep_rank=1, sleep_ns=5_000_000)]
)
def test_what_every_step_or_one_rank_has_is_not_occasional(tmp_path: Path, other: Job) -> None:
    assert not advised(tmp_path, other).of_rule("occasional_silence")
