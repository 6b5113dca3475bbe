"""Operators that prepare for the sizes of each step; the gain is that of the job whose sizes come again."""

from pathlib import Path

import pytest

from lumos_df.advice.rules import new_sizes
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, kernel, launch, op, write

STEPS, LAYERS, STEP, PLAN, CALL = 4, 4, 10_000, 6_000, 100
"""Us of a step, of a plan, and of a call that has one."""


def job(folder: Path, plan: int, sizes: int = STEPS) -> Advised:
    """Return what is said of a job of so many sizes, in turn; the first call of a step takes a plan, us, longer."""
    events: list[Event] = []
    for step in range(STEPS):
        at = STEP * step
        events.append(annotation(f"ProfilerStep#{step}", at, STEP - 1))
        for layer in range(LAYERS):
            lasts = CALL if layer else CALL + plan
            call, shape = LAYERS * step + layer + 1, [4, 64 + step % sizes]
            events += [
                op("aten::attention", at + 1, lasts, Input_Dims=[shape, shape], Input_type=["float", "float"]),
                launch(at + lasts - 9, 5, call),
                kernel("attention", at + lasts, 50, correlation=call),
            ]
            at += lasts + 10
        events.append(op("aten::ones", at + 1, STEP * (step + 1) - at - 20))
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_plans_for_the_sizes_of_each_step_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path, PLAN).first
    assert first.remedy.rule == "new_sizes"
    assert first.remedy.what.startswith("aten::attention prepare for the sizes of each step anew, 6.00 ms of the host")
    assert first.gain_ns == pytest.approx(1000 * PLAN, rel=0.02)


@pytest.mark.parametrize(("plan", "sizes"), [(0, STEPS), (PLAN, 1), (PLAN, 2)])
def test_sizes_that_come_again_or_need_no_plan_are_fine(tmp_path: Path, plan: int, sizes: int) -> None:
    assert not list(new_sizes.remedies(job(tmp_path, plan, sizes).job))
