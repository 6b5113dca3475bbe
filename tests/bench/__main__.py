"""Every speed and memory claim, measured: `make bench`. One line a claim: what, measured, target, whether it holds.

LUMOS_TRACES names real input (without it the generated sample is repeated), PEERS a Python that has HTA.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lumos_df import connect
from lumos_df.base.runner import available_cpus
from tests.bench.inputs import repeat, report
from tests.bench.measure import claim, peer
from tests.real import REAL, SETS

_ROOT = Path(__file__).parents[2]
_REAL = REAL / "single_gpu_ns" / "rank0.json.gz"
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated" / "rank0.json.gz"
_BASE = _REAL if _REAL.exists() else _SAMPLE
_TRIES = 3
"""Each time is the least of this many: what else the machine does only adds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(*command: str | Path, environment: dict[str, str] | None = None) -> Cost:
    """Run a command to its end and return what it cost, its children included.

    Python may keep its bytecode, as of what is installed, whatever the shell says: to compile every module of ours
    took a fifth of what a small trace takes.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
    )
    assert process.stderr
    complaint = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command))}: {complaint.decode()}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def lumos(*arguments: str | Path, environment: dict[str, str] | None = None) -> Cost:
    """Run a lumos-df command."""
    return run(sys.executable, "-m", "lumos_df", *arguments, environment=environment)


def ingest(paths: Sequence[Path], *more: str, environment: dict[str, str] | None = None) -> Cost:
    """Ingest into a corpus that is new each time."""
    with tempfile.TemporaryDirectory() as folder:
        return lumos("ingest", *paths, "--corpus", Path(folder) / "corpus", *more, environment=environment)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder for inputs, on the disk that the build uses."""
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        yield Path(folder)


def exactness(folder: Path) -> None:
    """Compare gpu_time with the independent reference of each set of traces, file by file."""
    query = "SELECT path, columns(gpu_time.*) FROM gpu_time JOIN traces USING (trace_id)"
    wrong = compared = 0
    for traces in SETS:
        file = traces.parent / "reference" / f"gpu_time{traces.name.removeprefix('traces')}.json"
        if not file.exists():
            print(f"exactness: {traces} skipped, no reference at {file} (set LUMOS_TRACES)")
            continue
        reference, corpus = json.loads(file.read_text())["files"], folder / f"reference_{traces.name}"
        lumos("ingest", traces, "--corpus", corpus)
        for row in connect(corpus).sql(query).pl().to_dicts():
            ranks = reference[Path(row["path"]).relative_to(traces).as_posix().split(".")[0]]
            expected = ranks[str(row["rank"])] if len(ranks) > 1 else next(iter(ranks.values()))
            compared += 1
            wrong += any(row[key] != value for key, value in expected.items())
    if compared:
        claim(f"gpu_time: traces that differ from the reference (of {compared})", wrong, "", 0)


def scanning(folder: Path) -> Path:
    """CPU time of ingest beside msgspec's, on a file of 500 MB, and its memory."""
    ingest([_SAMPLE])  # kernels compiled
    dense = repeat(_BASE, 500, folder / "dense.json", dense=True)
    _beside_msgspec(dense, "500 MB without white space", 1.9)
    dense.unlink()
    file = repeat(_BASE, 500, folder / "rank0.json")
    cost = _beside_msgspec(file, "500 MB", 1.6)
    claim("ingest of 500 MB, peak memory", cost.peak_mib, "MiB", 1024)
    if available_cpus() > 1:
        claim("ingest of 500 MB, wall over its own CPU", cost.wall_s / cost.cpu_s, "x", 0.6)
    return file


def _beside_msgspec(file: Path, what: str, target: float) -> Cost:
    """Compare with msgspec, turn by turn as both slow down with the machine; return the least of each cost."""
    turns = [(peer("msgspec", file), ingest([file])) for _ in range(_TRIES)]
    decode = min(seconds for seconds, _ in turns)
    costs = [cost for _, cost in turns]
    cpu = min(cost.cpu_s for cost in costs)
    print(f"{what}: msgspec decodes in {decode:.2f} s of CPU, ingest takes {cpu:.2f} s ({500 / cpu:.0f} MB/s)")
    claim(f"ingest of {what}, CPU over msgspec's decode alone", cpu / decode, "x", target)
    return Cost(min(cost.wall_s for cost in costs), cpu, max(cost.peak_mib for cost in costs))


def large(folder: Path) -> None:
    """Memory of a 2 GB file."""
    file = repeat(_BASE, 2000, folder / "large.json")
    claim("ingest of 2 GB, peak memory", ingest([file]).peak_mib, "MiB", 1536)
    file.unlink()


def profiles(folder: Path) -> None:
    """An export of Nsight Systems of two million rows."""
    file = report(2_000_000, folder / "report.sqlite")
    costs = [ingest([file]) for _ in range(_TRIES)]
    claim("ingest of 2,000,000 rows of Nsight, CPU", min(cost.cpu_s for cost in costs), "s", 6)
    claim("ingest of 2,000,000 rows of Nsight, peak memory", max(cost.peak_mib for cost in costs), "MiB", 1024)
    file.unlink()


