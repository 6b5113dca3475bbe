"""How long exports take: `python -m tests.bench.exports`, the commands as one types them.

A job of eight emulated ranks, and one rank of a million operators.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lumos_df.graph.run import replay
from lumos_df.trace.ingest import ingest
from tests.bench.inputs import repeat
from tests.bench.measure import claim
from tests.emulator import Job, Profiler, simulate, write
from tests.real import REAL

_ROOT = Path(__file__).parents[2]
_REAL = REAL / "single_gpu_ns" / "rank0.json.gz"
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated" / "rank0.json.gz"
_TRIES = 3
"""The time is the least of this many: what else the machine does only adds."""
_MEGABYTES = 520
"""JSON of about a million operators."""


def _seconds(corpus: Path, what: str, output: Path) -> float:
    least = float("inf")
    command = [
        sys.executable,
        "-m",
        "lumos_df",
        "export",
        "--what",
        what,
        "--corpus",
        str(corpus),
        "--output",
        str(output),
    ]
    for _ in range(_TRIES):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        least = min(least, time.perf_counter() - start)
    return least


def _size(folder: Path) -> float:
    """Return the megabytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        eight, million = Path(name) / "eight", Path(name) / "million"
        files = write(simulate(Job(ranks=8, layers=12, steps=3)), Profiler(), Path(name) / "traces")
        ingest(list(map(str, files)), eight, job="eight")
        long = Path(name) / "rank0.json"
        repeat(_REAL if _REAL.exists() else _SAMPLE, _MEGABYTES, long)
        ingest([long], million)
        for corpus, whose, aim in ((eight, "a job of eight ranks", 3), (million, "one rank, a million operators", 10)):
            replay(corpus)
            for what, output in (("chakra", "et/job"), ("perfetto", "p/job.json"), ("perfetto", "z/job.json.gz")):
                target = Path(name) / corpus.name / output
                kind = f"{what}{target.suffix if target.suffix == '.gz' else ''}"
                claim(f"{kind} of {whose}", _seconds(corpus, what, target), "s", aim)
                print(f"its size {_size(target.parent):.1f} MB")


if __name__ == "__main__":
    main()
