"""Operators called for an item of a tensor at a time; the gain is that of the job in which they are called once."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import item_loop
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, ITEMS = 4, 10
PRODUCT, ROUND = 20, 100
"""Us of a product, and from one item to the next in the forward pass; in the backward pass there are 60 and 100 us."""


def job(
    folder: Path,
    *,
    items: int = ITEMS,
    size: int = ITEMS,
    taken: str = "aten::select",
    shapes: bool = True,
    widths: int = 1,
    apart: str = "",
) -> Advised:
    """Return what is said of a job whose steps of 3000 us take so many items out of a tensor of that size.

    `apart`: what takes the tensor, whose first size that is then, apart before.
    """
    events: list[Event] = []
    tensor: dict[str, Any] = {"Input_Dims": [[8, size, 4], [], []]} if shapes else {}
    whole: dict[str, Any] = {"Input_Dims": [[size, 4]]} if shapes else {}
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 2999), op("aten::ones", begin + 1, 500)]
        if apart:
            events.append(op(apart, begin + 503, 5, **whole))
        for number in range(items):
            at = begin + 510 + ROUND * number
            row: dict[str, Any] = {"Input_Dims": [[8, 4 + number % widths], [4, 4]]} if shapes else {}
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 0}
            events += [op(taken, at, 10, **tensor), op("aten::linear", at + 12, 80, **row, **tied)]
            events.append(op("aten::addmm", at + 40, PRODUCT, **row))
            back = begin + 520 + ROUND * (2 * items - 1 - number)
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 1}
            events.append(op("autograd::engine::evaluate_function: AddmmBackward0", back, 98, **tied))
            events.append(op("aten::mm", back + 10, 3 * PRODUCT, **row))
        events.append(op("aten::ones", begin + 2600, 390))
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_a_loop_over_items_is_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "item_loop"
    assert first.remedy.what.startswith(f"2 operators run {ITEMS} times in a row, for an item of a tensor at a time, ")
    every, products = 2 * ITEMS * ROUND, 4 * PRODUCT * ITEMS
    least, most = 1000 * (every * (ITEMS - 1) / ITEMS - products), 1000 * every * (ITEMS - 1) / ITEMS
    assert first.gain_ns == pytest.approx((least + most) / 2, rel=0.03)
    assert first.low_ns < 1.05 * least
    assert first.high_ns > 0.95 * most


def test_a_tensor_that_is_gone_through_is_taken_apart_once(tmp_path: Path) -> None:
    first = job(tmp_path, taken="aten::relu", apart="aten::unbind").first
    assert first.remedy.rule == "item_loop"
    every = 2 * ITEMS * ROUND * (ITEMS - 1) / ITEMS
    assert first.high_ns > 950 * every
    assert first.low_ns < 1050 * (every - 4 * PRODUCT * ITEMS)


@pytest.mark.parametrize(
    "other",
    [
        {"items": 5},
        {"taken": "aten::relu"},
        {"shapes": False},
        {"widths": 2},
        {"taken": "aten::relu", "apart": "aten::unbind", "items": 8},
        {"taken": "aten::relu", "apart": "aten::unbind", "items": 4, "size": 4},
    ],
    ids=["some items", "layers", "no shapes", "other shapes", "layers after a split", "queries, keys and values"],
)
def test_what_repeats_for_another_reason_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(item_loop.remedies(job(tmp_path, **other).job))
