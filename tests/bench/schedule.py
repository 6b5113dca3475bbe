"""How fast pipelines are simulated: `python -m tests.bench.schedule`, one line a claim, on one core, loops compiled."""

import os
import time

import numba
import numpy as np

from lumos_df.model.pipeline import schedule as schedules
from lumos_df.schema.plan_words import DUALPIPE, INTERLEAVED, ONE_F_ONE_B, ZB_H1
from tests.bench.measure import claim

_TRIES = 100
"""Each time is the least of this many, each too short to be interrupted: what else the machine does only adds."""
_RUNS = 100


@numba.njit
def _repeat(runs, *arguments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN202
    """Simulate many times, as a sweep does: called from a compiled loop."""
    total = 0.0
    for _ in range(runs):
        total += schedules.simulate(*arguments)
    return total


def per_second(schedule: int, pp: int, vp: int, micro_batches: int, *, uneven: bool) -> float:
    """Return simulations a second of a pipeline whose stages are alike, or all different."""
    draw = np.random.default_rng(0)
    forward, inputs, weights, pair = (1 + 0.1 * draw.random(pp * vp) * uneven for _ in range(4))
    delay = np.full(pp, 0.05)
    work = np.empty(schedules.work_size(pp, vp))
    stages, gradients = np.empty((pp, schedules.COLUMNS)), np.empty(pp * vp)
    least = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        _repeat(
            _RUNS,
            schedule,
            pp,
            vp,
            micro_batches,
            schedules.PipelineTimes(forward, inputs, weights, 3 * pair, delay, 0 * delay),
            work,
            stages,
            gradients,
        )
        least = min(least, time.perf_counter() - start)
    return _RUNS / least


def main() -> None:
    """Measure and print."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    per_second(ONE_F_ONE_B, 2, 1, 4, uneven=True)  # compiles
    for name, schedule, vp in (
        ("1F1B", ONE_F_ONE_B, 1),
        ("interleaved by 4", INTERLEAVED, 4),
        ("ZB-H1", ZB_H1, 1),
        ("DualPipe", DUALPIPE, 2),
    ):
        for uneven in (False, True):
            stages = "uneven" if uneven else "even"
            speed = per_second(schedule, 8, vp, 64, uneven=uneven) / 1000
            claim(f"{name}, 8 {stages} stages, 64 micro-batches: simulations", speed, "k/s", 100, at_least=True)


if __name__ == "__main__":
    main()
