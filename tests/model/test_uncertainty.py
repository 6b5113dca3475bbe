"""The interval of an estimate: its ends worked out by hand, wider for each way of being unlike what was measured."""

from dataclasses import replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest

from lumos_df.model.evaluate import RESULT_COLUMNS
from lumos_df.model.hardware import Hardware
from lumos_df.model.library import names
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.model.uncertainty import PARTS, distance, ends, part_ends, slow_messages

MODEL = Model("small", 4, 256, 8, 1000, 2048)
EXPERTS = replace(MODEL, experts=8, top_k=2, expert_ffn=128)
PROFILE = replace(
    Software.read("megatron"),
    low_ratio=0.9,
    high_ratio=1.2,
    generations=("hopper",),
    precisions=("bf16",),
    experts=False,
    most_gpus=64,
    longest_seq=2048,
    expert_spread=0.0,
)
APART = distance()
HOPPER = "h100-sxm"


def high(plan: Plan, model: Model = MODEL, gpu: str = HOPPER, software: Software = PROFILE, **parts: float) -> float:
    """Return the upper end over the estimate, of a step of a second with some parts."""
    results = np.zeros((1, len(RESULT_COLUMNS)))
    for name, value in {"iteration_time_s": 1.0, **parts}.items():
        results[0, RESULT_COLUMNS.index(name)] = value
    rows = (np.array([row]) for row in (plan.row(), model.row(), Hardware.read(gpu).row(), software.row()))
    low, upper = ends(results, *rows)
    assert low[0] < 1.0 < upper[0]
    return float(upper[0])


def test_a_host_that_the_gpu_hides_may_be_slow_enough_to_set_the_pace() -> None:
    """A step of a second, of which the host has 0.4: it may take 2.5 times as long, or 4 times."""
    for spread, bubble, upper in ((2.5, 0.0, 1.0), (4.0, 0.0, 1.6), (4.0, 0.2, 1.8)):
        software = replace(PROFILE, high_ratio=1.0 + 1e-9, host_spread=log(spread))
        assert high(Plan(), software=software, host_busy_s=0.4, bubble_s=bubble) == pytest.approx(upper, abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "lower"),
    [
        # The host has half a step. 0.3 of it and 0.1 of two layers may hide, and a fifth of the rest vanish.
        ({}, 1 - 0.4 - 0.1 * 0.2),
        ({"step_waits": False}, 1 - 0.5 * 0.2),
        # It is known of a software with runs of its own.
        ({"host_spread": 0.0, "low_ratio": 0.9}, 0.9),
    ],
)
def test_the_host_s_time_of_a_step_may_hide_in_a_software_that_nobody_named(
    changed: dict[str, Any], lower: float
) -> None:
    spread: dict[str, Any] = {
        **dict.fromkeys(PARTS, 0.0),
        "host_spread": -log(0.8),
        "low_ratio": 1.0 - 1e-12,
        "high_ratio": 1.0 + 1e-9,
    }
    software = replace(PROFILE, **{**spread, "step_s": 0.3, "layer_step_s": 0.05, **changed})
    results = np.zeros((1, len(RESULT_COLUMNS)))
    for name, value in {"iteration_time_s": 1.0, "host_s": 0.5}.items():
        results[0, RESULT_COLUMNS.index(name)] = value
    rows = (np.array([noun.row()]) for noun in (Plan(pp=2, batch=2), MODEL, Hardware.read(HOPPER), software))
    assert ends(results, *rows)[0] == pytest.approx(lower)


def test_a_plan_like_those_measured_has_the_profile_s_interval() -> None:
    assert high(Plan(dp=64)) == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("added", "case"),
    [
        (APART.generation, {"plan": Plan(), "gpu": "mi300x"}),
        # Neither its software's runs nor any kernel tell of a GPU of that architecture.
        (sqrt(APART.generation**2 + APART.kernels**2), {"plan": Plan(), "gpu": "tpu-v5p"}),
        (APART.precision, {"plan": Plan(precision="fp8")}),
        (APART.doubled_gpus * 2, {"plan": Plan(dp=256)}),
        (APART.doubled_seq * 3, {"plan": Plan(), "model": replace(MODEL, seq=16384)}),
        (
            sqrt(APART.experts**2 + 0.3**2),
            {"plan": Plan(), "model": EXPERTS, "software": replace(PROFILE, expert_spread=0.3)},
        ),
        (0.3, {"plan": Plan(), "model": EXPERTS, "software": replace(PROFILE, experts=True, expert_spread=0.3)}),
        # Half of the step may take e^0.8 times as long.
        (log(0.5 + 0.5 * exp(0.8)), {"plan": Plan(), "software": replace(PROFILE, host_spread=0.8), "host_s": 0.5}),
        (
            log(0.5 + 0.5 * exp(0.4)),
            {"plan": Plan(), "software": replace(PROFILE, compute_spread=0.4), "gemm_s": 0.3, "recompute_s": 0.2},
        ),
    ],
)
def test_what_is_unlike_adds_up_by_squares(added: float, case: dict) -> None:  # type: ignore[type-arg]
    assert high(**case) == pytest.approx(exp(sqrt(log(1.2) ** 2 + added**2)))


