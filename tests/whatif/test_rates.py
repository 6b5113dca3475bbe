"""Rates of changed jobs: all tokens of a step over all GPUs and its time, whatever the plan was and becomes."""

from pathlib import Path

import pytest

from lumos_df.whatif.answer import step_rows
from tests.model.roofs import BF16_FLOPS, FP32_FLOPS
from tests.structure.made import Made
from tests.whatif import ideal

MICRO_BATCH = 2 * 64
"""Tokens: two sequences of 64."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight layers, two micro-batches, on one rank."""
    return ideal.corpus(tmp_path_factory.mktemp("whole"), Made(layers=8, micro_batches=2))


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first and the last of four stages of two ranks each: eight layers, four micro-batches."""
    job = Made(layers=2, pp=4, tp=2, micro_batches=4)
    return ideal.corpus(tmp_path_factory.mktemp("staged"), job, (0, 1, 6, 7))


def flop(tokens: int) -> float:
    """Three passes: two FLOP a weight and token, four a layer, pair of tokens and channel."""
    return 3 * (2 * (8 * 12 * 256**2 + 5000 * 256) + 4 * 8 * 64 * 256) * tokens


@pytest.mark.parametrize(
    ("known", "text", "before", "after"),
    [
        # GPUs and micro-batches of all replicas, before and after.
        ({}, "", (1, 2), (1, 2)),
        ({}, "pp=2", (1, 2), (2, 2)),
        ({}, "pp=4 batch=8", (1, 2), (4, 8)),
        ({}, "pp=2 vp=2 batch=4", (1, 2), (2, 4)),
        ({"dp": 2, "world": 2}, "", (2, 4), (2, 4)),
        ({"dp": 2, "world": 2}, "dp=8", (2, 4), (8, 16)),
        ({"dp": 2, "world": 2}, "dp=4 pp=2 batch=3", (2, 4), (8, 12)),
        ({"tp": 2, "dp": 1, "world": 2}, "tp=4", (2, 2), (4, 2)),
        ({"tp": 2, "dp": 2, "world": 4}, "tp=1 pp=4 batch=4", (4, 4), (8, 8)),
    ],
)
def test_rates_are_those_of_all_tokens_on_all_gpus(
    whole: Path, known: dict[str, int], text: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    rows = step_rows.rows(ideal.on_links(whole, text, known)).to_pylist()
    assert rows
    for row in rows:
        for prefix, (gpus, batches) in (("original_", before), ("", after)):
            step = row[f"{prefix}iteration_time_s"]
            assert row[f"{prefix}gpus"] == gpus
            tokens = batches * MICRO_BATCH
            assert row[f"{prefix}tokens_per_s_per_gpu"] == pytest.approx(tokens / gpus / step)
            # Backward kernels have no shapes: what is asked follows from the dimensions. What a tensor-parallel rank
            # of two was recorded with is half of the model.
            assert row["flops_from"] == "dimensions"
            asked = flop(tokens) * known.get("tp", 1) / gpus / step
            assert row[f"{prefix}tflops_per_s_per_gpu"] == pytest.approx(asked / 1e12)
            assert row[f"{prefix}mfu_pct"] == pytest.approx(100 * asked / BF16_FLOPS)


@pytest.mark.parametrize(
    ("text", "gpus", "batches"), [("", 8, 4), ("pp=2", 4, 4), ("pp=2 batch=8", 4, 8), ("pp=1 batch=2", 2, 2)]
)
def test_rates_of_a_pipeline_count_its_stages(staged: Path, text: str, gpus: int, batches: int) -> None:
    for row in step_rows.rows(ideal.on_links(staged, text)).to_pylist():
        for prefix, all_gpus, all_batches in (("original_", 8, 4), ("", gpus, batches)):
            rate = all_batches * MICRO_BATCH / all_gpus / row[f"{prefix}iteration_time_s"]
            assert row[f"{prefix}tokens_per_s_per_gpu"] == pytest.approx(rate)


def test_a_type_is_held_against_its_own_peak(whole: Path) -> None:
    (row,) = step_rows.rows(ideal.on_links(whole, "dtype=float32")).to_pylist()
    asked = flop(2 * MICRO_BATCH) / row["iteration_time_s"]
    assert row["mfu_pct"] == pytest.approx(100 * asked / FP32_FLOPS)
