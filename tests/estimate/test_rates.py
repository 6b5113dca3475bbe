"""Rates and parts of a step for plans of every degree, worked out by hand on a GPU whose roofs are round."""

from math import prod
from typing import Any

import numpy as np
import pytest

from lumos_df.estimate.answer import Jobs, answers
from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model
from tests.model.roofs import BARE, BF16_FLOPS, FP8_FLOPS, FP32_FLOPS, GPU, MEMORY_RATE, NEAR_RATE, WITHIN

GPT = Model("gpt", layers=8, hidden=4096, heads=32, ffn=16384, vocab=32768, seq=4096)
LAYER, HEAD = 12 * 4096**2, 32768 * 4096
"""Weights of a layer's four products, and of the logits'."""
TOKENS = 4096
ACTIVATION = TOKENS * 4096 * 2
"""Bytes of a sequence between two layers: 33.6 MB."""

DEGREES = [
    {"pp": 2},
    {"pp": 4},
    {"tp": 2},
    {"dp": 4},
    {"cp": 2},
    {"pp": 2, "tp": 4},
    {"pp": 2, "dp": 4},
    {"pp": 4, "cp": 2},
    {"pp": 2, "tp": 2, "dp": 4, "cp": 2},
]


def answered(plan: Plan) -> dict[str, Any]:
    """Return the answers of a plan."""
    first = np.zeros(1, np.int64)
    jobs = Jobs(
        models=(GPT,),
        hardware=(GPU,),
        software=(BARE,),
        plans=np.array([plan.row()]),
        model_of=first,
        hardware_of=first,
    )
    found = answers(jobs)
    return {name: column[0] for name, column in found.items()}


def parts(plan: Plan) -> dict[str, float]:
    """Return the results of a plan."""
    first = np.zeros(1, np.int64)
    models, gpus, profiles, plans = (np.array([noun.row()]) for noun in (GPT, GPU, BARE, plan))
    (found,) = evaluate_rows(models, gpus, profiles, plans, first, first).tolist()
    return dict(zip(RESULT_COLUMNS, found, strict=True))


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize(("precision", "peak"), [("bf16", BF16_FLOPS), ("fp32", FP32_FLOPS), ("fp8", FP8_FLOPS)])
def test_rates_are_those_of_all_tokens_on_all_gpus(degrees: dict[str, int], precision: str, peak: float) -> None:
    found = answered(Plan(**degrees, batch=32, precision=precision))  # type: ignore[arg-type]  # of whole numbers
    gpus = prod(degrees.values())
    tokens = 32 * 4096
    # Two FLOP a weight and token, four a layer, pair of tokens and channel, of which the mask leaves half; three times
    # for a step.
    flop = 3 * (2 * (8 * LAYER + HEAD) + 4 * 8 * 4096 * 4096 / 2) * tokens
    step = found["iteration_time_s"]
    assert found["gpus"] == gpus
    assert found["tokens_per_s_per_gpu"] == pytest.approx(tokens / step / gpus)
    assert found["mfu_pct"] == pytest.approx(100 * flop / (gpus * peak * step))


@pytest.mark.parametrize(
    ("plan", "share"),
    [
        # Of the model's FLOP, what the GPU that computes most has: of stages the last, which has the head.
        (Plan(batch=4), 8 * LAYER + HEAD),
        (Plan(pp=2, batch=4), 4 * LAYER + HEAD),
        (Plan(pp=4, batch=4), 2 * LAYER + HEAD),
        (Plan(tp=2, batch=4), (8 * LAYER + HEAD) / 2),
        (Plan(dp=2, batch=4), (8 * LAYER + HEAD) / 2),
        (Plan(cp=2, batch=4), (8 * LAYER + HEAD) / 2),
        (Plan(pp=2, tp=2, cp=2, batch=4), (4 * LAYER + HEAD) / 4),
    ],
)
def test_products_run_at_the_peak(plan: Plan, share: float) -> None:
    flop = 3 * 2 * share * 4 * TOKENS
    assert parts(plan)["gemm_s"] == pytest.approx(flop / BF16_FLOPS, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "layers_flops", "head_flops", "converted_bytes"),
    [
        ("bf16", 100e12, 100e12, 0),
        ("fp16", 100e12, 100e12, 0),
        ("fp32", 10e12, 10e12, 0),
        # Of each element that a product reads two bytes are read and one is written, and one more turned round; the
        # four products of a layer read 7 and 9 widths a token. Logits stay in 16 bits.
        ("fp8", 200e12, 100e12, (7 + 9) * 4096 * 4),
    ],
)
def test_products_of_a_precision_run_at_its_peak(
    precision: str, layers_flops: float, head_flops: float, converted_bytes: int
) -> None:
    products = 3 * 2 * TOKENS * (8 * LAYER / layers_flops + HEAD / head_flops)
    conversions = 8 * TOKENS * converted_bytes / MEMORY_RATE
    assert parts(Plan(batch=1, precision=precision))["gemm_s"] == pytest.approx(products + conversions, rel=0.005)


