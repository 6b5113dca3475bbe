"""Several passes for each update; the gain is that of the job in which one has all samples."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import host_micro_batches
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, PASSES, WIDTH = 4, 4, 64
PRODUCT, GAP, ADDED = 200, 50, 40
"""Us that a product takes, what passes before each operator, and what it takes to add a gradient up."""
NODE = "autograd::engine::evaluate_function: "


def job(
    folder: Path,
    *,
    samples: int = 4,
    passes: int = PASSES,
    updates: int = 1,
    kinds: int = 1,
    forward: bool = True,
    lasts: int = PRODUCT,
) -> Advised:
    """Return what is said of a job whose steps have so many passes of so many samples, of nodes of so many kinds.

    `lasts`: us of a product.
    """
    events: list[Event] = []
    at = 0
    for step in range(STEPS):
        begin = at
        for number in range(passes):
            at = _pass(events, at, samples, number % kinds, lasts, forward=forward or not number)
        for _ in range(updates):
            events += [annotation("Optimizer.step#SGD.step", at + 5, 60), op("aten::_fused_sgd_", at + 10, 50)]
            at += 70
        events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
        at += 2
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def _pass(events: list[Event], at: int, samples: int, kind: int, lasts: int, *, forward: bool) -> int:
    """Write a pass: a product, another one in its node of the backward pass, and the gradient."""

    def product(start: int, *dims: list[int]) -> Event:
        return op("aten::mm", start, lasts, Input_Dims=list(dims), Input_type=["float"] * 2)

    number = at + 1
    if forward:
        at += GAP
        of_forward = {"Sequence number": number, "Fwd thread id": 0}
        events.append(product(at, [samples, WIDTH], [WIDTH, WIDTH]))
        events[-1]["args"] |= of_forward
        at += lasts
    at += GAP
    events.append(op(f"{NODE}Mm{kind}Backward0", at, lasts))
    events[-1]["args"] |= {"Sequence number": number, "Fwd thread id": 1}
    events.append(product(at, [WIDTH, samples], [samples, WIDTH]))
    at += lasts + GAP
    events.append(op(f"{NODE}torch::autograd::AccumulateGrad", at, ADDED))
    dims = [[WIDTH, WIDTH]]
    events.append(op("torch::autograd::AccumulateGrad", at, ADDED, Input_Dims=dims, Input_type=["float"]))
    events.append(op("aten::add_", at, ADDED, Input_Dims=dims * 2, Input_type=["float"] * 2))
    return at + ADDED


@pytest.mark.parametrize("samples", [4, 4096])
def test_passes_of_few_samples_are_the_first_advice(tmp_path: Path, samples: int) -> None:
    first = job(tmp_path, samples=samples).first
    assert first.remedy.rule == "host_micro_batches"
    assert first.remedy.what.startswith("4 forward and backward passes for each update take ")
    # What a product reads of a parameter: all but a tenth of a few samples, next to nothing of many.
    share = WIDTH * WIDTH / (WIDTH * WIDTH + 2 * samples * WIDTH)
    fixed, read = (PASSES - 1) * (3 * GAP + ADDED), (PASSES - 1) * share * 2 * PRODUCT
    assert first.gain_ns == pytest.approx(1000 * (fixed + read / 2), rel=0.12)
    assert first.low_ns < 1060 * fixed
    assert first.high_ns > 940 * (fixed + read)


def test_passes_of_many_samples_may_gain_nothing(tmp_path: Path) -> None:
    """What stays is so much more that larger tensors, at another speed, could cost what is gained."""
    said = job(tmp_path, samples=4096, lasts=10 * PRODUCT)
    assert not said.of_rule("host_micro_batches")
    assert list(host_micro_batches.remedies(said.job))


@pytest.mark.parametrize(
    "other",
    [{"passes": 1}, {"updates": 2}, {"kinds": 2}, {"forward": False}],
    ids=["one pass", "two updates", "passes of two nets", "a graph gone back through again"],
)
def test_other_steps_have_no_such_passes(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(host_micro_batches.remedies(job(tmp_path, **other).job))
