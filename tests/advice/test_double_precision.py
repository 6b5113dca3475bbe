"""Work on float64; the gain is that of the job in which half of the bytes take half of the time."""

from pathlib import Path

import pytest

from tests.advice.emulated import advice_on
from tests.trace.literal import Event, annotation, kernel, launch, op, write

STEPS = 4


def host(types: list[str], dims: list[list[int]]) -> list[Event]:
    """Return steps of a host whose product, 800 of 1000 us, reads two tensors of these types."""
    events = []
    for step, at in enumerate(range(0, 1000 * STEPS, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999), op("aten::relu", at + 1, 198)]
        events.append(op("aten::mm", at + 200, 798, Input_Dims=dims, Input_type=types))
    return events


@pytest.mark.parametrize(
    ("types", "dims", "told"),
    [
        (["double", "double"], [[64, 64], [64, 64]], True),
        (["", "double"], [[], [64, 64]], True),
        (["float", "double"], [[64, 64], [64, 64]], False),
        (["double", "float"], [[], []], False),
    ],
)
def test_a_host_that_works_on_float64_is_told(
    tmp_path: Path, types: list[str], dims: list[list[int]], *, told: bool
) -> None:
    """By the first tensor; a number of Python is none."""
    write(tmp_path / "traces" / "rank0.json", host(types, dims))
    found = advice_on(tmp_path).of_rule("double_precision")
    assert bool(found) == told
    if told:
        assert found[0].remedy.what.startswith("work on float64 takes 798 us a step: ")
        assert found[0].gain_ns == pytest.approx(399_000, rel=0.01)


@pytest.mark.parametrize("kind", ["double", "float"])
def test_kernels_that_work_on_float64_are_told(tmp_path: Path, kind: str) -> None:
    events = []
    for step, at in enumerate(range(0, 1000 * STEPS, 1000)):
        sizes = [[64, 64], [64, 64]]
        events += [annotation(f"ProfilerStep#{step}", at, 999), launch(at + 10, 5, step + 1)]
        events.append(op("aten::mm", at + 5, 20, Input_Dims=sizes, Input_type=[kind, kind]))
        events += [kernel("gemm", at + 20, 900, correlation=step + 1)]
        events.append(x_sync(at + 30, 966))
    write(tmp_path / "traces" / "rank0.json", events)
    found = advice_on(tmp_path).of_rule("double_precision")
    assert [advice.remedy.rests_on for advice in found] == ([f"{STEPS} kernels"] if kind == "double" else [])
    for advice in found:
        assert advice.gain_ns == pytest.approx(450_000, rel=0.02)


def x_sync(ts: float, dur: float) -> Event:
    """Return a call that waits for the GPU."""
    return launch(ts, dur, 0) | {"name": "cudaDeviceSynchronize"}
