"""Tensors looked through for NaN; the gain is that of the job that does not look."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.rules import nan_checks
from tests.advice.emulated import advice_on, advised, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import Event, annotation, op, with_kernels, write

TRUSTS = Job(ranks=2, steps=3)
LOOKS = replace(TRUSTS, looks_for_nan=True)


@pytest.mark.parametrize("batch", [2, 8])
def test_tensors_looked_through_are_the_first_advice(tmp_path: Path, batch: int) -> None:
    trusts, looks = (replace(job, batch=batch) for job in (TRUSTS, LOOKS))
    first = advised(tmp_path, looks).first
    assert first.remedy.rule == "nan_checks"
    # Of two layers four products and two norms each; the tokens, the last norm and the head.
    assert first.remedy.what.startswith("the host looks for NaN in 15 tensors a step, ")
    true = true_gain_ns(looks, trusts)
    assert first.gain_ns == pytest.approx(true, rel=0.06)
    assert first.low_ns < 1.01 * true


def job(folder: Path, names: tuple[str, ...], *, gpu: bool, shape: tuple[int, ...] = (64, 64)) -> list[str]:
    """Return what is said of a job whose steps of 2 ms run operators of 100 us one after another."""
    events: list[Event] = []
    read: dict[str, Any] = {"Input Dims": [shape], "Input type": ["float"]}
    for step, begin in enumerate(range(0, 8000, 2000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 1999))
        events += [op(name, begin + 10 + 110 * place, 100, **read) for place, name in enumerate(("aten::mm", *names))]
    launching = ("aten::mm", *names) if gpu else ()
    write(folder / "traces" / "rank0.json", with_kernels(events, *launching))
    return [remedy.what for remedy in nan_checks.remedies(advice_on(folder).job)]


def test_so_it_is_on_a_host(tmp_path: Path) -> None:
    names = "aten::isfinite", "aten::all", "aten::logical_not", "aten::item"
    [what] = job(tmp_path, names, gpu=False)
    assert what.startswith("the host looks for NaN in 1 tensor a step, 4")


@pytest.mark.parametrize("gpu", [False, True])
def test_who_looks_at_the_loss_alone_does_what_is_proposed(tmp_path: Path, *, gpu: bool) -> None:
    names = "aten::isnan", "aten::isinf", "aten::logical_or", "aten::is_nonzero"
    assert not job(tmp_path / "loss", names, gpu=gpu, shape=())
    assert not job(tmp_path / "mean", names, gpu=gpu, shape=(1,))
    assert job(tmp_path / "tensor", names, gpu=gpu)


@pytest.mark.parametrize(
    "names",
    [
        ("aten::isnan", "aten::any", "aten::add"),
        ("aten::isnan", "aten::mul", "aten::item"),
        ("aten::any", "aten::item"),
        ("aten::isnan", "aten::where"),
    ],
    ids=["nobody reads", "of use", "no NaN", "replaced"],
)
def test_what_is_no_check_is_left_alone(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert not job(tmp_path, names, gpu=True)
