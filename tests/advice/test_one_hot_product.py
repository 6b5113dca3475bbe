"""Products with one-hot vectors; the gain is that of the job that looks rows up."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import one_hot_product
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, BATCH, LENGTH, CLASSES, WIDTH = 4, 4, 8, 100, 16


def of(*dims: list[int]) -> dict[str, Any]:
    return {"Input_Dims": list(dims), "Input_type": ["float"] * len(dims)}


def job(folder: Path, *, inner: int = CLASSES, shapes: bool = True) -> Advised:
    """Return what is said of a job of 1 ms a step whose vectors and products take 700 us of it.

    `inner`: what the products go through.
    """
    events: list[Event] = []
    vectors = [BATCH, LENGTH, CLASSES]
    for step, begin in enumerate(range(0, 1000 * STEPS, 1000)):
        own = [
            op("aten::one_hot", begin + 10, 200, **of([BATCH, LENGTH], [])),
            op("aten::scatter_", begin + 100, 50, **of(vectors, [], [BATCH, LENGTH, 1], [])),
            op("aten::to", begin + 210, 100, **of(vectors, [])),
            op("aten::matmul", begin + 310, 200, **of(vectors, [CLASSES, WIDTH])),
            op("aten::mm", begin + 310, 200, **of([BATCH * LENGTH, inner], [inner, WIDTH])),
            op("aten::mm", begin + 510, 200, **of([inner, BATCH * LENGTH], [BATCH * LENGTH, WIDTH])),
            op("aten::mm", begin + 710, 200, **of([BATCH * LENGTH, WIDTH], [WIDTH, WIDTH])),
        ]
        events += own if shapes else [event | {"args": {}} for event in own]
        events.append(annotation(f"ProfilerStep#{step}", begin, 999))
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_products_with_one_hot_vectors_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "one_hot_product"
    assert first.gain_ns == pytest.approx(700_000, rel=0.02)


@pytest.mark.parametrize("other", [{"inner": 2 * CLASSES}, {"shapes": False}], ids=["labels of a loss", "no shapes"])
def test_vectors_that_nothing_is_multiplied_with_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not list(one_hot_product.remedies(job(tmp_path, **other).job))
