"""Gradients reduced one by one; the gain is that of the job in which the latency of all but one is gone."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import reduction_each
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS, PARAMETERS = 4, 8
RANK = {"backend": "gloo", "rank": 0, "world_size": 2}
NODE = "torch::autograd::AccumulateGrad"
LATENCY = 90
VECTORS = (0, 1, 0, 0, 2, 0, 0, 0)
"""How many times 100 KiB each parameter has, of which every one takes 100 us more: most have next to nothing."""


def job(
    folder: Path,
    *,
    hundreds: tuple[int, ...] = VECTORS,
    reduced: int = PARAMETERS,
    hooked: bool = False,
    shapes: bool = False,
) -> Advised:
    """Return what is said of a job that reduces each gradient, in 90 us and what its bytes take."""
    events: list[Event] = []
    for step, begin in enumerate(range(0, 3000 * STEPS, 3000)):
        events += [annotation(f"ProfilerStep#{step}", begin, 2999), op("aten::mm", begin + 1, 400)]
        for number in range(PARAMETERS):
            at = begin + 410 + 20 * number
            events += [op(f"autograd::engine::evaluate_function: {NODE}", at, 18), op(NODE, at + 1, 16)]
        at = begin + 600
        if hooked:
            events.append(op("autograd::engine::evaluate_function: Hook", at - 1, 2000))
        for number in range(reduced):
            took = LATENCY + 100 * hundreds[number]
            dims: dict[str, Any] = {"Input_Dims": [[[1 + 25600 * hundreds[number]]], []]} if shapes else {}
            events += [op("c10d::allreduce_", at, 4, **dims), annotation("gloo:all_reduce", at + 2, took - 10, tid=2)]
            events.append(op("aten::div_", at + took - 6, 5))
            at += took
        events.append(op("aten::mm", at + 5, begin + 2990 - at))
    write(folder / "traces" / "rank0.json", events, distributedInfo=RANK)
    return advice_on(folder)


@pytest.mark.parametrize("shapes", [False, True], ids=["bytes unknown", "bytes known"])
def test_a_reduction_a_parameter_is_the_first_advice(tmp_path: Path, *, shapes: bool) -> None:
    first = job(tmp_path, shapes=shapes).first
    assert first.remedy.rule == "reduction_each"
    assert f"a step more than {PARAMETERS} of them at once" in first.remedy.what
    assert first.gain_ns == pytest.approx((PARAMETERS - 1) * LATENCY * 1000, rel=0.05)


def test_bytes_tell_latency_where_none_is_short(tmp_path: Path) -> None:
    bandwidth = job(tmp_path, shapes=True, hundreds=(1, 2, 1, 1, 2, 1, 1, 2))
    [advice] = bandwidth.of_rule("reduction_each")
    assert advice.gain_ns == pytest.approx((PARAMETERS - 1) * LATENCY * 1000, rel=0.05)


@pytest.mark.parametrize(
    "reduced",
    [{"reduced": 3}, {"hooked": True}, {"hundreds": (1,) * PARAMETERS}],
    ids=["no parameter each", "in the backward pass", "all as long"],
)
def test_other_reductions_are_left_alone(tmp_path: Path, reduced: dict[str, Any]) -> None:
    assert not list(reduction_each.remedies(job(tmp_path, **reduced).job))
