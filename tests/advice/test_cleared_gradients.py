"""Gradients that are set to zero and added to; the gain is that of the job in which they are dropped."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import cleared_gradients
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, PARAMETERS = 4, 6
ZERO, ADD = 50, 80
"""Us that setting a gradient to zero, and adding to it, takes."""


def job(
    folder: Path, *, annotated: str = "Optimizer.zero_grad#SGD.zero_grad", clears: str = "aten::zero_", passes: int = 1
) -> Advised:
    """Return what is said of a job whose steps clear gradients in such an annotation, and add to them in each pass."""
    events: list[Event] = []
    at = 0
    for step in range(STEPS):
        begin, at = at, at + 10
        events.append(annotation(annotated, at - 1, PARAMETERS * ZERO + 2))
        if clears:
            events.append(op("aten::_foreach_zero_", at, PARAMETERS * ZERO))
            events += [op(clears, at + 1 + ZERO * place, ZERO - 2) for place in range(PARAMETERS)]
        at += PARAMETERS * ZERO + 5
        for _ in range(passes * PARAMETERS):
            events.append(op("aten::mm", at, 100))
            at += 105
            events.append(op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, ADD + 8))
            events.append(op("torch::autograd::AccumulateGrad", at + 2, ADD + 4))
            events.append(op("aten::add_", at + 4, ADD))
            at += ADD + 10
        events += [op("aten::ones", at, 50), annotation(f"ProfilerStep#{step}", begin, at + 55 - begin)]
        at += 60
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


@pytest.mark.parametrize("passes", [1, 3])
def test_cleared_gradients_are_told_with_the_first_additions(tmp_path: Path, passes: int) -> None:
    (said,) = job(tmp_path, passes=passes).of_rule("cleared_gradients")
    # Later passes add to what the first one left.
    assert said.gain_ns == pytest.approx(1000 * PARAMETERS * (ZERO + ADD), rel=0.03)


@pytest.mark.parametrize("other", [{"clears": ""}, {"annotated": "the model's buffers"}], ids=["dropped", "others"])
def test_gradients_that_are_made_anew_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(cleared_gradients.remedies(job(tmp_path, **other).job))