def test_a_part_vanishes_at_most() -> None:
    low, high = part_ends(np.array([[0.5, 0.0]]), np.array([20.0, 1.0]))
    assert exp(-low[0]) == pytest.approx(0.5)
    assert exp(high[0]) == pytest.approx(0.5 + 0.5 * exp(20.0))


def test_parts_are_off_together() -> None:
    low, high = part_ends(np.array([[0.3, 0.4]]), np.full((1, 2), log(2.0)))
    assert exp(-low[0]) == pytest.approx(1.0 - 0.5 * 0.7)
    assert exp(high[0]) == pytest.approx(1.0 + 0.7)


@pytest.mark.parametrize(
    ("gpu", "plan", "changed", "slower"),
    [
        ("h100-sxm", Plan(), {}, 1.5 * 1.6),
        # There it is the best, or there is none of it.
        ("a100-sxm-80", Plan(), {}, 1.0),
        ("b200", Plan(), {}, 1.0),
        ("h100-sxm", Plan(flash=False), {}, 1.0),
        # Of a software that has a profile it is known.
        ("h100-sxm", Plan(), {"attention": "best"}, 1.0),
        ("h100-sxm", Plan(), {"memory_spread": 0.0}, 1.0),
    ],
)
def test_attention_of_an_unknown_software_may_be_the_best_of_the_gpu(
    gpu: str, plan: Plan, changed: dict[str, float | str], slower: float
) -> None:
    results = np.zeros((1, len(RESULT_COLUMNS)))
    results[0, RESULT_COLUMNS.index("iteration_time_s")] = 2.0
    results[0, RESULT_COLUMNS.index("attention_s")] = 0.6
    software = replace(PROFILE, attention="flash2", memory_spread=1e-9, attention_factor=1.5)
    plans, models, hardware = (np.array([row]) for row in (plan.row(), MODEL.row(), Hardware.read(gpu).row()))
    told, plain = (
        ends(results, plans, models, hardware, np.array([each.row()]))
        for each in (replace(software, **changed), replace(software, memory_spread=0.0))  # type: ignore[arg-type]
    )
    assert told[1] == pytest.approx(plain[1])
    shorter = -log(0.7 + 0.3 / slower)
    assert log(told[0][0]) == pytest.approx(-sqrt(log(plain[0][0]) ** 2 + shorter**2))


def test_a_profile_of_no_measurement_has_only_its_own_interval() -> None:
    unmeasured = replace(PROFILE, generations=(), precisions=(), most_gpus=0, longest_seq=0)
    assert high(Plan(dp=4096), gpu="mi300x", software=unmeasured) == pytest.approx(1.2)


def test_kernels_of_another_architecture_widen_whatever_the_software_was_measured_on() -> None:
    unmeasured = replace(PROFILE, generations=(), precisions=(), most_gpus=0, longest_seq=0)
    wider = exp(sqrt(log(1.2) ** 2 + APART.kernels**2))
    assert high(Plan(), gpu="rtx-5090", software=unmeasured) == pytest.approx(wider)
    # Kernels of an L40S are an RTX 4090's.
    assert high(Plan(), gpu="rtx-4090", software=unmeasured) == pytest.approx(1.2)


@pytest.mark.parametrize("name", names("hardware"))
def test_a_gpu_borrows_where_its_kernels_are_another_architecture_s(name: str) -> None:
    gpu = Hardware.read(name)
    assert gpu.borrowed == (Hardware.read(gpu.fitted_from).generation != gpu.generation)


RISKY = replace(PROFILE, slow_node=0.02, slow_message_s=0.5)


def test_one_node_of_a_pipeline_is_enough_to_make_its_messages_slow() -> None:
    """Four nodes: 1 - 0.98^4. Of 4 stages and 8 micro-batches 11 messages follow each other."""
    plans = np.array([Plan(tp=4, pp=4, dp=2, batch=16).row(), Plan(tp=4, dp=8, batch=16).row()])
    hardware, software = (np.array(2 * [noun.row()]) for noun in (Hardware.read(HOPPER), RISKY))
    chance, longer = slow_messages(plans, hardware, software)
    assert chance.tolist() == pytest.approx([1 - 0.98**4, 0.0])
    assert longer[0] == 11 * 0.5


def test_the_interval_of_a_plan_at_risk_reaches_to_slow_messages() -> None:
    # Eight nodes are slow 15 times in 100: 3 + 4 - 1 messages of half a second. One node never is.
    assert high(Plan(tp=4, pp=4, dp=4, batch=12), software=RISKY) == pytest.approx(1 + 6 * 0.5)
    assert high(Plan(tp=2, pp=4, batch=3), software=RISKY) == pytest.approx(1.2)
