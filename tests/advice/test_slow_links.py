"""Groups whose collectives transfer longer than like ones; the gain is that of the job with links that are alike."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.advice.emulated import BRIEF, Advised, advice_on
from tests.emulator import write
from tests.emulator.megatron import Megatron, simulate

EVEN = Megatron(tp=2, dp=2, layers=2, hidden=1024, heads=8, vocabulary=8192, sequence=1024, steps=3, micro_batches=2)
NODES = replace(EVEN, dp=8, bucket=4_000_000)
"""Two nodes, each with half of every group that reduces gradients."""


def said_of(folder: Path, job: Megatron) -> tuple[Advised, float]:
    """Return what is said of a job, and how long its steps really are, ns."""
    outcome = simulate(job)
    write(outcome, BRIEF, folder / "traces")
    return advice_on(folder), float(np.mean([step.step_ns for step in outcome.steps]))


@pytest.mark.parametrize(
    ("job", "ranks", "named"),
    [(EVEN, (2, 3), "ranks 2, 3"), (NODES, tuple(range(1, 16, 2)), "ranks 1, 3, 5, 7, ...")],
)
def test_a_group_with_slow_links_is_the_first_advice(
    tmp_path: Path, job: Megatron, ranks: tuple[int, ...], named: str
) -> None:
    said, took = said_of(tmp_path / "slow", replace(job, slow_links=((ranks, 5.0),)))
    first = said.first
    assert first.remedy.rule == "slow_links"
    assert first.remedy.what.startswith(
        f"collectives of {named} transfer 5.0 times as long as like ones of other ranks"
    )
    true = took - float(np.mean([step.step_ns for step in simulate(job).steps]))
    assert first.gain_ns == pytest.approx(true, rel=0.1)
    assert first.low_ns < true < first.high_ns


@pytest.mark.parametrize("seed", [0, 1])
def test_links_that_differ_by_chance_are_not_blamed(tmp_path: Path, seed: int) -> None:
    said, _ = said_of(tmp_path, replace(EVEN, noise=True, seed=seed))
    assert not said.of_rule("slow_links")


def test_groups_that_lie_otherwise_are_not_alike(tmp_path: Path) -> None:
    """Neighbours on fast links, and ranks further apart on others, as bridges between pairs of GPUs make them."""
    pairs = tuple(((first, first + 2), 5.0) for first in (0, 1))
    said, _ = said_of(tmp_path, replace(EVEN, slow_links=pairs))
    assert not said.of_rule("slow_links")


def test_a_late_rank_makes_no_link_slow(tmp_path: Path) -> None:
    said, _ = said_of(tmp_path, replace(EVEN, slower=(1.0, 1.0, 1.0, 1.5)))
    (late,) = said.of_rule("late_rank")
    assert late.remedy.what.startswith("rank 3 is waited for")
    assert not said.of_rule("slow_links")
