"""How far replays are from recordings: `python -m tests.bench.replays [JOB...]`, a line a rank of LUMOS_TRACES.

The worst step of each rank stands there: of its error, of its parts, of its unexplained time, of the starts of its
operators.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.job import build, groups
from lumos_df.graph.replayed_tables import path_columns, step_columns
from lumos_df.graph.rows import read
from lumos_df.schema import STEP_PARTS
from lumos_df.trace.ingest import ingest
from tests.bench.measure import claim
from tests.real import ABSENT, SETS, jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RankErrors:
    """The steps of one rank, percent of the recorded step [steps]."""

    name: str
    """Job and file."""
    error: NDArray[np.float64]
    """Of the replayed step; negative where it is shorter."""
    part: NDArray[np.float64]
    """Worst error of a part of the step's breakdown."""
    unexplained: NDArray[np.float64]
    """Time that no edge explains."""
    late_start: NDArray[np.float64]
    """99th percentile of the errors of the operators' starts."""
    host_share: NDArray[np.float64]
    """Host time on the critical path, as recorded, of the replayed step."""
    inferred: NDArray[np.bool_]
    """Whether anything on that path came by an inferred edge."""

    def __str__(self) -> str:
        """Return the worst step in one line."""
        worst = self.error[np.argmax(np.abs(self.error))]
        others = f"{self.part.max():8.2f} {self.unexplained.max():8.2f} {self.late_start.max():8.2f}"
        return f"{self.name:60.60} {len(self.error):4} {worst:8.2f} {others}"


def of_job(job: Path) -> Iterator[RankErrors]:
    """Replay a job's traces together."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        ingest([job], corpus, workers=1)
        yield from of_corpus(corpus)


def of_corpus(corpus: Path) -> Iterator[RankErrors]:
    """Replay every job of a corpus."""
    for ids in groups(corpus):
        job = build([read(corpus, trace_id) for trace_id in ids])
        played = job.replay()
        for replay, of_path in zip(played.replays, path_columns(job, played), strict=True):
            columns = step_columns(replay, []) | of_path
            whole = np.maximum(columns["recorded_ns"], 1)
            path = Path(replay.graph.rows.path)
            yield RankErrors(
                name=f"{path.parent.name}/{path.name.partition('.')[0]} rank {replay.graph.rows.rank}",
                error=100 * (columns["replayed_ns"] / whole - 1),
                part=100
                * np.max(
                    [
                        np.abs(columns[f"{part.name}_ns_replayed"] - columns[f"{part.name}_ns_recorded"]) / whole
                        for part in STEP_PARTS
                    ],
                    axis=0,
                ),
                unexplained=100 * columns["unexplained_ns"] / whole,
                late_start=100 * columns["start_error_p99_ns"] / whole,
                host_share=100 * columns["host_ns"] / np.maximum(columns["replayed_ns"], 1),
                inferred=columns["inferred_ns"] > 0,
            )


def summary(name: str, ranks: list[RankErrors]) -> None:
    """Print what the steps of several ranks come to."""
    error, unexplained, late = (
        np.concatenate([getattr(rank, column) for rank in ranks]) for column in ("error", "unexplained", "late_start")
    )
    print(f"{name}: {len(error)} steps, median |error| {np.median(np.abs(error)):.3f} %")
    host_share, inferred = (
        np.concatenate([getattr(rank, column) for rank in ranks]) for column in ("host_share", "inferred")
    )
    shares = {"at least 90 %": (90, np.inf), "50 to 90 %": (50, 90), "below 50 %": (-np.inf, 50)}
    for (share, (low, high)), guessed in product(shares.items(), (False, True)):
        some = np.abs(error)[(host_share >= low) & (host_share < high) & (inferred == guessed)]
        if len(some):
            which = f"host share {share}, {'with' if guessed else 'without'} inferred edges"
            print(f"{name}: {which}: {len(some)} steps, mean |error| {some.mean():.3f} %, worst {some.max():.2f} %")
    claim(f"{name}: mean |error| of a replayed step", float(np.abs(error).mean()), "%", 0.5)
    claim(f"{name}: worst |error|", float(np.abs(error).max()), "%", 3)
    claim(f"{name}: worst part of a step", max(float(rank.part.max()) for rank in ranks), "%", 3)
    claim(f"{name}: time that no edge explains, mean", float(unexplained.mean()), "%", 1)
    claim(f"{name}: start_error_p99, mean", float(late.mean()), "%", 1)


def main(chosen: list[str]) -> None:
    """Replay every job, or some by name, and print."""
    if not any(jobs(folder) for folder in SETS):
        print(f"replays: skipped, {ABSENT}")
        return
    print(f"{'rank':60} steps  worst %   part %  unexpl. %  start %")
    for folder in SETS:
        ranks: list[RankErrors] = []
        for job in jobs(folder):
            if chosen and job.name not in chosen:
                continue
            for rank in of_job(job):
                print(rank, flush=True)
                ranks.append(rank)
        if ranks:
            summary(folder.name, ranks)


if __name__ == "__main__":
    main(sys.argv[1:])
