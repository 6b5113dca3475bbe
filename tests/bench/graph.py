"""How fast and how true the graph is: `python -m tests.bench.graph`, a line a claim, one core, the loops compiled.

Set PEERS to a Python that has HTA to compare with its critical path on the same trace.
"""

import gzip
import os
import resource
import shutil
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from lumos_df.base import freed_memory
from lumos_df.graph import critical_path as paths
from lumos_df.graph.job import build
from lumos_df.graph.path_ways import WalkedGraph
from lumos_df.graph.rows import Rows, read
from lumos_df.schema.codes import NONE
from lumos_df.trace.ingest import ingest
from tests.bench import inputs, replays
from tests.bench.__main__ import lumos
from tests.bench.measure import claim, peer
from tests.real import REAL

_ROOT = Path(__file__).parents[2]
_REAL = REAL / "single_gpu_ns" / "rank0.json.gz"
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated" / "rank0.json.gz"
_TRIES = 3
"""Each time is the least of this many: what else the machine does only adds."""
_MILLION = 1_000_000
_STEP = "ProfilerStep#"


def repeat(rows: Rows, times: int) -> Rows:
    """Return the rows several times, one run of them after another, the steps numbered on."""
    many = len(rows)
    copy = np.repeat(np.arange(times), many)
    column = {
        field.name: np.tile(getattr(rows, field.name), times)
        for field in fields(rows)
        if field.init
        and isinstance(getattr(rows, field.name), np.ndarray)
        and getattr(rows, field.name).shape == (many,)
    }
    column["ts"] = column["ts"] + copy * (int(rows.end.max() - rows.ts.min()) + 1000)
    for name in ("parent", "forward"):
        column[name] = np.where(column[name] == NONE, NONE, column[name] + copy * many).astype(np.int32)
    names = list(rows.names)
    numbers = [int(name.removeprefix(_STEP)) for name in names if name.startswith(_STEP)]
    more = copy * (max(numbers, default=0) + 1)
    column["step"] = np.where(column["step"] == NONE, NONE, column["step"] + more).astype(np.int32)
    for place, name in enumerate(rows.names):
        if name.startswith(_STEP):
            own = np.flatnonzero(column["name"] == place)
            used, column["name"][own] = np.unique(more[own], return_inverse=True)
            column["name"][own] += len(names)
            names += [f"{_STEP}{int(name.removeprefix(_STEP)) + add}" for add in used.tolist()]
    return replace(rows, names=names, **column)  # type: ignore[arg-type]  # columns only, all of them arrays


def seconds(rows: Rows) -> float:
    """Return the time of graph, replay and critical path on one core: the processor's, whatever else it does."""
    least = float("inf")
    for _ in range(_TRIES):
        start = time.process_time()
        job = build([rows])
        played = job.replay()
        paths.slack(played.event_graph, played.run, job.graphs, played.replays)
        paths.step_paths(WalkedGraph.of(played.event_graph, played.run, job.graphs), played.replays)
        least = min(least, time.process_time() - start)
    return least


def command(trace: Path, times: int, operators: int) -> None:
    """`lumos-df critical-path` of a corpus made of a trace repeated so often: all that the command takes."""
    megabytes = (times - 0.5) * len(gzip.decompress(trace.read_bytes())) / 1e6
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        corpus, kept = Path(folder) / "corpus", Path(folder) / "kept"
        lumos("ingest", inputs.repeat(trace, megabytes, Path(folder) / "rank0.json"), "--corpus", corpus)
        shutil.copytree(corpus, kept)
        least = float("inf")
        for _ in range(_TRIES):
            # Nothing stored by an earlier one to compare with, and the corpus where its catalogue says that it is.
            shutil.rmtree(corpus)
            shutil.copytree(kept, corpus)
            least = min(least, lumos("critical-path", "--corpus", corpus).cpu_s)
    claim("lumos-df critical-path: a million operators, CPU", least * _MILLION / operators, "s", 3)


def against_hta(trace: Path, rows: Rows) -> None:
    """Graph, replay and critical path beside HTA's graph and critical path, an operator of the same trace."""
    python = os.environ.get("PEERS", "")
    if not python:
        print("HTA's critical path: skipped (set PEERS to a Python that has HolisticTraceAnalysis)")
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / trace.name).symlink_to(trace)
        theirs = peer("hta_path", Path(folder), python)
    ours = seconds(rows) / len(rows)
    print(f"an operator of {trace.parent.name}: HTA {theirs * 1e6:.2f} us, graph, replay and path {ours * 1e6:.2f} us")
    claim("HTA's critical path over ours, an operator of the same trace", theirs / ours, "x", 50, at_least=True)


def main() -> None:
    """Measure and print."""
    freed_memory.keep()  # as the commands do
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    trace = _REAL if _REAL.exists() else _SAMPLE
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        (done,) = ingest([trace], corpus, workers=1).done
        rows = read(corpus, done.trace_ids[0])
    seconds(rows)  # compiles
    times = -(-_MILLION // len(rows))
    million = repeat(rows, times)
    took = seconds(million)
    claim("graph, replay, critical path: a million operators", took * _MILLION / len(million), "s", 2)
    claim("the same, peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB", 2048)
    large = repeat(rows, 10 * times)
    ratio = seconds(large) / took * len(million) / len(large)
    claim("ten times the operators: time of each over that before", ratio, "x", 1.25)
    command(trace, times, len(million))
    against_hta(trace, rows)
    replays.main([])


if __name__ == "__main__":
    main()
