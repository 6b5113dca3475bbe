"""How near any model can come to the paper's runs from three of them: `python -m tests.bench.paper_floor`.

Plans say nothing of why some runs are slow, so a model tells them what their neighbours take, at best. Nothing here is
an estimate of ours.
"""

from collections.abc import Iterable
from itertools import combinations
from statistics import fmean, median
from typing import Final

import numpy as np

from lumos_df.calibrate.scoreboard import SEEDS

Plan = tuple[int, int, int]

SECONDS: Final = {
    (2, 2, 8): 0.797,
    (2, 2, 16): 0.813,
    (2, 2, 32): 0.864,
    (2, 4, 4): 0.872,
    (2, 8, 4): 1.446,
    (2, 16, 4): 1.785,
    (2, 4, 8): 0.888,
    (2, 8, 8): 1.010,
    (2, 4, 16): 1.336,
    (8, 4, 8): 7.611,
}
"""Seconds of a step by (tp, pp, dp): arXiv 2504.09307, read off its breakdown figures. tp * pp micro-batches a rank; in
the order of lumos_paper.csv."""

CALIBRATED: Final = 3


def most() -> dict[Plan, float]:
    """Return what neighbours leave for the slow runs: seconds that the largest growth seen elsewhere leads to."""
    replicas = max(SECONDS[2, 2, 16] / SECONDS[2, 2, 8], SECONDS[2, 2, 32] / SECONDS[2, 2, 16])
    stages = max(SECONDS[2, 4, 8] / SECONDS[2, 2, 8], SECONDS[2, 8, 8] / SECONDS[2, 4, 8])
    return {
        # Fewer replicas of the same work take no longer.
        (2, 8, 4): SECONDS[2, 8, 8],
        (2, 16, 4): SECONDS[2, 8, 8] * stages,
        (2, 4, 16): SECONDS[2, 4, 8] * replicas,
    }


def off(left: Iterable[Plan]) -> float:
    """Return the mean error of the runs `left`, percent, of a model that is exact but where a run is slow."""
    slow = {plan: 1.0 - seconds / SECONDS[plan] for plan, seconds in most().items()}
    return 100.0 * fmean(slow.get(plan, 0.0) for plan in left)


def main() -> None:
    """Print what the slow runs are off by, and the floor over all choices of the runs to calibrate on."""
    for plan, seconds in most().items():
        print(f"{plan}: {SECONDS[plan]:.3f} s, by its neighbours {seconds:.3f} at most, {off([plan]):.0f} % less")
    plans = list(SECONDS)
    every = [off(left) for left in combinations(plans, len(plans) - CALIBRATED)]
    orders = [np.random.default_rng(seed).permutation(len(plans)) for seed in range(SEEDS)]
    drawn = [off(plans[place] for place in order[CALIBRATED:]) for order in orders]
    for which, means in (("all choices", every), ("the scoreboard's", drawn)):
        print(f"{which}, {len(means)}: mean {fmean(means):.1f} %, median {median(means):.1f} %")
    print(f"of 2x8x4 beside 2x8x8 alone, where both are left: {off([(2, 8, 4)]) / (len(plans) - CALIBRATED):.1f} %")


if __name__ == "__main__":
    main()
