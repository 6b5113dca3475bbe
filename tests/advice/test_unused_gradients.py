"""Gradients that no optimizer uses; the gain is that of the job whose backward pass ends where they begin."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import unused_gradients
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, with_kernels, write

STEPS, LAYERS, WIDTH, WORDS = 4, 3, 16, 5
HEAD = [WORDS, WIDTH]
NODE = "autograd::engine::evaluate_function: "


def job(
    folder: Path,
    *,
    updated: tuple[list[int], ...] = (HEAD,),
    fused: tuple[tuple[list[int], ...], ...] = (),
    also: str = "",
    passes: int = 1,
    evaluates: bool = False,
    gpu: bool = False,
) -> Advised:
    """Return what is said of a job that goes back through a head and three layers, 200 us each, in steps of 2 ms.

    `updated`: shapes of what the optimizer updates, `fused` of further lists of it. `also`: another operator, behind
    the backward pass, on a tensor as large as a layer. `evaluates`: a last step goes forward alone. `gpu`: nodes
    launch a kernel each.
    """
    events: list[Event] = []
    for step, begin in enumerate(range(0, 4000 * STEPS, 4000)):
        at = begin + 10
        for _ in range(passes):
            events.append(op("aten::linear", at, 300))
            at += 310
            for shape in (HEAD, *([[WIDTH, WIDTH]] * LAYERS)):
                events.append(op(f"{NODE}MmBackward0", at, 150))
                events.append(op(f"{NODE}torch::autograd::AccumulateGrad", at + 151, 48))
                events.append(op("torch::autograd::AccumulateGrad", at + 152, 46, Input_Dims=[shape]))
                at += 200
        if also:
            events.append(op(also, at, 50, Input_Dims=[[WIDTH, WIDTH]]))
            at += 60
        events.append(annotation("Optimizer.step#SGD.step", at, 90))
        for number, shapes in enumerate((updated, *fused)):
            events.append(op("aten::_fused_sgd_", at + 5 + 20 * number, 15, Input_Dims=[[*shapes], [*shapes], []]))
        events.append(annotation(f"ProfilerStep#{step}", begin, at + 100 - begin))
    if evaluates:
        begin = 4000 * STEPS
        events += [op("aten::linear", begin + 10, 300), annotation(f"ProfilerStep#{STEPS}", begin, 400)]
    launching = (f"{NODE}MmBackward0", "aten::linear", "aten::_fused_sgd_") if gpu else ()
    write(folder / "traces" / "rank0.json", with_kernels(events, *launching))
    return advice_on(folder)


def test_layers_that_are_not_updated_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "unused_gradients"
    assert "to 3 parameters that no optimizer updates" in first.remedy.what
    assert first.gain_ns == pytest.approx(1000 * LAYERS * 200, rel=0.03)


def test_so_they_are_on_a_gpu(tmp_path: Path) -> None:
    [advice] = job(tmp_path, gpu=True).of_rule("unused_gradients")
    assert "goes on for 420 us a step" in advice.remedy.what
    assert advice.gain_ns == pytest.approx(1000 * LAYERS * 200, rel=0.03)


def test_a_last_step_that_goes_forward_alone_hides_nothing(tmp_path: Path) -> None:
    assert job(tmp_path, evaluates=True).first.remedy.rule == "unused_gradients"


@pytest.mark.parametrize(
    "other",
    [
        {"updated": (HEAD, *([[WIDTH, WIDTH]] * LAYERS))},
        {"updated": ([WIDTH, WIDTH],)},
        {"updated": ()},
        {"fused": ((),)},
        {"fused": (([WIDTH, WIDTH],) * LAYERS,)},
        {"also": "aten::add_"},
        {"passes": 2},
    ],
    ids=["all", "one of like layers", "no shapes", "a long list", "two lists", "by hand", "two passes"],
)
def test_gradients_that_may_be_used_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(unused_gradients.remedies(job(tmp_path, **other).job))
