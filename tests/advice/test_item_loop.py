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
    apart: str = "",
    together: int = 0,
    last_size: int = 4,
    passes: bool = False,
) -> Advised:
    """Return what is said of a job whose steps of 3000 us take so many items out of a tensor of that size.

    `apart`: what takes the tensor, whose first size that is then, apart before. `together`: how many tensors a cat puts
    together behind the forward pass. `last_size`: of the tensor. `passes`: whether each round goes back by itself.
    """
    events: list[Event] = []
    tensor: dict[str, Any] = {"Input_Dims": [[8, size, last_size], [], []]} if shapes else {}
    whole: dict[str, Any] = {"Input_Dims": [[size, 4]]} if shapes else {}
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 2999), op("aten::ones", begin + 1, 500)]
        if apart:
            events.append(op(apart, begin + 503, 5, **whole))
        for number in range(items):
            at = begin + 510 + ROUND * number
            row: dict[str, Any] = {"Input_Dims": [[8, last_size], [4, last_size]]} if shapes else {}
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 0}
            events += [op(taken, at, 10, **tensor), op("aten::linear", at + 12, 80, **row, **tied)]
            events.append(op("aten::addmm", at + 40, PRODUCT, **row))
            if passes:
                events.append(op("autograd::engine::evaluate_function: MulBackward0", at + 93, 5))
            back = begin + 520 + ROUND * (2 * items - 1 - number)
            tied = {"Sequence_number": 100 * step + number, "Fwd_thread_id": 1}
            events.append(op("autograd::engine::evaluate_function: AddmmBackward0", back, 98, **tied))
            events.append(op("aten::mm", back + 10, 3 * PRODUCT, **row))
        if together:
            dims = [[[8, 4]] * together if together <= 30 else [], []]
            events.append(op("aten::cat", begin + 511 + ROUND * items, 6, Input_Dims=dims))
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


@pytest.mark.parametrize("size", [ITEMS, ITEMS + 1])
def test_items_are_taken_along_a_dimension_that_is_not_the_largest(tmp_path: Path, size: int) -> None:
    assert job(tmp_path, size=size, last_size=64).first.remedy.rule == "item_loop"


def test_items_are_filled_with_what_has_any_size(tmp_path: Path) -> None:
    """As sequences of several lengths and their mask: two items are taken a round."""
    events: list[Event] = []
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 2999), op("aten::ones", begin + 1, 900)]
        for number in range(ITEMS):
            at = begin + 1000 + ROUND * number
            for name in ("aten::copy_", "aten::fill_"):
                events.append(op("aten::select", at, 15, Input_Dims=[[ITEMS, 8], [], []]))
                events.append(op(name, at + 20, 25, Input_Dims=[[number], [number]]))
                at += 50
        events.append(op("aten::ones", begin + 2010, 980))
    write(tmp_path / "traces" / "rank0.json", events)
    first = advice_on(tmp_path).first
    assert first.remedy.rule == "item_loop"
    assert first.remedy.what.startswith(f"4 operators run {ITEMS} times in a row, for an item of a tensor at a time, ")
    assert first.gain_ns == pytest.approx(1000 * ROUND * (ITEMS - 1), rel=0.12)


def test_tensors_that_are_put_together_can_be_made_at_once(tmp_path: Path) -> None:
    first = job(tmp_path, taken="aten::relu", together=ITEMS).first
    assert first.remedy.rule == "item_loop"
    said = f"2 operators run {ITEMS} times in a row, each for one of the tensors that are put together behind them, "
    assert first.remedy.what.startswith(said)
    every = 2 * ITEMS * ROUND * (ITEMS - 1) / ITEMS
    assert first.high_ns > 950 * every
    assert first.low_ns < 1050 * (every - 4 * PRODUCT * ITEMS)


