"""Jobs recorded on an H100 told of an H200, and back: `python -m tests.bench.other_gpu`, two lines a job.

Of each kind of kernel (its name, and its operator's name and shapes) that both recordings have, as many as the fewer:
what the GPU works with them, as told from the median of the one and as recorded in the other.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.graph.job import groups
from lumos_df.schema.words import FAMILIES
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.durations.kernel_times import shaped
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import Settings, parse

_RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
_GPUS: Final = ("h100-sxm", "h200-sxm")
_BOTH: Final = {"plain": "h200/nets", "captured": "h200/nets", "grid": "h200/grid"}
"""Folders of an H100's recordings, and that of the same programs on an H200."""
_KIND: Final = ("kernel", "operator", "shapes")


@dataclass(frozen=True, slots=True)
class Pair:
    """A job told of another GPU; ms of the GPU with kernels that both runs have, of all steps."""

    name: str
    to: str
    before: float
    told: float
    true: float
    low: float
    high: float
    steps: list[float]
    """As recorded there, ms."""
    families: pl.DataFrame

    @property
    def error_pct(self) -> float:
        """How far off the GPU's time is."""
        return 100 * (self.told / self.true - 1)

    @property
    def inside(self) -> float:
        """Which share of the recorded steps the interval holds."""
        return float(np.mean([self.low <= step <= self.high for step in self.steps]))

    def __str__(self) -> str:
        """Return it as one line."""
        gpu = f"{self.before:8.2f} -> {self.told:8.2f} true {self.true:8.2f} {self.error_pct:+6.1f} %"
        steps = f"step {self.low:.1f} to {self.high:.1f} true {np.median(self.steps):.1f}, inside {self.inside:.2f}"
        return f"{self.name:36} {self.to:9} {gpu}  {steps}"


def pairs(only: str = "") -> Iterator[Pair]:
    """Give the pairs of the recordings, or those of the job of one name, both ways."""
    for one, other in _BOTH.items():
        for folder in sorted((_RECORDINGS / one).glob(only or "*")):
            same = _RECORDINGS / other / folder.name
            if same.is_dir():
                with tempfile.TemporaryDirectory() as corpus:
                    was, will = (_job(files, Path(corpus) / str(place)) for place, files in enumerate((folder, same)))
                    yield _pair(f"{one}/{folder.name}", was, will, _GPUS[1])
                    yield _pair(f"{one}/{folder.name}", will, was, _GPUS[0])


def _job(folder: Path, corpus: Path) -> RecordedJob:
    ingest([folder], corpus, workers=1)
    (ids,) = groups(corpus)
    return load(corpus, ids, {})


def _pair(name: str, was: RecordedJob, will: RecordedJob, to: str) -> Pair:
    changed = estimated(was, parse([f"hardware={to}"]))
    rows = step_rows.rows(changed).sort_by("iteration_time_s").to_pylist()
    middle = rows[(len(rows) - 1) // 2]
    told = _kernels(was, changed.times[0].own)
    both = told.join(_kernels(will, will.job.graphs[0].own), on=_KIND, suffix="_true")
    count = pl.min_horizontal("count", "count_true")
    sums = both.with_columns((pl.col("recorded", "changed", "changed_true") * count * 1e-6).name.keep())
    before, after, true = (float(sums[column].to_numpy().sum()) for column in ("recorded", "changed", "changed_true"))
    steps = [1e3 * row["iteration_time_s"] for row in step_rows.rows(estimated(will, Settings())).to_pylist()]
    families = sums.group_by("family").agg(pl.sum("recorded", "changed", "changed_true"))
    return Pair(name, to, before, after, true, 1e3 * middle["low_s"], 1e3 * middle["high_s"], steps, families)


def _kernels(job: RecordedJob, changed: NDArray[np.int64]) -> pl.DataFrame:
    """Return of each kind of kernel how many there are, and the median of what they took and take, ns."""
    rows, trace = job.job.graphs[0].rows, job.about.ranks[0].trace
    row = np.flatnonzero(rows.on_gpu).astype(np.int32)
    # The last is that of no operator.
    names, shapes = np.array([*rows.names, ""], object), np.array([*trace.dims.words, ""], object)
    operator = shaped(trace, row)
    frame = pl.DataFrame(
        {
            "kernel": names[rows.name[row]],
            "operator": names[np.where(operator >= 0, rows.name[operator], -1)],
            "shapes": shapes[np.where(operator >= 0, trace.dims.code[operator], -1)],
            "family": rows.family[row],
            "recorded": rows.dur[row],
            "changed": changed[row],
        },
        schema_overrides=dict.fromkeys(_KIND, pl.String),
    )
    return frame.group_by(_KIND).agg(pl.len().alias("count"), pl.first("family"), pl.median("recorded", "changed"))


def main() -> None:
    """Print every pair, what they come to, and the families of kernels."""
    told: list[Pair] = []
    for pair in pairs(*sys.argv[1:2]):
        print(pair, flush=True)
        told.append(pair)
    errors = np.abs([pair.error_pct for pair in told])
    print(f"GPU: mean {errors.mean():.1f} % worst {errors.max():.1f} %; inside {np.mean([p.inside for p in told]):.2f}")
    for to in reversed(_GPUS):
        families = pl.concat([pair.families for pair in told if pair.to == to])
        for family, before, after, true in families.group_by("family").sum().sort("recorded", descending=True).rows():
            times = f"{before:8.2f} -> {after:8.2f} true {true:8.2f} {100 * (after / true - 1):+6.1f} %"
            print(f"{FAMILIES[family]:20} {to:9} {times}")


if __name__ == "__main__":
    main()
