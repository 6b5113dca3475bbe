"""Layers of whose output one position is used; the gain is that of the job that takes it before."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import unused_rows
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, BATCH, LENGTH, WIDTH, WORDS = 4, 4, 20, 8, 50
OUTPUT = [BATCH, LENGTH, WORDS]


def of(*dims: list[int]) -> dict[str, Any]:
    return {"Input_Dims": list(dims)}


def job(
    folder: Path, *, sliced: bool = False, items: int = 1, also: str = "", left: tuple[int, ...] = (0, 2)
) -> Advised:
    """Return what is said of a job whose steps of 2 ms have a layer, forward and backward, of 900 us.

    `sliced`: whether a view comes before the item. `also`: another operator on the layer's output. `left`: the sizes
    of it that the item has.
    """
    events: list[Event] = []
    item = [OUTPUT[size] for size in left]
    for step, begin in enumerate(range(0, 2000 * STEPS, 2000)):
        tied = {"Sequence_number": 10 * step, "Fwd_thread_id": 0}
        events.append(
            op("aten::linear", begin + 10, 290, **of([BATCH, LENGTH, WIDTH], [WORDS, WIDTH], [WORDS]), **tied)
        )
        at = begin + 302
        for _ in range(items):
            if sliced:
                events.append(op("aten::slice", at, 4, **of(OUTPUT)))
                at += 5
            events.append(op("aten::select", at, 4, **of(OUTPUT)))
            events.append(op("aten::log_softmax", at + 6, 50, **of(item)))
            at += 60
        if also:
            events.append(op(also, at, 50, **of(OUTPUT)))
        tied = {"Sequence_number": 10 * step, "Fwd_thread_id": 1}
        events.append(op("autograd::engine::evaluate_function: AddmmBackward0", begin + 1000, 600, **tied))
        events += [op("aten::ones", begin + 1610, 300), annotation(f"ProfilerStep#{step}", begin, 1999)]
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


@pytest.mark.parametrize("sliced", [False, True])
def test_a_layer_of_which_one_position_is_used_is_the_first_advice(tmp_path: Path, *, sliced: bool) -> None:
    first = job(tmp_path, sliced=sliced).first
    assert first.remedy.rule == "unused_rows"
    assert first.remedy.what.startswith("a linear layer works on 20 positions, and one of them is used, ")
    assert first.gain_ns == pytest.approx(900_000 * (LENGTH - 1) / LENGTH, rel=0.03)


@pytest.mark.parametrize(
    "other",
    [{"items": 3}, {"also": "aten::add"}, {"left": (0, 1, 2)}, {"left": (0, 1)}],
    ids=["several items", "the whole output", "no item", "a word of each"],
)
def test_layers_of_which_more_is_used_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(unused_rows.remedies(job(tmp_path, **other).job))
