"""How fast the graph is: `python -m tests.bench.graph`, one line a claim, on one core after the loops are compiled."""

import os
import resource
import sys
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from lumos_df.graph import critical_path as paths
from lumos_df.graph.job import build
from lumos_df.graph.rows import NONE, Rows, read
from lumos_df.trace.ingest import ingest

_ROOT = Path(__file__).parents[2]
_TRACES = Path(os.environ.get("LUMOS_TRACES", _ROOT.parent / "shared" / "traces"))
_REAL = _TRACES / "single_gpu_ns" / "rank0.json.gz"
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated" / "rank0.json.gz"
_TRIES = 3
"""Each time is the least of this many: what else the machine does only adds."""
_MILLION = 1_000_000


def repeat(rows: Rows, times: int) -> Rows:
    """Return the rows several times, one run of them after another."""
    many = len(rows)
    copy = np.repeat(np.arange(times), many)
    column = {
        field.name: np.tile(getattr(rows, field.name), times)
        for field in fields(rows)
        if isinstance(getattr(rows, field.name), np.ndarray) and getattr(rows, field.name).shape == (many,)
    }
    column["ts"] = column["ts"] + copy * (int(rows.end.max() - rows.ts.min()) + 1000)
    for name in ("parent", "forward"):
        column[name] = np.where(column[name] == NONE, NONE, column[name] + copy * many).astype(np.int32)
    return replace(rows, **column)  # type: ignore[arg-type]  # columns only, all of them arrays


def seconds(rows: Rows) -> float:
    """Return the time of graph, replay and critical path."""
    least = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        job = build([rows])
        played = job.replay()
        paths.slack(played.network, played.run, job.graphs, played.replays)
        paths.critical_paths(played.network, played.run, job.graphs, played.replays)
        least = min(least, time.perf_counter() - start)
    return least


def main() -> None:
    """Measure, print, and exit 1 when a claim does not hold."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        (done,) = ingest([_REAL if _REAL.exists() else _SAMPLE], corpus, workers=1).done
        rows = read(corpus, done.trace_ids[0])
    seconds(rows)  # compiles
    times = -(-_MILLION // len(rows))
    million = repeat(rows, times)
    took = seconds(million)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    large = repeat(rows, 10 * times)
    ratio = seconds(large) / took * len(million) / len(large)
    holds = [
        (
            "graph + replay + critical path",
            f"{took:.2f} s for {len(million):,} operators",
            "2 s a million",
            took <= 2 * len(million) / _MILLION,
        ),
        ("the same work at 10 times the size", f"{ratio:.2f} times the time an operator", "1.3", ratio <= 1.3),
        ("peak memory, ingest included", f"{peak:,.0f} MiB", "2,048 MiB", peak <= 2048),
    ]
    for what, measured, target, good in holds:
        print(f"{'ok  ' if good else 'MISS'}  {what}: {measured} (at most {target})")
    sys.exit(not all(good for *_, good in holds))


if __name__ == "__main__":
    main()
