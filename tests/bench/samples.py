"""What is said of a job by some of its files: `python -m tests.bench.samples` prints the table of docs/scale.md.

Jobs of LUMOS_TRACES with four ranks and more, and emulated ones, are ingested whole and with `--sample` 4 and 2.
"""

import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumos_df import Corpus, ingest
from tests.emulator import Job, Profiler, megatron, simulate, write
from tests.real import SETS, jobs

COUNTS: Final = (4, 2)
_MIN_RANKS: Final = 4
_RANKS: Final = 8
_SHARES: Final = {
    "compute": "exposed_compute_pct",
    "overlapped": "overlapped_pct",
    "waiting": "exposed_waiting_pct",
    "transfer": "exposed_transfer_pct",
    "other": "other_pct",
}
_SLEEP_NS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said of a job by the files that were read."""

    files: int
    step_ms: float
    shares: tuple[float | None, ...]
    """Percent of the steps, as `_SHARES` names them; None where a wait is unknown."""
    advice: str
    """Rule of the first advice that is worth it, and its gain, percent of the step."""


def late(rank: int) -> Job:
    """Return an emulated data-parallel job, one of whose ranks sleeps in every step."""
    return Job(ranks=_RANKS, layers=2, steps=3, sleep_rank=rank, sleep_ns=_SLEEP_NS)


def emulated(folder: Path) -> list[Path]:
    """Write emulated jobs; return their folders."""
    told = Profiler(memory=False, stacks=False)
    staged = megatron.Megatron(tp=2, pp=4, dp=2, layers=8, micro_batches=8, steps=2, noise=True)
    write(megatron.simulate(staged), told, folder / "GPT, tp 2, pp 4, dp 2")
    for rank in (3, _RANKS - 1):
        write(simulate(late(rank)), told, folder / f"dp {_RANKS}, rank {rank} late")
    return sorted(folder.iterdir())


def answer(files: Path, corpus: Path, count: int | None) -> Answer:
    """Read a job, or some of its files, and ask."""
    result = ingest(files, corpus, sample=count, workers=1)
    assert not result.failed
    opened = Corpus(corpus)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worthwhile = opened.advise().filter("worthwhile").sort("place").to_dicts()
    (job,) = opened.jobs().to_dicts()
    first = f"{worthwhile[0]['rule']}, {worthwhile[0]['gain_pct']:.1f}" if worthwhile else "none"
    return Answer(len(result.done), job["mean_step_ns"] / 1e6, tuple(map(job.get, _SHARES.values())), first)


def rows(name: str, files: Path) -> Iterator[str]:
    """Give a row for the whole job, and one for each sample that is smaller."""
    whole: Answer | None = None
    for count in (None, *COUNTS):
        with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
            found = answer(files, Path(folder) / "corpus", count)
        if whole and found.files == whole.files:
            continue
        whole = whole or found
        step = f"{found.step_ms:.2f} ms"
        off = "" if found is whole else f" ({100 * (found.step_ms / whole.step_ms - 1):+.1f} %)"
        shares = " | ".join("-" if share is None else f"{share:.1f}" for share in found.shares)
        yield f"| {name} | {found.files} | {step}{off} | {shares} | {found.advice} |"


def main() -> None:
    """Print the table."""
    columns = ("job", "files", "mean step", *(f"{share} %" for share in _SHARES), "first advice, gain %")
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    with tempfile.TemporaryDirectory(prefix="lumos-df-bench-") as folder:
        recorded = [job for traces in SETS for job in jobs(traces) if len([*job.glob("*.json.gz")]) >= _MIN_RANKS]
        for files in [*recorded, *emulated(Path(folder))]:
            name = f"`{files.name}`" if files in recorded else f"emulated {files.name}"
            for row in rows(name, files):
                print(row, flush=True)


if __name__ == "__main__":
    main()
