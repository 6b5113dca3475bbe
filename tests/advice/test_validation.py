"""Forward passes behind the optimizer's step; the gain is that of the job in which no step has them."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import validation
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, kernel, launch, op, write

STEPS, PRODUCTS = 5, 3
BEHIND, BEFORE = 1000, 680
"""Where in a step of 2000 us a pass of 600 us begins: behind the optimizer's step, or before it."""


def products(at: float, *, backward: bool | None, count: int = PRODUCTS) -> list[Event]:
    """Return products of 80 us, each 100 us after the one before: of a forward pass, a backward pass, or neither."""
    events = []
    for number in range(count):
        begin = at + 100 * number
        tied = {} if backward is None else {"Sequence_number": 10 + number, "Fwd_thread_id": int(backward)}
        outer = "autograd::engine::evaluate_function: MmBackward0" if backward else "aten::linear"
        events += [op(outer, begin, 80, **tied), op("aten::mm", begin + 2, 76, **tied)]
    return events


def job(
    folder: Path,
    *,
    at: int = BEHIND,
    passes: int = 2,
    count: int = PRODUCTS,
    steps: int = STEPS,
    gpu: bool = False,
    reads: bool = False,
    learns: bool = False,
    wrapped: bool = False,
) -> Advised:
    """Return what is said of a job of which so many steps have so many passes without a backward one.

    `reads`: whether a number is read behind these; `learns`: of a loss; `wrapped`: they are DistributedDataParallel's.
    """
    events: list[Event] = []
    for step, begin in enumerate(range(0, 2000 * STEPS, 2000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 1999))
        events += products(begin + 5, backward=False) + products(begin + 310, backward=True)
        optimizer = begin + (900 if at == BEHIND else 1700)
        events += [annotation("Optimizer.step#SGD.step", optimizer, 50), op("aten::_fused_sgd_", optimizer + 2, 45)]
        if step < steps:
            events += [
                event for k in range(passes) for event in products(begin + at + 300 * k, backward=None, count=count)
            ]
            events += [annotation("DistributedDataParallel.forward", begin + at, 300 * passes)] * wrapped
        if reads:
            loss: dict[str, Any] = {"Sequence_number": 20, "Fwd_thread_id": 0} if learns else {}
            node = "autograd::engine::evaluate_function: SumBackward0"
            events.append(op(node, begin + at + 620, 20, Sequence_number=20, Fwd_thread_id=1))
            events += [op("aten::sum", begin + at + 590, 10, **loss), op("aten::item", begin + at + 602, 3)]
        events.append(op("aten::add", begin + 1900, 90))
    if gpu:
        called = [event for event in events if event["name"] == "aten::mm"]
        for number, event in enumerate(called, 1):
            events += [launch(event["ts"] + 5, 3, number), kernel("gemm", event["ts"] + 20, 60, correlation=number)]
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_passes_behind_the_optimizer_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "validation"
    assert first.remedy.what.startswith("forward passes of which nothing learns take 580 us a step: ")
    assert first.remedy.rests_on == f"{2 * PRODUCTS * STEPS} products of which nothing learns"
    assert first.gain_ns == pytest.approx(580_000, rel=0.02)


@pytest.mark.parametrize("wrapped", [False, True])
def test_passes_of_some_steps_are_told(tmp_path: Path, *, wrapped: bool) -> None:
    [advice] = job(tmp_path, steps=2, wrapped=wrapped).of_rule("validation")
    assert advice.remedy.rests_on == f"{2 * PRODUCTS * 2} products of which nothing learns"
    assert advice.gain_ns == pytest.approx(580_000 * 2 / STEPS, rel=0.02)


def test_samples_of_the_step_need_no_second_pass(tmp_path: Path) -> None:
    """As where outputs for a metric come of a pass of their own, between the loss and the backward pass."""
    events: list[Event] = []
    for step, begin in enumerate(range(0, 2000 * STEPS, 2000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 1999), *products(begin + 5, backward=False)]
        events.append(op("aten::log_softmax", begin + 310, 90, Sequence_number=13, Fwd_thread_id=0))
        events += [*products(begin + 405, backward=None), op("aten::item", begin + 700, 5)]
        node = "autograd::engine::evaluate_function: LogSoftmaxBackward0"
        events.append(op(node, begin + 710, 80, Sequence_number=13, Fwd_thread_id=1))
        events += products(begin + 795, backward=True)
        events += [annotation("Optimizer.step#SGD.step", begin + 1100, 50), op("aten::_fused_sgd_", begin + 1102, 45)]
        events.append(op("aten::add", begin + 1155, 840))
    write(tmp_path / "traces" / "rank0.json", events)
    first = advice_on(tmp_path).first
    assert first.remedy.rule == "validation"
    assert first.gain_ns == pytest.approx(280_000, rel=0.03)


def test_a_pass_of_which_a_number_is_read_alone_is_of_no_use_for_the_step(tmp_path: Path) -> None:
    first = job(tmp_path, at=BEFORE, reads=True).first
    assert first.remedy.rule == "validation"
    assert first.gain_ns == pytest.approx(580_000, rel=0.02)


@pytest.mark.parametrize(
    "other",
    [{"at": BEFORE}, {"at": BEFORE, "reads": True, "learns": True}, {"steps": 1}, {"passes": 1, "count": 2}],
    ids=["a teacher before it", "a teacher whose loss is read", "rare", "no whole pass"],
)
def test_what_the_step_may_need_is_rare_or_no_pass_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(validation.remedies(job(tmp_path, **other).job))


def test_kernels_of_a_pass_go_with_it(tmp_path: Path) -> None:
    [advice] = job(tmp_path, gpu=True).of_rule("validation")
    assert "take 360 us of the GPU a step: " in advice.remedy.what
