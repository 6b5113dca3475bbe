"""A tensor that grows piece by piece; the gain is that of the job which puts the pieces together once."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import growing_cat
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, with_kernels, write

STEPS, PIECES = 4, 10
CAT, BACK = 60, 30
"""Us of a cat, and of its node in the backward pass."""


def job(
    folder: Path,
    *,
    pieces: int = PIECES,
    grows: int = 1,
    tensors: int = 2,
    shapes: bool = True,
    needed: bool = False,
    learns: bool = True,
    gpu: bool = False,
) -> Advised:
    """Return what is said of a job whose steps of 3000 us add so many pieces to a tensor, one after another.

    `grows`: by how much a tensor is larger than the one before. `needed`: whether another operator gets each. `learns`:
    whether the backward pass goes through them. `gpu`: operators launch a kernel each.
    """
    events: list[Event] = []
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 2999))
        for number in range(pieces):
            at = begin + 10 + 150 * number
            dims = [[[4, 2 + number * grows, 8], *[[4, 1, 8]] * (tensors - 1)], []]
            given: dict[str, Any] = {"Input_Dims": dims} if shapes else {}
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 0}
            events.append(op("aten::tanh", at, 80, Input_Dims=[[4, 2 + number, 8] if needed else [4, 8]]))
            events.append(op("aten::cat", at + 85, CAT, **given, **tied))
            if not learns:
                continue
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 1}
            back = begin + 2000 - 45 * number
            events.append(op("autograd::engine::evaluate_function: CatBackward0", back, BACK, **tied))
        events.append(op("aten::mm", begin + 2100, 890))
    launching = ("aten::tanh", "aten::cat", "aten::mm") if gpu else ()
    write(folder / "traces" / "rank0.json", with_kernels(events, *launching))
    return advice_on(folder)


def test_a_tensor_that_grows_by_cat_is_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "growing_cat"
    assert first.remedy.what.startswith(
        f"a tensor grows {PIECES} times by aten::cat, which copies all before it again, "
    )
    # The last one makes the whole. Nodes follow one another in 45 us.
    assert first.gain_ns == pytest.approx(1000 * (CAT + 45) * (PIECES - 1), rel=0.05)


def test_a_cache_that_grows_can_be_made_as_large_as_it_gets(tmp_path: Path) -> None:
    assert list(growing_cat.remedies(job(tmp_path, needed=True, learns=False).job))


def test_a_cache_that_grows_on_a_gpu_is_the_first_advice(tmp_path: Path) -> None:
    [advice] = job(tmp_path, needed=True, learns=False, gpu=True).of_rule("growing_cat")
    assert "450 us a step more than once" in advice.remedy.what
    assert advice.gain_ns == pytest.approx(1000 * CAT * (PIECES - 1), rel=0.05)


@pytest.mark.parametrize(
    "other",
    [{"pieces": 5}, {"grows": 0}, {"grows": 2}, {"tensors": 3}, {"shapes": False}, {"needed": True}],
    ids=["a few", "the same size", "by more than the piece", "three tensors", "no shapes", "needed by each layer"],
)
def test_other_cats_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(growing_cat.remedies(job(tmp_path, **other).job))
