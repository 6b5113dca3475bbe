"""What is advised first: `python -m tests.bench.advice [JOB...]`, a line a job of LUMOS_TRACES, and what it costs.

The table in docs/advice.md is this output, with a judgement of each line.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lumos_df.advice.job_advice import JobAdvice, advise
from lumos_df.trace.ingest import ingest
from tests.bench import inputs
from tests.bench.__main__ import lumos
from tests.bench.measure import claim
from tests.real import ABSENT, REAL, SETS, jobs

_ROOT = Path(__file__).parents[2]
_REAL = REAL / "single_gpu_ns" / "rank0.json.gz"
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated"
_EIGHT = REAL / "megatron_tp8_forward"
_MILLION = 1_000_000


def of_job(job: Path) -> list[JobAdvice]:
    """Return the advice on a folder of traces."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        ingest([job], corpus, workers=1)
        return advise(corpus)


def lines(advised: JobAdvice) -> Iterator[str]:
    """Say what is advised first."""
    worth = [advice for advice in advised.advice if advice.worthwhile]
    if not worth:
        yield f"{advised.job:40.40} nothing found"
    for advice in worth[:1]:
        share = 100 * advice.gain_ns / advised.step_ns
        yield f"{advised.job:40.40} -{share:4.1f}% {advice.remedy.rule}: {advice.remedy.what} [{advice.remedy.known}]"


def costs() -> None:
    """Print what the command takes on eight ranks, and on a million operators."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = _EIGHT if _EIGHT.exists() else _SAMPLE
        corpus = Path(folder) / "ranks"
        ingest([ranks], corpus, workers=1)
        took = min(lumos("advise", "--corpus", corpus).wall_s for _ in range(3))
        claim(f"lumos-df advise: {len(list(ranks.iterdir()))} files of {ranks.name}", took, "s", 3)
        base = _REAL if _REAL.exists() else _SAMPLE / "rank0.json.gz"
        large = inputs.repeat(base, 550, Path(folder) / "rank0.json")
        (done,) = ingest([large], Path(folder) / "large", workers=1).done
        start = time.perf_counter()
        lumos("advise", "--corpus", Path(folder) / "large")
        took = time.perf_counter() - start
        claim("lumos-df advise: a million operators", took * _MILLION / done.operators, "s", 6)


def main(names: list[str]) -> None:
    """Print the first advice on every job, or on those named."""
    if not SETS:
        print(ABSENT)
    for job in (job for folder in SETS for job in jobs(folder)):
        if not names or job.name in names:
            for advised in of_job(job):
                for line in lines(advised):
                    print(line, flush=True)
    if not names:
        costs()


if __name__ == "__main__":
    main(sys.argv[1:])
