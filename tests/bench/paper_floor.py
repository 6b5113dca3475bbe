"""How near any model can come to the paper's runs from three of them: `python -m tests.bench.paper_floor`.

Plans say nothing of why some runs are slow, so a model tells them what their neighbours take, at best. Nothing here is
an estimate of ours. The runs are those of lumos_paper.csv in LUMOS_TRUTH.
"""

import sys
from collections.abc import Iterable
from itertools import combinations
from statistics import fmean, median
from typing import Final

import numpy as np
import polars as pl

from lumos_df.calibrate.scoreboard import SEEDS
from tests.calibrate.test_measured_runs import TRUTH

Plan = tuple[int, int, int]
"""Degrees of tensor, pipeline and data parallelism."""
Seconds = dict[Plan, float]
"""What a step of each plan took, in the order of the file."""

CALIBRATED: Final = 3


def measured() -> Seconds:
    """Return the paper's runs."""
    runs = pl.read_csv(TRUTH / "lumos_paper.csv").select("tp", "pp", "dp", "iteration_time_ms")
    return {(tp, pp, dp): 1e-3 * ms for tp, pp, dp, ms in runs.iter_rows()}


def most(seconds: Seconds) -> Seconds:
    """Return what neighbours leave for the slow runs: seconds that the largest growth seen elsewhere leads to."""
    replicas = max(seconds[2, 2, 16] / seconds[2, 2, 8], seconds[2, 2, 32] / seconds[2, 2, 16])
    stages = max(seconds[2, 4, 8] / seconds[2, 2, 8], seconds[2, 8, 8] / seconds[2, 4, 8])
    return {
        # Fewer replicas of the same work take no longer.
        (2, 8, 4): seconds[2, 8, 8],
        (2, 16, 4): seconds[2, 8, 8] * stages,
        (2, 4, 16): seconds[2, 4, 8] * replicas,
    }


def off(seconds: Seconds, left: Iterable[Plan]) -> float:
    """Return the mean error of the runs `left`, percent, of a model that is exact but where a run is slow."""
    slow = {plan: 1.0 - told / seconds[plan] for plan, told in most(seconds).items()}
    return 100.0 * fmean(slow.get(plan, 0.0) for plan in left)


def main() -> None:
    """Print what the slow runs are off by, and the floor over all choices of the runs to calibrate on."""
    if not TRUTH.is_dir():
        print("needs the tables of measured runs (LUMOS_TRUTH)", file=sys.stderr)
        return
    seconds = measured()
    for plan, told in most(seconds).items():
        print(f"{plan}: {seconds[plan]:.3f} s, by its neighbours {told:.3f} at most, {off(seconds, [plan]):.0f} % less")
    plans = list(seconds)
    every = [off(seconds, left) for left in combinations(plans, len(plans) - CALIBRATED)]
    orders = [np.random.default_rng(seed).permutation(len(plans)) for seed in range(SEEDS)]
    drawn = [off(seconds, (plans[place] for place in order[CALIBRATED:])) for order in orders]
    for which, means in (("all choices", every), ("the scoreboard's", drawn)):
        print(f"{which}, {len(means)}: mean {fmean(means):.1f} %, median {median(means):.1f} %")
    pair = off(seconds, [(2, 8, 4)]) / (len(plans) - CALIBRATED)
    print(f"of 2x8x4 beside 2x8x8 alone, where both are left: {pair:.1f} %")


if __name__ == "__main__":
    main()
