"""What many ranks cost: `python -m tests.bench.scale` prints the tables of docs/scale.md, and claims.

The ranks of a real job (LUMOS_TRACES; without it the generated sample) are given new numbers until there are as many as
wanted; those of a trained GPT, with sends and groups of four kinds, are emulated. Each is a file of its own, and goes
through the commands with one worker. What 10,000 ranks cost is extrapolated: the largest job measured, and for every
rank more what a rank cost between the last two. What reports of 10,000 ranks cost is measured, over the tables of the
real job with the rank's number changed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lumos_df import connect
from lumos_df.corpus.folder import trace_ids
from lumos_df.corpus.layout import trace_folder
from lumos_df.corpus.staging import create
from tests.bench.__main__ import Cost, lumos
from tests.bench.inputs import repeat
from tests.bench.measure import claim
from tests.emulator import Profiler, write
from tests.emulator.megatron import Megatron, simulate
from tests.real import REAL

_ROOT = Path(__file__).parents[2]
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated"
_BASES, _LARGE = (
    sorted((REAL / name if (REAL / name).is_dir() else _SAMPLE).glob("rank*.json.gz"))
    for name in ("megatron_tp8_forward", "megatron_tp2_train")
)
_SMALL = sorted(_SAMPLE.glob("rank*.json.gz"))
_RECORDED_RANKS, _TRAINED_RANKS = (16, 64, 256), (16, 32, 64)
_MANY = 10_000
_SMALL_RANKS = 1024
_LARGE_MB = 100
_ONCE = 0.01
"""Megabytes that every rank exceeds, so that its events are written once."""
_BREAKDOWN = "SELECT rank, step, exposed_communication_ns FROM breakdown"


def job(bases: list[Path], ranks: int, folder: Path, megabytes: float = _ONCE) -> None:
    """Write a file for each of so many ranks."""
    folder.mkdir()
    for rank in range(ranks):
        repeat(bases[rank % len(bases)], megabytes, folder / f"rank{rank}.json", rank=rank)


def recorded(ranks: int, folder: Path) -> None:
    """Write the ranks of the recorded job."""
    job(_BASES, ranks, folder)


def trained(ranks: int, folder: Path) -> None:
    """Write the ranks of a GPT of eight layers that trains: forward and backward, two stages, replicas, tp 2."""
    outcome = simulate(Megatron(tp=2, pp=2, dp=ranks // 4, layers=8, micro_batches=8))
    write(outcome, Profiler(memory=False, stacks=False), folder)


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder, in 10^6 bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def measured(traces: Path, folder: Path) -> tuple[dict[str, Cost], dict[str, float]]:
    """Return what each command costs for the traces of a job, and how large rows and corpus are."""
    corpus, of_corpus = folder / "corpus", ("--corpus", folder / "corpus")
    costs = {
        "`ingest`": lumos("ingest", traces, *of_corpus, "--workers", "1"),
        "`replay`": lumos("replay", *of_corpus, "--output", folder / "replay.parquet"),
        "`replay --engine processes`": lumos(
            "replay", *of_corpus, "--engine", "processes", "--output", folder / "replay.parquet"
        ),
        "`critical-path`": lumos("critical-path", *of_corpus, "--output", folder / "path.parquet"),
        "`describe`": lumos("describe", *of_corpus, "--output", folder / "layers.parquet"),
        "`report --output`, all views": lumos("report", *of_corpus, "--output", folder / "answers"),
        "`report --html`": lumos("report", *of_corpus, "--html", folder / "page.html"),
        "`sql`, one view": lumos("sql", _BREAKDOWN, *of_corpus, "--output", folder / "rows.csv"),
    }
    with connect(corpus) as connection:
        counted = connection.execute("SELECT count(*), (SELECT count(*) FROM edges) FROM operators").fetchone()
    assert counted
    sizes = {
        "traces, MB": megabytes(traces),
        "corpus, MB": megabytes(corpus),
        "operators": float(counted[0]),
        "edges": float(counted[1]),
    }
    return costs, sizes


def small_ranks() -> None:
    """`lumos-df critical-path` of many ranks of the generated sample."""
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        traces, corpus = Path(folder) / "traces", Path(folder) / "corpus"
        job(_SMALL, _SMALL_RANKS, traces)
        lumos("ingest", traces, "--corpus", corpus, "--workers", "1")
        cost = lumos("critical-path", "--corpus", corpus, "--output", Path(folder) / "path.parquet")
    claim(f"lumos-df critical-path: {_SMALL_RANKS:,} small ranks, CPU", cost.cpu_s, "s", 60)


def line(what: str, ranks: tuple[int, int, int], values: list[float], digits: int) -> str:
    """Return a row: the values measured, the growth of a rank's cost, and the value extrapolated."""
    (low, middle, high), (least, between, most) = ranks, values
    before, last = (between - least) / (middle - low), (most - between) / (high - middle)
    growth = f"{last / before:.2f}" if before > 0 else "-"
    far = most + last * (_MANY - high)
    shown = [f"{value:,.{digits}f}" for value in values]
    return f"| {what} | {' | '.join(shown)} | {growth} | {far:,.0f} |"


