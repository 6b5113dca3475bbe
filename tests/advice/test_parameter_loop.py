"""Operators called for one parameter after another; the gain is that of the job in which one call does it for all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import parameter_loop
from tests.advice.emulated import Advised, advice_on, advised, true_gain_ns
from tests.emulator import FaultyJob
from tests.trace.literal import Event, annotation, op, write

STEPS, PARAMETERS = 4, 20
OWN, ROUND = 20, 64
"""Us that each of two operators of a small parameter takes, and from one parameter to the next."""
LATENCY = (PARAMETERS - 1) * 2 * OWN
BETWEEN = (PARAMETERS - 1) * ROUND - LATENCY


def job(
    folder: Path,
    *,
    loops: int = PARAMETERS,
    optimizer: str = "AdamW",
    early: bool = False,
    passes: int = 1,
    calls: tuple[str, str] = ("aten::mul_", "aten::addcdiv_"),
) -> Advised:
    """Return what is said of a job whose step has loops of so many rounds, in the optimizer or after it.

    Of four parameters one is large: its operators take 500 us more. `early`: it is the forward pass that repeats them.
    """
    events: list[Event] = []
    length = 20_000
    for step, begin in enumerate(range(0, length * STEPS, length)):
        at = begin + 10
        if early:
            at = _loop(events, at, loops, calls)
        events.append(op("aten::linear", at, 100))
        at += 110
        for _ in range(passes):
            for _ in range(PARAMETERS):
                events.append(op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 18))
                events.append(op("torch::autograd::AccumulateGrad", at + 2, 10))
                at += 20
            events.append(op("aten::linear", at, 100))
            at += 110
        if not early:
            start = at
            at = _loop(events, at, loops, calls)
            if optimizer:
                events.append(annotation(f"Optimizer.step#{optimizer}.step", start - 1, at - start + 1))
        events += [op("aten::ones", at, 50), annotation(f"ProfilerStep#{step}", begin, at + 55 - begin)]
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def _loop(events: list[Event], at: int, rounds: int, calls: tuple[str, str]) -> int:
    for number in range(rounds):
        lasts = OWN + (500 if number % 4 == 0 else 0)
        events += [op(calls[0], at, OWN), op(calls[1], at + OWN + 12, lasts)]
        at += ROUND - OWN + lasts
    return at


@pytest.mark.parametrize("optimizer", ["AdamW", ""], ids=["optimizer", "averages"])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_loop_over_parameters_is_the_first_advice(tmp_path: Path, passes: int, optimizer: str) -> None:
    first = job(tmp_path, optimizer=optimizer, passes=passes).first
    assert first.remedy.rule == "parameter_loop"
    said = "the optimizer's step calls operators for each of 20 parameters, "
    other = "aten::addcdiv_, aten::mul_ run for each of 20 parameters, "
    assert first.remedy.what.startswith(said if optimizer else other)
    # What passes between operators goes, and none to all of what the small ones take.
    assert first.gain_ns == pytest.approx(1000 * (BETWEEN + LATENCY / 2), rel=0.05)
    assert first.low_ns < 1050 * BETWEEN
    assert first.high_ns > 950 * (BETWEEN + LATENCY)


@pytest.mark.parametrize(
    "other",
    [
        {"loops": 7},
        {"early": True},
        {"optimizer": "RMSprop"},
        {"optimizer": "", "calls": ("aten::linear", "aten::sort")},
    ],
    ids=["other rounds", "before the passes", "an optimizer that torch does not have fused", "metrics"],
)
def test_what_repeats_for_another_reason_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(parameter_loop.remedies(job(tmp_path, **other).job))


@pytest.mark.parametrize("small", [{}, {"layers": 6, "hidden": 256, "heads": 4, "vocabulary": 1024, "batch": 32}])
def test_a_loop_that_launches_kernels_goes_with_what_is_as_long_for_small_ones(
    tmp_path: Path, small: dict[str, Any]
) -> None:
    together = replace(FaultyJob(ranks=2, averages="at once"), **small)
    alone = replace(together, averages="one by one")
    first = advised(tmp_path, alone).first
    assert first.remedy.rule == "parameter_loop"
    assert first.remedy.what.startswith("aten::lerp_ run for each of ")
    true = true_gain_ns(alone, together)
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


def test_one_call_for_all_is_fine(tmp_path: Path) -> None:
    said = advised(tmp_path, FaultyJob(ranks=1, steps=2, averages="at once"))
    assert not list(parameter_loop.remedies(said.job))


def test_an_optimizer_on_a_gpu_is_that_of_another_rule(tmp_path: Path) -> None:
    said = advised(tmp_path, FaultyJob(ranks=1, steps=2, unfused_optimizer=True))
    assert not list(parameter_loop.remedies(said.job))
