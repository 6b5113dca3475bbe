"""Parameters gathered when a layer needs them; the gain is that of the job that gathers them one layer ahead."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advice_on, advised, advised_in_two_groups, true_gain_ns
from tests.emulator import Job, simulate, write

AHEAD = Job(ranks=4, layers=6, steps=3, zero=3, factors=(("AllGather", 4.0),))
LATE = replace(AHEAD, gathered_late=True)


@pytest.mark.parametrize("hidden", [1024, 2048])
def test_gathers_that_begin_late_are_the_first_advice(tmp_path: Path, hidden: int) -> None:
    late, ahead = (replace(job, hidden=hidden) for job in (LATE, AHEAD))
    first = advised(tmp_path, late).first
    assert first.remedy.rule == "parameter_prefetch"
    assert "gather while the layer before computes" in first.remedy.what
    true = true_gain_ns(late, ahead)
    assert first.gain_ns == pytest.approx(true, rel=0.05)
    assert first.low_ns < true < first.high_ns


@pytest.mark.parametrize("factor", [1.0, 4.0, 40.0])
def test_gathers_one_layer_ahead_are_fine(tmp_path: Path, factor: float) -> None:
    job = replace(AHEAD, factors=(("AllGather", factor),))
    assert not advised(tmp_path, job).of_rule("parameter_prefetch")


@pytest.mark.parametrize(
    ("around", "told"),
    [
        ("FSDP::all_gather (layers.0)", True),
        ("FullyShardedDataParallel._pre_forward", True),
        ("FullyShardedDataParallel._pre_backward_prefetch", True),
        ("FullyShardedDataParallel.forward", False),
        ("nn.Module: TensorParallel_0", False),
    ],
)
def test_gathers_of_parameters_are_those_that_fsdp_calls(tmp_path: Path, around: str, *, told: bool) -> None:
    for path in write(simulate(LATE), BRIEF, tmp_path / "traces"):
        text = gzip.decompress(path.read_bytes()).replace(b"FSDP::all_gather", around.encode())
        path.write_bytes(gzip.compress(text, mtime=0))
    assert bool(advice_on(tmp_path).of_rule("parameter_prefetch")) == told


def test_groups_that_gather_side_by_side_hide_no_more(tmp_path: Path) -> None:
    [one] = advised(tmp_path / "one", LATE).of_rule("parameter_prefetch")
    [two] = advised_in_two_groups(tmp_path / "two", LATE).of_rule("parameter_prefetch")
    assert two.remedy.what == one.remedy.what


def test_of_one_rank_gathers_may_have_waited(tmp_path: Path) -> None:
    for path in write(simulate(LATE), BRIEF, tmp_path / "traces")[1:]:
        path.unlink()
    [advice] = advice_on(tmp_path).of_rule("parameter_prefetch")
    assert advice.low_ns == 0
    assert advice.rests_on.endswith(", which may have waited for ranks that are not here")


def test_gathers_of_updated_parameters_are_not_those_of_layers(tmp_path: Path) -> None:
    assert not advised(tmp_path, Job(ranks=2, steps=2, zero=1)).of_rule("parameter_prefetch")