@pytest.mark.parametrize(
    ("plan", "part", "sent"),
    [
        # Bytes that leave a GPU, micro-batch by micro-batch. Two all-reduces of activations a layer and one of the
        # embedding, each pass: of two ranks an all-reduce sends the payload once, of four 1.5 times.
        (Plan(tp=2, batch=4), "tp_exposed_s", 4 * 2 * (8 * 2 + 1) * ACTIVATION),
        (Plan(tp=4, batch=4), "tp_exposed_s", 4 * 2 * (8 * 2 + 1) * ACTIVATION * 1.5),
        # A gather before and a scatter behind each half of a layer, one behind the embedding and one before the head,
        # each of which sends half of the payload.
        (Plan(tp=2, batch=4, sequence_parallel=True), "tp_exposed_s", 4 * 2 * (8 * 4 + 2) * ACTIVATION / 2),
        # The last of two stages has no embedding.
        (Plan(tp=2, pp=2, batch=4), "tp_exposed_s", 4 * 2 * (4 * 2) * ACTIVATION),
        # Each of four has half of the batch.
        (Plan(tp=2, dp=2, batch=4, overlap_dp=False), "tp_exposed_s", 2 * 2 * (8 * 2 + 1) * ACTIVATION),
        # Keys and values of the whole sequence, 2 activations, of which a rank of two lacks half, and one of four 3/4.
        (Plan(cp=2, batch=4), "cp_exposed_s", 4 * 2 * 8 * 2 * ACTIVATION / 2),
        (Plan(cp=4, batch=4), "cp_exposed_s", 4 * 2 * 8 * 2 * ACTIVATION * 3 / 4),
        (Plan(cp=2, tp=2, batch=4), "cp_exposed_s", 4 * 2 * 8 * ACTIVATION / 2),
        # Between two stages each micro-batch's activations go forward and their gradients back.
        (Plan(pp=2, batch=4), "pp_exposed_s", 4 * 2 * ACTIVATION),
        (Plan(pp=2, tp=2, batch=4), "pp_exposed_s", 4 * 2 * ACTIVATION / 2),
        (Plan(pp=2, cp=2, batch=4), "pp_exposed_s", 4 * 2 * ACTIVATION / 2),
        # Gradients of 4 bytes, once a step: of 8 layers, embedding and head, with two vectors of norms a layer.
        (
            Plan(dp=4, batch=4, overlap_dp=False),
            "dp_exposed_s",
            4 * (8 * (LAYER + 2 * 4096) + 2 * HEAD) * 2 * 3 / 4,
        ),
        (
            Plan(dp=2, cp=2, batch=4, overlap_dp=False),
            "dp_exposed_s",
            4 * (8 * (LAYER + 2 * 4096) + 2 * HEAD) * 2 * 3 / 4,
        ),
        (
            Plan(dp=4, pp=2, batch=4, overlap_dp=False),
            "dp_exposed_s",
            4 * (4 * (LAYER + 2 * 4096) + HEAD) * 2 * 3 / 4,
        ),
    ],
)
def test_communication_takes_its_bytes_over_its_links(plan: Plan, part: str, sent: float) -> None:
    # What is sent is in pieces of 8 MB at least, 84 us each, of which a microsecond and a half starts them.
    assert parts(plan)[part] == pytest.approx(sent / NEAR_RATE, rel=0.02)


def test_stages_in_other_domains_send_over_the_network() -> None:
    near, far = Plan(tp=4, pp=2, batch=4), Plan(tp=8, pp=2, batch=4)
    # 8 ranks to the next stage: 10 GB/s instead of 100.
    assert parts(far)["pp_exposed_s"] == pytest.approx(4 * 2 * ACTIVATION / 8 / 10e9, rel=0.02)
    assert parts(near)["pp_exposed_s"] == pytest.approx(4 * 2 * ACTIVATION / 4 / 100e9, rel=0.02)


def test_activations_in_single_precision_are_twice_the_bytes() -> None:
    for plan, part in ((Plan(tp=2, batch=4), "tp"), (Plan(cp=2, batch=4), "cp"), (Plan(pp=2, batch=4), "pp")):
        half, single = (
            parts(Plan(**{**vars(plan), "precision": precision}))[f"{part}_exposed_s"] for precision in ("bf16", "fp32")
        )
        assert single / half == pytest.approx(2, rel=0.02), part


def test_memory_bound_work_takes_its_bytes_at_the_memory_s_rate() -> None:
    """Of a layer: both norms, positions, both residuals, the activation; the embedding; the loss of the logits."""
    width = 16384 / 4096
    # Reads and writes of activations, forward and backward: a norm 2 and 3, a residual 3 and 2; queries and keys twice.
    layer = 2 * (2 + 3) + 2 * (3 + 2) + 2 * 2 * 2 + width * 2 * (1 + 1.6)
    embedding = 2 + 3
    final = 2 + 3
    logits = TOKENS * 32768 * ((2 + 8) + (4 + 2))
    moved = (8 * layer + embedding + final) * ACTIVATION + logits
    assert parts(Plan(batch=1))["elementwise_s"] == pytest.approx(moved / 1e12, rel=WITHIN)
