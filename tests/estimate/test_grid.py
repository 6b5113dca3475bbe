"""Grids: what each of their numbers stands for, and what cannot be read."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import LumosError
from lumos_df.estimate.grid import Grid
from lumos_df.model.plan import Plan
from lumos_df.schema.dtypes import PRECISIONS

MODELS = ("llama-3-8b", "llama-2-7b")
GPUS = ("h100-sxm", "b200", "a100-sxm-80")
AXES = {
    "tp": ("1", "2", "4"),
    "vp": ("1", "2"),
    "pp": ("1", "4"),
    "recompute": ("none", "full"),
    "sp": ("0", "1"),
    "placement": ("tp-cp-ep-dp-pp", "tp-pp-cp-ep-dp"),
    "software": ("megatron", "nemo"),
    "batch": ("64",),
}


def rows(grid: Grid, first: int, last: int) -> list[tuple[str, str, Any]]:
    jobs = grid.stretch(first, last).jobs
    return [
        (jobs.models[model].name, jobs.hardware[gpu].name, {**plan, "software": jobs.software[plan["software"]].name})
        for model, gpu, plan in zip(
            jobs.model_of,
            jobs.hardware_of,
            [dict(zip(jobs.plans.dtype.names or (), row.tolist(), strict=True)) for row in jobs.plans],
            strict=True,
        )
    ]


def slow(axes: dict[str, tuple[str, ...]]) -> list[tuple[str, str, Any]]:
    """The same, one configuration after another, each plan from its text."""
    found = []
    for model, gpu, *values in product(MODELS, GPUS, *axes.values()):
        plan = Plan.parse(",".join(f"{name}={value}" for name, value in zip(axes, values, strict=True)))
        row = plan.row()
        said = dict(zip(row.dtype.names or (), row.tolist(), strict=True))
        found.append((model, gpu, {**said, "software": plan.software}))
    return found


def test_every_configuration_is_that_of_its_text() -> None:
    text = ",".join(f"{name}={'|'.join(values)}" for name, values in AXES.items())
    grid = Grid.make(MODELS, GPUS, [text])
    expected = slow(AXES)
    assert len(grid) == len(expected)
    assert rows(grid, 0, len(grid)) == expected
    assert rows(grid, 100, 105) == expected[100:105]
    assert rows(grid, 0, 0) == []


def test_blocks_follow_one_another() -> None:
    first, second = {"tp": ("1", "2"), "batch": ("8",)}, {"pp": ("1", "2", "4"), "batch": ("8", "16")}
    grid = Grid.make(MODELS, GPUS, [first, second])
    expected = slow(first) + slow(second)
    assert rows(grid, 0, len(grid)) == expected
    for low, high in ((11, 13), (0, 12), (12, 48), (47, 48)):
        assert rows(grid, low, high) == expected[low:high]


def test_gpus_and_micro_batches_give_dp_and_batch() -> None:
    grid = Grid.make(["llama-3-8b"], ["h100-sxm"], ["tp=1|2|3,pp=1|4,cp=2,gpus=16|64,mbs=2,micro_batches=1|5"])
    stretch = grid.stretch(0, len(grid))
    plans = stretch.jobs.plans
    sizes = np.array([16, 16, 64, 64] * 6)
    for plan, gpus, uneven, repeat in zip(plans, sizes, stretch.uneven, [1, 5] * 12, strict=True):
        replica = plan["tp"] * plan["pp"] * plan["cp"]
        assert uneven == (gpus % replica != 0)
        if not uneven:
            assert plan["dp"] * replica == gpus
        assert plan["batch"] == repeat * plan["dp"] * 2


def _all_of_eight(same: str = "") -> list[Plan]:
    grid = Grid.of_gpus(["llama-3-8b"], ["h100-sxm"], 8, 16, same)
    stretch = grid.stretch(0, len(grid))
    return [
        Plan(tp=int(row["tp"]), pp=int(row["pp"]), zero=int(row["zero"]), precision=PRECISIONS[row["precision"]])
        for row in stretch.jobs.plans
    ]


def test_what_all_plans_of_some_gpus_have_is_chosen_or_set() -> None:
    every = _all_of_eight()
    assert {plan.tp for plan in every} == {1, 2, 4, 8}
    assert {plan.zero for plan in every} == {0, 1, 2, 3}
    same = _all_of_eight("tp=2|4,zero=1,precision=fp8")
    assert {plan.tp for plan in same} == {2, 4}
    assert {(plan.zero, plan.precision) for plan in same} == {(1, "fp8")}
    assert {plan.pp for plan in same} == {plan.pp for plan in every if plan.tp in (2, 4)}
    grid = Grid.of_gpus(["llama-3-8b"], ["h100-sxm"], 8, 16, "software=megatron")
    assert [profile.name for profile in grid.software] == ["megatron"]


@pytest.mark.parametrize(
    ("same", "why"),
    [
        ("tp=3", "'tp' is none of the sensible ones: 1, 2, 4, 8"),
        ("dp=4", "'dp' follows from the number of GPUs and the batch; leave it out"),
        ("batch=4", "'batch' follows from the number of GPUs and the batch; leave it out"),
        ("zero=9", "zero = 9"),
        ("width=9", "there is no field 'width'"),
    ],
)
def test_what_plans_of_some_gpus_cannot_all_have_is_named(same: str, why: str) -> None:
    with pytest.raises(LumosError, match=why):
        Grid.of_gpus(["llama-3-8b"], ["h100-sxm"], 8, 16, same)


def test_a_file_says_the_same_as_texts(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'model = "llama-3-8b"\nhardware = ["h100-sxm", "b200"]\n'
        '[plan]\ntp = [1, 2]\nsp = [false, true]\nschedule = "gpipe"\ngpus = 64\nbatch = [128, 128]\n'
    )
    text = Grid.make(["llama-3-8b"], ["h100-sxm", "b200"], ["tp=1|2,sp=0|1,schedule=afab,gpus=64,batch=128"])
    grid = Grid.read(file)
    assert len(grid) == 8
    assert rows(grid, 0, 8) == rows(text, 0, 8)
    file.write_text('model = "llama-3-8b"\nhardware = "b200"\nplan = ["tp=2,batch=8", "pp=2|4,batch=8"]\n')
    assert len(Grid.read(file)) == 3


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("tp=1|2,gpu=64", "no field 'gpu'; did you mean 'gpus'"),
        ("tp=1|0", "tp = 0: must be at least 1"),
        ("tp=1|two", "tp = 'two': must be a whole number"),
        ("gpus=0", "gpus = 0: must be at least 1"),
        ("schedule=1f1b|zb-h2", "schedule = 'zb-h2': must be one of .*; did you mean 'zb-h1'"),
        ("gpus=8,dp=8", "'gpus' says what 'dp' is; give one of them"),
        ("micro_batches=8,batch=8", "'micro_batches' says what 'batch' is"),
        ("tp=1,tp=2", "'tp' is said twice"),
        ("gpus=99999999999999999999", "gpus = 99999999999999999999: must be at most 2147483647"),
        ("tp=", "tp = '': must be a whole number"),
        ({"tp": []}, "'tp' has no value"),
        (7, "must be a text such as"),
    ],
)
def test_a_plan_that_cannot_be_is_named(plan: Any, why: str) -> None:
    with pytest.raises(LumosError, match=why):
        Grid.make(["llama-3-8b"], ["h100-sxm"], [plan])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "grid.toml: No such file"),
        ("model = ", "grid.toml: does not read"),
        ('model = "llama-3-8b"\nhardware = "b200"\n', "grid.toml: needs 'plan'"),
        ('model = "llama-3-8b"\nhardware = "b200"\nplan = []\n', "plan = .*: a grid needs at least one plan"),
        ('model = 3\nhardware = "b200"\nplan = "tp=1"\n', "model = 3: must be a name or a file"),
        ('models = "llama-3-8b"\n', "grid.toml: there is no 'models'; did you mean 'model'"),
        ('model = "llama-3-8c"\nhardware = "b200"\nplan = "tp=1"\n', "did you mean 'llama-3-8b'"),
    ],
)
def test_a_file_that_cannot_be_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(LumosError, match=why):
        Grid.read(tmp_path / "grid.toml")
