"""Operators of a host in a row that each go through the same elements; the gain is that of the job with one of them."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import host_elementwise
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, CHAIN = 4, ("aten::mul", "aten::pow", "aten::unsqueeze", "aten::add", "aten::tanh")
OWN, LONGEST, BACK = 90, 180, 120
"""Us of a computing operator, of the last one, and of a node of the backward pass; 10 us pass between all."""


def job(folder: Path, *, names: tuple[str, ...] = CHAIN, widths: int = 0, optimizer: bool = False) -> Advised:
    """Return what is said of a job whose steps have these operators between two products, forward and backward.

    `widths`: by how much each has more elements than the one before. `optimizer`: they are the optimizer's.
    """
    events: list[Event] = []
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 2999), op("aten::linear", begin + 10, 300)]
        at = begin + 320
        for number, name in enumerate(names):
            lasts = LONGEST if number == len(names) - 1 else OWN
            dims: dict[str, Any] = {"Input_Dims": [[8, 16 + widths * number], [16 + widths * number]]}
            events.append(op(name, at, lasts, **dims, Sequence_number=10 * step + number, Fwd_thread_id=0))
            back = {"Sequence_number": 10 * step + number, "Fwd_thread_id": 1}
            node = begin + 2200 - (BACK + 10) * number
            events.append(op("autograd::engine::evaluate_function: MulBackward0", node, BACK, **back))
            at += lasts + 10
        if optimizer:
            events.append(annotation("Optimizer.step#SGD.step", begin + 315, at - begin - 315))
        events += [op("aten::linear", at, 200), op("aten::mm", begin + 2340, 650)]
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_operators_that_one_could_do_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "host_elementwise"
    assert first.remedy.what.startswith("operators such as aten::mul, aten::pow, aten::add, aten::tanh go through ")
    # The longest stays, and as much of what goes back; views are none of them.
    again = 3 * OWN / (3 * OWN + LONGEST)
    taken = 3 * OWN + LONGEST + 4 * BACK
    assert first.gain_ns == pytest.approx(1000 * again * taken, rel=0.12)
    assert first.low_ns < 0.55 * first.gain_ns
    assert first.high_ns > 1.45 * first.gain_ns


@pytest.mark.parametrize(
    "other",
    [{"names": ("aten::linear", "aten::tanh", "aten::linear")}, {"widths": 1}, {"optimizer": True}],
    ids=["alone", "other elements", "an optimizer's"],
)
def test_what_no_operator_could_do_at_once_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(host_elementwise.remedies(job(tmp_path, **other).job))
