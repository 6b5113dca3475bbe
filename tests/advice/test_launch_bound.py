"""Small kernels launched one by one; the gain is that of the job whose layers came as CUDA graphs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job, simulate

SMALL = Job(ranks=2, steps=2, layers=8, batch=1)


def _in_graphs(job: Job) -> int:
    """Return how much work of a step of a rank CUDA graphs launch."""
    return sum(row.node is not None for row in simulate(job).recordings[0].gpu) // job.steps


@pytest.mark.parametrize("job", [SMALL, replace(SMALL, python_ns=6_000)])
def test_many_small_launches_are_the_first_advice(tmp_path: Path, job: Job) -> None:
    said = advised(tmp_path, job)
    launches = _in_graphs(replace(job, captured="model"))
    assert said.first.remedy.rule == "launch_bound"
    assert f"to launch {launches} kernels a step: capture forward and backward" in said.first.remedy.what
    assert said.first.gain_ns == pytest.approx(true_gain_ns(job, replace(job, captured="layer")), rel=0.1)


def test_what_graphs_launch_is_left_alone(tmp_path: Path) -> None:
    layers, model = (_in_graphs(replace(SMALL, captured=what)) for what in ("layer", "model"))
    (capture,) = advised(tmp_path, replace(SMALL, captured="layer")).of_rule("launch_bound")
    assert f"to launch {model - layers} kernels a step" in capture.remedy.what


@pytest.mark.parametrize("job", [replace(SMALL, silence_ns=20_000_000), replace(SMALL, loading_ns=5_000_000)])
def test_what_takes_far_longer_is_no_launching(tmp_path: Path, job: Job) -> None:
    (capture,) = advised(tmp_path, job).of_rule("launch_bound")
    assert capture.gain_ns == pytest.approx(true_gain_ns(SMALL, replace(SMALL, captured="layer")), rel=0.1)


@pytest.mark.parametrize("healthy", [replace(SMALL, captured="model"), Job(ranks=2, steps=2, batch=16)])
def test_graphs_and_large_kernels_are_no_launches_to_wait_for(tmp_path: Path, healthy: Job) -> None:
    assert not advised(tmp_path, healthy).of_rule("launch_bound")


def test_steps_of_which_each_has_its_own_sizes_are_padded_first(tmp_path: Path) -> None:
    same, other = (advised(tmp_path / str(longer), replace(SMALL, longer=longer)).first for longer in (0, 8))
    assert "pad sizes" not in same.remedy.what
    assert "a step: pad sizes, as no two steps have the same; then capture forward and backward" in other.remedy.what


@pytest.mark.parametrize("healthy", [Job(ranks=4, steps=3, sequence=256), Job(ranks=2, steps=4, batch=2)])
def test_the_slow_host_of_one_rank_needs_no_graphs_on_all(tmp_path: Path, healthy: Job) -> None:
    slow = replace(healthy, slow_host=1)
    first = advised(tmp_path, slow).first
    assert first.remedy.rule == "late_rank"
    assert first.remedy.what.startswith("rank 1 is waited for")
    assert first.gain_ns == pytest.approx(true_gain_ns(slow, healthy), rel=0.05)


def test_what_waits_for_the_gpu_is_taken_out_before_anything_is_captured(tmp_path: Path) -> None:
    (capture,) = advised(tmp_path, replace(SMALL, reads=True)).of_rule("launch_bound")
    first = "a step: take out aten::item, where the host waits and no graph can be captured; then capture forward"
    assert first in capture.remedy.what