def against_hta(file: Path) -> None:
    """Ingest and every report view beside HTA's load and analysis."""
    python = os.environ.get("PEERS", "")
    with tempfile.TemporaryDirectory() as folder:
        corpus, output = Path(folder) / "corpus", Path(folder) / "report"
        ours = lumos("ingest", file, "--corpus", corpus).wall_s
        ours += lumos("report", "--corpus", corpus, "--output", output).wall_s
        operators = connect(corpus).sql("SELECT count(*) FROM operators").fetchall()[0][0]
        again = min(lumos("report", "--corpus", corpus, "--output", output).cpu_s for _ in range(_TRIES))
    print(f"500 MB: ingest and all report views take {ours:.2f} s")
    claim("report --output of a million operators, CPU", again * 1e6 / operators, "s", 1.5)
    if not python:
        print("HTA: skipped (set PEERS to a Python that has HolisticTraceAnalysis)")
        return
    theirs = peer("hta", file.parent, python)
    print(f"500 MB: HTA's load and analyses take {theirs:.2f} s")
    claim("HTA's load and analyses over ours", theirs / ours, "x", 15, at_least=True)


def workers(folder: Path) -> None:
    """Eight files with two workers, beside what two cores can do: two commands of half the files, each on a core.

    One worker's threads keep a part of the second core busy, and on many machines two busy cores slow each other: the
    time of one worker says neither how much two could gain nor what they lose.
    """
    files = [repeat(_BASE, 100, folder / f"rank{rank}.json", rank=rank) for rank in range(8)]
    costs = [[ingest(files, "--workers", count) for _ in range(2)] for count in ("1", "2")]
    one, two = (min(each, key=lambda cost: cost.wall_s) for each in costs)
    print(f"eight files: one worker keeps {one.cpu_s / one.wall_s:.2f} cores busy, two {two.cpu_s / two.wall_s:.2f}")
    print(f"eight files: one worker's time over two workers' {one.wall_s / two.wall_s:.2f}x")
    if available_cpus() > 1 and hasattr(os, "sched_setaffinity"):
        one_core = min(_on_cores([files]) for _ in range(2))
        halves = min(_on_cores([files[:4], files[4:]]) for _ in range(2))
        gained, could = one_core / two.wall_s, one_core / halves
        print(f"eight files: one core's time over two workers' {gained:.2f}x, over two commands' {could:.2f}x")
        claim("eight files: two workers' time over two commands', a core each", two.wall_s / halves, "x", 1.1)
    for file in files:
        file.unlink()


def _on_cores(parts: Sequence[Sequence[Path]]) -> float:
    """Return how long it takes to ingest several parts at once, each with one worker on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))

    def part(core: int, files: Sequence[Path]) -> None:
        os.sched_setaffinity(0, {core})  # of this thread, and of what it starts
        ingest(files, "--workers", "1")

    start = time.perf_counter()
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(part, *each) for each in zip(cores, parts, strict=False)]:
            done.result()
    return time.perf_counter() - start


def starting(folder: Path) -> None:
    """What a command costs before it does anything."""
    claim("lumos-df --help", min(lumos("--help").wall_s for _ in range(_TRIES)), "s", 0.3)
    small = folder / "small"
    lumos("ingest", _SAMPLE, "--corpus", small)
    claim("ingest of a small file, CPU", min(ingest([_SAMPLE]).cpu_s for _ in range(_TRIES)), "s", 0.5)
    job = _SAMPLE.parent.name
    change = ("estimate", "--job", job, "--set", "dp=16", "--corpus", str(small))
    lumos(*change)
    claim("estimate --set on it, CPU", min(lumos(*change).cpu_s for _ in range(_TRIES)), "s", 1)
    query = ("sql", "SELECT * FROM gpu_time", "--corpus", str(small))
    claim("sql on a small corpus", min(lumos(*query).wall_s for _ in range(_TRIES)), "s", 0.7)
    file = repeat(_BASE, 25, folder / "rank0-25mb.json")
    cold = {"NUMBA_CACHE_DIR": str(folder / "kernels")}
    claim("first ingest of 25 MB, kernels compiled", ingest([file], environment=cold).wall_s, "s", 20)
    warm = min(ingest([file], environment=cold).wall_s for _ in range(_TRIES))
    claim("the same again", warm, "s", 1.5)


def alone(part: str) -> None:
    """A part in a process of its own: its memory is a claim, and it keeps to one core."""
    command = [sys.executable, "-m", f"tests.bench.{part}"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(_ROOT)}, check=True)


def main() -> None:
    """Measure everything."""
    print(f"input: {_BASE.parent.name}/{_BASE.name} repeated; {available_cpus()} CPUs")
    with scratch() as folder:
        exactness(folder)
        starting(folder)
        (folder / "one").mkdir()
        file = scanning(folder / "one")
        against_hta(file)
        file.unlink()
        workers(folder)
        large(folder)
        profiles(folder)
        for part in ("graph", "structure", "schedule", "estimate", "plans", "paper", "whatif", "page", "capture"):
            alone(part)


if __name__ == "__main__":
    main()
