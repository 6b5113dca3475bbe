"""A host that copies or clears tensors more than it computes; the gain is that of the job in which it does not."""

from pathlib import Path

import pytest

from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import annotation, kernel, launch, op, write

STEPS = 4


def job(folder: Path, outer: str, inner: str, us: int, *, gpu: bool = False) -> Advised:
    """Return what is said of a job whose steps of 1000 us move tensors for some of them, and multiply in the others."""
    events = []
    for step, at in enumerate(range(0, 1000 * STEPS, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999), op(outer, at + 1, us)]
        events += [op("aten::empty", at + 2, 3), op(inner, at + 6, us - 6)]
        events.append(op("aten::mm", at + 2 + us, 996 - us))
        if gpu:
            events += [launch(at + 990, 2, step + 1), kernel("gemm", at + 993, 2, correlation=step + 1)]
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


@pytest.mark.parametrize(
    ("outer", "inner", "told"),
    [
        ("aten::contiguous", "aten::copy_", "aten::contiguous copies tensors for "),
        ("aten::embedding_backward", "aten::fill_", "aten::embedding_backward clears memory for "),
    ],
)
def test_moving_more_than_anything_else_is_the_first_advice(tmp_path: Path, outer: str, inner: str, told: str) -> None:
    first = job(tmp_path, outer, inner, 600).first
    assert first.remedy.rule == "host_copies"
    assert first.remedy.what.startswith(told)
    assert first.gain_ns == pytest.approx(600_000, rel=0.02)


@pytest.mark.parametrize("inner", ["aten::copy_", "aten::tanh"])
@pytest.mark.parametrize("us", [300, 600])
def test_copies_beside_more_work_are_left_alone(tmp_path: Path, us: int, inner: str) -> None:
    told = us == 600 and inner == "aten::copy_"
    assert bool(job(tmp_path, "aten::contiguous", inner, us).of_rule("host_copies")) == told


def test_the_host_of_a_gpu_is_another_rules(tmp_path: Path) -> None:
    assert not job(tmp_path, "aten::contiguous", "aten::copy_", 600, gpu=True).of_rule("host_copies")
