"""Operators that other programs keep from their core; the gain is that of the job in which they take what is usual."""

from pathlib import Path

import pytest

from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import annotation, op, write

STEPS, CALLS, OWN = 6, 20, 400
"""Of a step, and us that each call takes."""
SLICE = 3000
"""Us for which another program has the core."""


def job(folder: Path, *, late: int, silent: tuple[int, ...] = (), alike: bool = True, moves: int = 7) -> Advised:
    """Return what is said of a job of which so many calls a step are late, and some steps silent for as long as one.

    `alike`: whether all calls have the same shapes. `moves`: by how many calls the late ones move from step to step.
    """
    events, at = [], 0
    for step in range(STEPS):
        begin = at
        for call in range(CALLS):
            at += SLICE if step in silent and call == step else 0
            lasts = OWN + SLICE * ((call + moves * step) % CALLS < late)
            shape = [[8, 8 if alike else 8 + call * (1 + step)]]
            events.append(op("aten::mm", at + 2, lasts, Input_Dims=shape, Input_type=["float"]))
            at += lasts + 4
        events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
        at += 2
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_calls_that_are_late_in_every_step_are_told_once(tmp_path: Path) -> None:
    said = job(tmp_path, late=2, silent=(1, 4))
    assert said.first.remedy.rule == "busy_cores"
    assert said.first.remedy.what.startswith("operators take 6.00 ms a step longer than most of their name and ")
    assert said.first.gain_ns == pytest.approx(2_000 * SLICE, rel=0.01)
    assert not said.of_rule("occasional_silence")


def test_silences_are_told_where_no_operator_is_late(tmp_path: Path) -> None:
    said = job(tmp_path, late=0, silent=(1, 4))
    assert said.first.remedy.rule == "occasional_silence"
    assert not said.of_rule("busy_cores")


def test_operators_of_other_shapes_are_not_held_against_one_another(tmp_path: Path) -> None:
    assert not job(tmp_path, late=2, alike=False).of_rule("busy_cores")


def test_what_is_late_at_its_place_in_every_step_is_of_the_program(tmp_path: Path) -> None:
    assert not job(tmp_path, late=2, moves=0).of_rule("busy_cores")