def table(name: str, sizes_of_job: tuple[int, int, int], make: Callable[[int, Path], None]) -> None:
    """Print what a job costs at each size."""
    found = []
    for ranks in sizes_of_job:
        with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
            make(ranks, Path(folder) / "traces")
            found.append(measured(Path(folder) / "traces", Path(folder)))
        print(f"{ranks} ranks measured", file=sys.stderr)
    print(f"| ranks of {name} | {' | '.join(map(str, sizes_of_job))} | growth | {_MANY:,}, extrapolated |")
    print("|---" * (len(found) + 3) + "|")
    for size in found[0][1]:
        print(line(size, sizes_of_job, [sizes[size] for _, sizes in found], 0))
    for command in found[0][0]:
        print(line(f"{command}, CPU s", sizes_of_job, [costs[command].cpu_s for costs, _ in found], 1))
        print(line(f"{command}, peak MiB", sizes_of_job, [costs[command].peak_mib for costs, _ in found], 0))


def large_ranks() -> None:
    """Print what few ranks of a hundred megabytes cost."""
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        job(_LARGE, len(_LARGE), Path(folder) / "traces", _LARGE_MB)
        costs, sizes = measured(Path(folder) / "traces", Path(folder))
    print(f"| {len(_LARGE)} ranks of {_LARGE_MB} MB, {sizes['operators']:,.0f} operators | CPU s | peak MiB |")
    print("|---|---|---|")
    for command, cost in costs.items():
        print(f"| {command} | {cost.cpu_s:.1f} | {cost.peak_mib:,.0f} |")


def copied(corpus: Path, ranks: int, into: Path) -> None:
    """Make a corpus of so many ranks of the tables of a few: links to large ones, small ones with a new number."""
    into.mkdir()
    create(into)
    folders = [trace_folder(corpus, trace_id) for trace_id in sorted(trace_ids(corpus))]
    numbered = ("traces", "collectives")
    tables = [{name: pq.ParquetFile(folder / f"{name}.parquet").read() for name in numbered} for folder in folders]
    for rank in range(ranks):
        folder = trace_folder(into, f"{rank:016x}")
        folder.mkdir()
        for name, rows in tables[rank % len(tables)].items():
            place, column = rows.column_names.index("rank"), pa.array([rank] * rows.num_rows, pa.int32())
            pq.write_table(rows.set_column(place, "rank", column), folder / f"{name}.parquet", store_schema=False)
        for file in folders[rank % len(folders)].glob("*.parquet"):
            if file.stem not in numbered:
                os.link(file, folder / file.name)


def summarised(commands: Sequence[Sequence[str]]) -> None:
    """What reports of 10,000 ranks cost, once their summaries are there."""
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        lumos("ingest", *_BASES, "--corpus", few, "--workers", "1")
        lumos("report", "--view", "straggler", "--format", "csv", "--corpus", few)
        copied(few, _MANY, many)
        shutil.rmtree(few)
        first = lumos("report", "--view", "breakdown", "--format", "csv", "--corpus", many)
        claim(f"summaries of {_MANY:,} ranks, CPU", first.cpu_s, "s", 300)
        claim(f"summaries of {_MANY:,} ranks, peak", first.peak_mib, "MiB", 1536)
        for command in commands:
            cost = lumos(*command, "--corpus", many)
            claim(f"lumos-df {' '.join(command)}: {_MANY:,} ranks, CPU", cost.cpu_s, "s", 2)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        recorded(1, Path(folder) / "traces")
        measured(Path(folder) / "traces", Path(folder))  # kernels compiled
    table(f"`{_BASES[0].parent.name}`", _RECORDED_RANKS, recorded)
    table("an emulated GPT in training", _TRAINED_RANKS, trained)
    large_ranks()
    summarised(
        [
            *(["report", "--view", view, "--format", "csv"] for view in ("breakdown", "gpu_time", "straggler")),
            ["report"],
        ]
    )
    small_ranks()


if __name__ == "__main__":
    main()
