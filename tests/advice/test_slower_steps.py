"""GPUs that are slower in some steps; the gain is that of the job whose GPUs keep their pace."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import Job, simulate, write

COOL = Job(ranks=4, layers=4, steps=6)


@pytest.mark.parametrize("hot", [(2,), (0, 1, 2, 3)])
def test_a_gpu_that_slows_down_is_the_first_advice(tmp_path: Path, hot: tuple[int, ...]) -> None:
    job = replace(COOL, hot=hot)
    first = advised(tmp_path, job).first
    assert first.remedy.rule == "slower_steps"
    assert first.remedy.what.startswith(f"kernels {'of rank 2 ' if len(hot) == 1 else ''}take longer in some steps ")
    true = true_gain_ns(job, COOL)
    assert first.gain_ns == pytest.approx(true, rel=0.15)
    assert first.low_ns < true < first.high_ns


def test_ranks_have_their_own_numbers_where_the_first_was_not_recorded(tmp_path: Path) -> None:
    write(simulate(replace(COOL, hot=(2,))), BRIEF, tmp_path / "traces")[0].unlink()
    [advice] = advice_on(tmp_path).of_rule("slower_steps")
    assert advice.remedy.what.startswith("kernels of rank 2 take longer ")


def test_so_is_the_only_gpu(tmp_path: Path) -> None:
    job = replace(COOL, ranks=1, hot=(0,))
    assert advised(tmp_path, job).first.remedy.rule == "slower_steps"


@pytest.mark.parametrize("seed", range(3))
def test_kernels_that_differ_by_chance_are_fine(tmp_path: Path, seed: int) -> None:
    job = replace(COOL, ranks=2, seed=seed, kernel_noise=0.3, jitter_ns=20_000)
    assert not advised(tmp_path, job).of_rule("slower_steps")


def test_sequences_that_grow_are_no_heat(tmp_path: Path) -> None:
    assert not advised(tmp_path, replace(COOL, ranks=2, longer=64)).of_rule("slower_steps")