def test_of_long_lists_the_rounds_alone_are_known(tmp_path: Path) -> None:
    events: list[Event] = []
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 2999))
        for number in range(40):
            events += [op("aten::empty", begin + 10 + 50 * number, 10), op("aten::fill_", begin + 25 + 50 * number, 10)]
        events += [op("aten::stack", begin + 2011, 50, Input_Dims=[[], []]), op("aten::mm", begin + 2070, 900)]
    write(tmp_path / "traces" / "rank0.json", events)
    assert advice_on(tmp_path).first.remedy.what.startswith("2 operators run 40 times in a row, each for one of the ")


@pytest.mark.parametrize("layers", [10, 40])
@pytest.mark.parametrize(("gets", "told"), [([8, 4], False), ([8, 48], True)], ids=["layers", "heads"])
def test_layers_whose_outputs_are_put_together_are_no_loop(
    tmp_path: Path, layers: int, gets: list[int], *, told: bool
) -> None:
    """Each begins with a tensor like what the one before puts out; a head gets the one that all get."""
    events: list[Event] = []
    for step, begin in enumerate(range(0, 6000 * STEPS, 6000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 5999))
        for number in range(layers):
            at, back = begin + 10 + 50 * number, begin + 10 + 50 * (2 * layers + 2 - number)
            ties = {"Sequence_number": 100 * step + number}
            events.append(op("aten::linear", at, 20, Input_Dims=[gets, [4, gets[1]]], **ties, Fwd_thread_id=0))
            events.append(op("aten::relu", at + 22, 20, Input_Dims=[[8, 4]]))
            node = "autograd::engine::evaluate_function: AddmmBackward0"
            events.append(op(node, back, 40, **ties, Fwd_thread_id=1))
        dims = [[[8, 4]] * layers if layers <= 30 else [], []]
        events += [op("aten::stack", begin + 12 + 50 * layers, 40, Input_Dims=dims), op("aten::mm", begin + 5000, 900)]
    write(tmp_path / "traces" / "rank0.json", events)
    assert bool(advice_on(tmp_path).of_rule("item_loop")) == told


@pytest.mark.parametrize("reads", ["aten::item", "aten::neg"])
def test_numbers_read_one_by_one_are_the_first_advice(tmp_path: Path, reads: str) -> None:
    """Of tensors of any shapes, such as the norm of each parameter; without a number the loop stays unknown."""
    events: list[Event] = []
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 2999), op("aten::ones", begin + 1, 900)]
        for number in range(ITEMS):
            at = begin + 1000 + ROUND * number
            events.append(op("aten::linalg_vector_norm", at, 60, Input_Dims=[[number + 1, 4], []]))
            events.append(op(reads, at + 70, 5, Input_Dims=[[]]))
        events.append(op("aten::ones", begin + 2010, 980))
    write(tmp_path / "traces" / "rank0.json", events)
    said = advice_on(tmp_path).of_rule("item_loop")
    if reads != "aten::item":
        assert not said
        return
    what = said[0].remedy.what
    assert what.startswith(f"2 operators run {ITEMS} times in a row, each time to read a number, ")
    assert what.endswith(": compute all at once and read them once, or in fewer steps")
    assert said[0].gain_ns == pytest.approx(1000 * ROUND * (ITEMS - 1), rel=0.05)


@pytest.mark.parametrize(
    "other",
    [
        {"items": 5},
        {"taken": "aten::relu"},
        {"shapes": False},
        {"taken": "aten::relu", "apart": "aten::unbind", "items": 8},
        {"taken": "aten::relu", "apart": "aten::unbind", "items": 4, "size": 4},
        {"taken": "aten::relu", "together": 7},
        {"last_size": 64, "size": 20},
        {"passes": True},
    ],
    ids=[
        "some items",
        "layers",
        "no shapes",
        "layers after a split",
        "queries, keys and values",
        "some are put together",
        "some items along a dimension",
        "micro-batches",
    ],
)
def test_what_repeats_for_another_reason_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(item_loop.remedies(job(tmp_path, **other).job))
