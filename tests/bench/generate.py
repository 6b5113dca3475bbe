"""How much of each real job a benchmark of it covers: `python -m tests.bench.generate`, the rows of docs/generate.md.

With PYTHON_WITH_TORCH each benchmark also runs on this CPU, sizes divided by 16: it says what this torch lacks.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from lumos_df.generate.benchmark_folder import generate
from lumos_df.trace.ingest import ingest
from tests.real import SETS, jobs

_SMALL = ("--small", "16", "--host-gaps", "cut", "--iterations", "1", "--warmup", "0")


def _first_rank(corpus: Path) -> str:
    """Return the id of the trace of the lowest rank."""
    from lumos_df import connect  # noqa: PLC0415 - beside its use

    with connect(corpus) as connection:
        rows = connection.execute("SELECT trace_id FROM traces ORDER BY rank, trace_id LIMIT 1").fetchall()
    return str(rows[0][0])


def _run(folder: Path) -> str:
    """Return what of a benchmark's time is copied on this CPU, as the benchmark says."""
    python = os.environ.get("PYTHON_WITH_TORCH")
    if not python:
        return "not run"
    done = subprocess.run([python, str(folder / "benchmark.py"), *_SMALL], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1]}"
    return f"{json.loads(done.stdout)['copied_instead_pct']:.1f}"


def main() -> None:
    """Print one row a job: of its first rank, replayed, replaced and left out."""
    print("| job | replayed | replaced | left out | of what has shapes | copied on a CPU |")
    print("|---|---|---|---|---|---|")
    for job in [job for traces in SETS for job in jobs(traces)]:
        with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as scratch:
            corpus, folder = Path(scratch) / "corpus", Path(scratch) / "benchmark"
            ingest([job], corpus, workers=1)
            generate(corpus, folder, job=_first_rank(corpus), force=True)
            manifest = json.loads((folder / "manifest.json").read_text())
            column = "gpu_pct" if manifest["share_is_of"] == "GPU time" else "host_pct"
            shares = [manifest["totals"].get(how, {}).get(column, 0.0) for how in ("replayed", "replaced", "left out")]
            shaped = manifest.get("share_of_gpu_time_with_shapes_pct", "-")
            print(
                f"| {job.name} |", *(f"{share:.1f} |" for share in shares), f"{shaped} | {_run(folder)} |", flush=True
            )


if __name__ == "__main__":
    main()
