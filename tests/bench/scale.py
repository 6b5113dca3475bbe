"""What many ranks cost: `python -m tests.bench.scale` prints the table of docs/scale.md, and a claim.

The ranks of a real job (LUMOS_TRACES; without it the generated sample) are given new numbers until there are as many as
wanted, each in a file of its own, and go through the commands with one worker. What 10,000 ranks cost is extrapolated:
the largest job measured, and for every rank more what a rank cost between the last two.
"""

import sys
import tempfile
from pathlib import Path

from lumos_df import connect
from tests.bench.__main__ import Cost, ingest, lumos
from tests.bench.inputs import repeat
from tests.bench.measure import claim
from tests.real import REAL

_ROOT = Path(__file__).parents[2]
_REAL = REAL / "megatron_tp8_forward"
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated"
_BASES = sorted((_REAL if _REAL.is_dir() else _SAMPLE).glob("rank*.json.gz"))
_SMALL = sorted(_SAMPLE.glob("rank*.json.gz"))
_RANKS = (16, 64, 256)
_MANY = 10_000
_SMALL_RANKS = 1024
_ONCE = 0.01
"""Megabytes that every rank exceeds, so that its events are written once."""


def job(bases: list[Path], ranks: int, folder: Path) -> None:
    """Write a file for each of so many ranks."""
    folder.mkdir()
    for rank in range(ranks):
        repeat(bases[rank % len(bases)], _ONCE, folder / f"rank{rank}.json", rank=rank)


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder, in 10^6 bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def measured(ranks: int, folder: Path) -> tuple[dict[str, Cost], dict[str, float]]:
    """Return what each command costs for so many ranks, and how large input, rows and corpus are."""
    traces, corpus, answers = folder / "traces", folder / "corpus", folder / "answers"
    job(_BASES, ranks, traces)
    query = "SELECT rank, step, exposed_communication_ns FROM breakdown"
    costs = {
        "`ingest`": lumos("ingest", traces, "--corpus", corpus, "--workers", "1"),
        "`replay`": lumos("replay", "--corpus", corpus, "--output", folder / "replay.parquet"),
        "`report --output`, all views": lumos("report", "--corpus", corpus, "--output", answers),
        "`report --html`": lumos("report", "--corpus", corpus, "--html", folder / "page.html"),
        "`sql`, one view": lumos("sql", query, "--corpus", corpus, "--output", folder / "rows.csv"),
    }
    with connect(corpus) as connection:
        counted = connection.execute("SELECT count(*), (SELECT count(*) FROM edges) FROM operators").fetchone()
    assert counted
    sizes = {
        "JSON, MB": megabytes(traces),
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


def line(what: str, values: list[float], digits: int) -> str:
    """Return a row: the values measured, the growth of a rank's cost, and the value extrapolated."""
    (low, middle, high), (least, between, most) = _RANKS, values
    before, last = (between - least) / (middle - low), (most - between) / (high - middle)
    growth = f"{last / before:.2f}" if before > 0 else "-"
    far = most + last * (_MANY - high)
    shown = [f"{value:,.{digits}f}" for value in values]
    return f"| {what} | {' | '.join(shown)} | {growth} | {far:,.0f} |"


def main() -> None:
    """Measure and print."""
    ingest(_BASES[:1])  # kernels compiled
    found = []
    for ranks in _RANKS:
        with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
            found.append(measured(ranks, Path(folder)))
        print(f"{ranks} ranks measured", file=sys.stderr)
    print(f"| ranks of `{_BASES[0].parent.name}` | {' | '.join(map(str, _RANKS))} | growth | {_MANY:,}, extrapolated |")
    print("|---" * (len(_RANKS) + 3) + "|")
    for name in found[0][1]:
        print(line(name, [sizes[name] for _, sizes in found], 0))
    for name in found[0][0]:
        print(line(f"{name}, CPU s", [costs[name].cpu_s for costs, _ in found], 1))
        print(line(f"{name}, peak MiB", [costs[name].peak_mib for costs, _ in found], 0))
    small_ranks()


if __name__ == "__main__":
    main()
