"""A state that is copied in each step; the gain is that of the job in which it is not."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import state_copies
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, PARAMETERS, WIDTH = 4, 6, 64
COPY, ROUND = 150, 200
"""Us that a copy takes, and from one to the next."""


def job(
    folder: Path, *, copies: int = PARAMETERS, of: str = "aten::copy_", early: bool = False, annotated: str = ""
) -> Advised:
    """Return what is said of a job whose steps copy so many tensors as large as its parameters.

    `early`: before the backward pass. `annotated`: what the copies lie in.
    """
    events: list[Event] = []
    at = 0
    for step in range(STEPS):
        begin = at
        at += 10
        if early:
            at = _copy(events, at, copies, of)
        for _ in range(PARAMETERS):
            events.append(op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 290))
            events.append(
                op("torch::autograd::AccumulateGrad", at + 5, 280, Input_Dims=[[WIDTH, WIDTH]], Input_type=["float"])
            )
            at += 300
        events.append(op("aten::ones", at, 50))
        at += 60
        if not early:
            start = at
            at = _copy(events, at, copies, of)
            if annotated:
                events.append(annotation(annotated, start - 1, at - start + 1))
        events += [op("aten::ones", at, 50), annotation(f"ProfilerStep#{step}", begin, at + 55 - begin)]
        at += 60
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def _copy(events: list[Event], at: int, copies: int, of: str) -> int:
    for _ in range(copies):
        events.append(op("aten::new_empty", at, ROUND - COPY - 10, Input_Dims=[[WIDTH, WIDTH], []]))
        dims = [[WIDTH, WIDTH]] * 2
        events.append(op(of, at + ROUND - COPY - 5, COPY, Input_Dims=dims, Input_type=["float"] * 2))
        at += ROUND
    return at


def test_a_copied_state_is_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "state_copies"
    assert first.gain_ns == pytest.approx(1000 * PARAMETERS * ROUND, rel=0.03)


@pytest.mark.parametrize(
    "other",
    [{"copies": PARAMETERS - 1}, {"of": "aten::lerp_"}, {"early": True}, {"annotated": "Optimizer.step#SGD.step"}],
    ids=["a part", "averages", "before the gradients", "optimizer"],
)
def test_other_copies_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(state_copies.remedies(job(tmp_path, **other).job))
