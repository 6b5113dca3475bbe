"""A backward pass a loss through the same operators; the gain is that of the job that goes back through them once."""

from pathlib import Path

import pytest

from lumos_df.advice.rules import backward_twice
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, OPERATORS = 4, 5
NODE = "autograd::engine::evaluate_function: "


def job(folder: Path, *, losses: int, shared: bool = True, penalty: bool = False) -> Advised:
    """Return what is said of steps whose losses each go back through the same operators, or through their own.

    A backward pass takes 600 us: a node of 100 us an operator, and one that gives a parameter its gradient. `penalty`:
    the last one goes back through what the nodes before did, too.
    """
    events: list[Event] = []
    for step, begin in enumerate(range(0, 5000 * STEPS, 5000)):
        at = begin + 5
        graphs = 1 if shared else losses
        for number in range(OPERATORS * graphs):
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 0}
            events.append(op("aten::addmm", at, 98, **tied))
            at += 100
        for loss in range(losses):
            for number in reversed(range(OPERATORS)):
                tied = {"Sequence_number": 100 * step + number + OPERATORS * (loss % graphs), "Fwd_thread_id": 1}
                own = {"Sequence_number": 100 * step + 50 + number, "Fwd_thread_id": 0} if penalty and not loss else {}
                events += [op(f"{NODE}AddmmBackward0", at, 98, **tied), op("aten::mm", at + 10, 80, **own)]
                at += 100
            if penalty and loss:
                tied = {"Sequence_number": 100 * step + 50, "Fwd_thread_id": 1}
                events.append(op(f"{NODE}MmBackward0", at, 98, **tied))
                at += 100
            events.append(op(f"{NODE}torch::autograd::AccumulateGrad", at, 98))
            events.append(op("torch::autograd::AccumulateGrad", at + 2, 90))
            at += 100
        events += [op("aten::add_", at, 200), annotation(f"ProfilerStep#{step}", begin, at + 202 - begin)]
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


@pytest.mark.parametrize("losses", [2, 3])
def test_going_back_once_for_every_loss_is_the_first_advice(tmp_path: Path, losses: int) -> None:
    first = job(tmp_path, losses=losses).first
    assert first.remedy.rule == "backward_twice"
    assert first.remedy.rests_on == f"{6 * (losses - 1) * STEPS} nodes of autograd"
    assert first.gain_ns == pytest.approx(600_000 * (losses - 1), rel=0.02)


@pytest.mark.parametrize(("losses", "shared"), [(1, True), (3, False)], ids=["one loss", "micro-batches"])
def test_graphs_that_are_gone_through_once_are_fine(tmp_path: Path, losses: int, *, shared: bool) -> None:
    assert not list(backward_twice.remedies(job(tmp_path, losses=losses, shared=shared).job))


def test_a_gradient_of_a_gradient_needs_both_passes(tmp_path: Path) -> None:
    assert not list(backward_twice.remedies(job(tmp_path, losses=2, penalty=True).job))
