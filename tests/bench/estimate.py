"""How fast estimates are: `python -m tests.bench.estimate`, one line a claim, on one core.

The grid is Llama 3 70B on H100s with 1F1B, interleaved, ZB-H1 and GPipe pipelines of up to 16 stages; every row has
schedule, overlap, memory and all other columns of an answer.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lumos_df.estimate.answer import Jobs
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.search import STRETCH, Part, Search
from lumos_df.model.evaluate import evaluate_rows
from tests.bench.measure import claim

_ROOT = Path(__file__).parents[2]
_TRIES = 3
"""Each time is the least of this many: what else the machine does only adds."""
_MILLION = 1_000_000
_COMMON = (
    "tp=1|2|4|8,pp=2|4|8|16,gpus=128|256|512|1024|2048,batch=512|1024|2048|4096,mbs=1|2|4,sp=0|1,zero=0|1|2|3,"
    "recompute=none|selective|full,flash=0|1,overlap_tp=0|1,overlap_dp=0|1,precision=bf16|fp8,"
)
_EXPERTS = _COMMON.replace("batch=512", "ep=1|4|8,batch=512")
_EXPERT_PLANS = {"interleaved": _EXPERTS + "vp=2|4", "DualPipe": _EXPERTS + "schedule=dualpipe"}
_PLANS = (_COMMON + "vp=2|5", _COMMON + "schedule=1f1b|zb-h1|gpipe")
_ESTIMATE = (
    "--model",
    "llama-3-70b",
    "--hardware",
    "h100-sxm",
    "--plan",
    "tp=8,pp=4,dp=8,batch=1024",
    "--format",
    "json",
)


def evaluation(jobs: Jobs) -> float:
    """Return the seconds of evaluating a stretch of legal configurations."""
    models, hardware, software = (
        np.array([noun.row() for noun in nouns]) for nouns in (jobs.models, jobs.hardware, jobs.software)
    )
    least = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        evaluate_rows(models, hardware, software, jobs.plans, jobs.model_of, jobs.hardware_of)
        least = min(least, time.perf_counter() - start)
    return least


def shell(cache: Path) -> float:
    """Return the seconds of one estimate from the shell, compiled kernels in `cache`."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "NUMBA_CACHE_DIR": str(cache)}
    start = time.perf_counter()
    command = [sys.executable, "-m", "lumos_df", "estimate", *_ESTIMATE]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        claim("first estimate, kernels compiled", shell(Path(folder)), "s", 20)
        claim("one estimate from the shell, warm", min(shell(Path(folder)) for _ in range(_TRIES)), "s", 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    grid = Grid.make(["llama-3-70b"], ["h100-sxm"], _PLANS)
    search = Search(grid)
    search.work(Part(0, 0, 1))  # compiles
    jobs, _, _ = search.legal(Part(0, 0, STRETCH))
    claim("complete estimates a second, one core", len(jobs.plans) / evaluation(jobs), "/s", 400_000, at_least=True)
    for name, plan in _EXPERT_PLANS.items():
        deepest = Search(Grid.make(["deepseek-v3"], ["h100-sxm"], (plan,)))
        last = len(deepest.grid)
        jobs, _, _ = deepest.legal(Part(0, last - STRETCH, last))
        pace = len(jobs.plans) / evaluation(jobs)
        claim(f"the same of DeepSeek-V3 with {name} pipelines", pace, "/s", 150_000, at_least=True)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = Search(grid, where="true", folder=Path(folder) / "rows").run()
        took = time.perf_counter() - start
    print(f"{found.configurations:,} configurations, {found.legal:,} legal: {took:.1f} s with all rows stored")
    claim("a million plans: refused, estimated, ranked, stored", took * _MILLION / found.legal, "s", 60)
    claim("the same, peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB", 2048)


if __name__ == "__main__":
    main()
