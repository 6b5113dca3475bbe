"""How fast changed jobs are: `python -m tests.bench.whatif`, one line a claim, on one core.

`--truth` says how far they are from jobs that ran and whether their intervals hold (`whatif_truth`), `--settings` what
comes of every shared job under fifty settings (`whatif_settings`).
The job is emulated, four ranks of six layers; with more layers it has a million operators.
"""

import os
import resource
import tempfile
import time
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

from lumos_df.graph.job import groups
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.answer.estimated_traces import write as store
from lumos_df.whatif.estimate import estimate, estimated
from lumos_df.whatif.job.extent import operators
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import parse
from tests.bench import whatif_settings, whatif_truth
from tests.bench.measure import claim
from tests.emulator import Job, Profiler, simulate, write

_TRIES = 3
"""Each time is the least of this many: what else the machine does only adds."""
_MILLION = 1_000_000


def seconds(anchor: RecordedJob, *texts: str) -> float:
    """Return the seconds of changing a job that is in memory, running it again, and answering."""
    least = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        step_rows.rows(estimated(anchor, parse([*texts])))
        least = min(least, time.perf_counter() - start)
    return least


def main() -> None:
    """Print what was asked for."""
    parser = ArgumentParser("python -m tests.bench.whatif")
    parser.add_argument("--truth", action="store_true", help="how far off, and whether intervals hold")
    parser.add_argument("--pairs", action="store_true", help="with --truth: every pair")
    parser.add_argument("--settings", type=Path, nargs="?", const=None, default=False, help="every job, fifty settings")
    given = parser.parse_args()
    if given.truth:
        for part in (whatif_truth.sweep, whatif_truth.emulated, whatif_truth.validated):
            part(told=given.pairs)
    elif given.settings is not False:
        whatif_settings.main(given.settings)
    else:
        speed()


def speed() -> None:
    """Measure how fast and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(simulate(Job(ranks=4, layers=6)), Profiler(memory=False, stacks=False), folder / "four")
        ingest([folder / "four"], folder / "corpus", workers=1)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        estimate(folder / "corpus", parse(["layers=7", "dp=8"]))  # compiles
        times = []
        for _ in range(_TRIES):
            start = time.perf_counter()
            estimate(folder / "corpus", parse(["dp=8"]))
            times.append(time.perf_counter() - start)
        claim("--set dp=8 on 16,000 operators, read, changed, answered, warm", min(times), "s", 1)
        small = load(folder / "corpus", groups(folder / "corpus")[0], {})
        layers = next(
            many for many in range(6, 1 << 20) if operators(small, replace(small.sizes, layers=many)) >= _MILLION
        )
        took = seconds(small, f"layers={layers}")
        claim(f"a million operators from --set layers={layers}: changed, run, answered", took, "s", 3)
        store(estimated(small, parse([f"layers={layers}"])), folder / "corpus", folder / "large", f"layers={layers}")
        large = load(folder / "large", groups(folder / "large")[0], {})
        many = sum(len(rank.trace) for rank in large.about.ranks)
        claim(f"--set dp=8 on {many:,} operators: changed, run, answered", seconds(large, "dp=8"), "s", 3)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        claim("peak memory", peak, "MiB", 2048)


if __name__ == "__main__":
    main()
