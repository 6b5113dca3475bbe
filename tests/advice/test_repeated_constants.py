"""Masks made again in every layer; the gain is that of the job that makes them once a step."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import repeated_constants
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, with_kernels, write

STEPS, LAYERS, MASK = 4, 4, 200
"""MASK: us of what makes a mask, in each layer of 400 us, whose node of the backward pass takes 100 us."""


def job(
    folder: Path,
    *,
    makes: str = "aten::ones",
    computes: str = "aten::triu",
    learns: bool = False,
    grows: int = 0,
    late: bool = False,
    gpu: bool = False,
) -> Advised:
    """Return what is said of a job whose layers make a mask each.

    `learns`: whether gradients go back through it. `grows`: by how much it is larger in each layer. `late`: it is made
    behind the backward pass. `gpu`: what computes launches kernels.
    """
    events: list[Event] = []
    for step, begin in enumerate(range(0, 5000 * STEPS, 5000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 4999))
        for layer in range(LAYERS):
            at = begin + 10 + 400 * layer
            size = 8 + grows * layer
            number = 10 * step + layer
            mask: dict[str, Any] = {"Input_Dims": [[size, size], []]}
            tied: dict[str, Any] = {"Sequence_number": number, "Fwd_thread_id": 0}
            made = at + (2100 if late else 0)
            events += [op(makes, made, 40, Input_Dims=[[], []]), op("aten::to", made + 45, 5, **mask)]
            events.append(op(computes, made + 60, 130, **mask, **(tied if learns else {})))
            linear = {} if learns else tied
            events.append(op("aten::linear", at + MASK, 190, Input_Dims=[[size, 8], [8, 8]], **linear))
            back = begin + 2000 - 100 * layer
            back_of = {"Sequence_number": number, "Fwd_thread_id": 1}
            events.append(op("autograd::engine::evaluate_function: MulBackward0", back, 98, **back_of))
        if not late:
            events.append(op("aten::mm", begin + 2110, 1580))
        events.append(op("aten::mm", begin + 3700, 1280))
    launching = (computes, "aten::linear", "aten::mm") if gpu else ()
    write(folder / "traces" / "rank0.json", with_kernels(events, *launching))
    return advice_on(folder)


def test_masks_of_every_layer_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "repeated_constants"
    assert first.remedy.what.startswith("what comes of aten::ones, and no parameter changes, is computed again, ")
    # Those of the first layer stay.
    assert first.gain_ns == pytest.approx(1000 * MASK * (LAYERS - 1), rel=0.1)
    assert first.low_ns <= 1000 * MASK * (LAYERS - 1) <= 1.1 * first.high_ns


def test_so_they_are_on_a_gpu(tmp_path: Path) -> None:
    [advice] = job(tmp_path, gpu=True).of_rule("repeated_constants")
    assert "is computed again, 360 us a step" in advice.remedy.what
    assert advice.gain_ns == pytest.approx(1000 * 190 * (LAYERS - 1), rel=0.1)


@pytest.mark.parametrize(
    "other",
    [
        {"makes": "aten::ne"},
        {"computes": "aten::view"},
        {"computes": "aten::bernoulli"},
        {"computes": "c10d::recv_"},
        {"learns": True},
        {"grows": 1},
        {"late": True},
    ],
    ids=["of samples", "views", "random", "received", "learned", "other sizes", "behind the backward pass"],
)
def test_what_is_no_constant_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(repeated_constants.remedies(job(tmp_path, **other).job))
