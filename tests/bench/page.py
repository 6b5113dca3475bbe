"""How long the page of a job takes, and its size: `python -m tests.bench.page [RANKS]`, the command as one types it.

Eight ranks run twelve layers and three steps, another number one layer and one step.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lumos_df.graph.run import replay
from lumos_df.trace.ingest import ingest
from tests.bench.measure import claim
from tests.emulator import Job, Profiler, simulate, write

_RANKS = 8
"""Of the job whose time has a target."""
_TRIES = 3
"""The time is the least of this many: what else the machine does only adds."""


def main(ranks: int = _RANKS) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        corpus, page = Path(name) / "corpus", Path(name) / "page.html"
        job = Job(ranks=ranks, layers=12, steps=3) if ranks == _RANKS else Job(ranks=ranks, layers=1, steps=1)
        files = write(simulate(job), Profiler(), Path(name) / "traces")
        ingest(list(map(str, files)), corpus, job="emulated")
        replay(corpus, path=True, gains=True)
        least = float("inf")
        command = [sys.executable, "-m", "lumos_df", "report", "--corpus", str(corpus), "--html", str(page)]
        for _ in range(_TRIES):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=dict(os.environ))
            least = min(least, time.perf_counter() - start)
        if ranks == _RANKS:
            claim("page of a job of eight ranks, all it can show", least, "s", 3)
        else:
            print(f"page of a job of {ranks} ranks {least:.1f} s")
        claim("its size", page.stat().st_size / 1e6, "MB", 5)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
