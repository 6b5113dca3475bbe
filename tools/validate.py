"""Predict recorded runs of small nets from one another: `python -m tools.validate FOLDER --python PYTHON`.

PYTHON, one with torch, records examples/train_gpt.py on this machine's CPU at two layer counts, widths, batches and
sequences, the nets of tools/record_plain.py without names of modules, and where it sees a GPU the grid of
tools/record_grid.py. Each run then predicts each other one of its kind, from its
own trace alone, and the errors are printed, behind those of generated
benchmarks (tools/benchmark_fidelity.py). Runs that are there already are kept, also those of tests/recordings/grid.

A machine that does something else, too, only ever makes a step longer. So the runs are recorded in rounds, of each the
round with the fastest recorded step counts, and the fastest step of a run stands for it: recorded, predicted and
unprofiled. An interval says what a step takes, not the fastest of several: what counts is how many of the recorded
steps lie in that of the step of median length.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, permutations, product
from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df import connect
from lumos_df.base.errors import LumosError, QueryError
from lumos_df.capture.capture_settings import CaptureSettings
from lumos_df.capture.command import capture
from lumos_df.capture.publish import read_metadata
from lumos_df.graph.job import groups
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer.step_rows import rows
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import Settings, Sizes

ROOT: Final = Path(__file__).parent.parent
_NAME: Final = re.compile(r"l(\d+)_w(\d+)_b(\d+)_s(\d+)(?:_(\w+))?$")
_WITH_WIDTH: Final = ("ffn", "heads", "kv_heads")
"""What grows with a net's width."""
_HEAD_WIDTH: Final = 16
"""Of the runs on a CPU: no two sizes of theirs are alike, since a shape could not tell them apart."""
_RUNS: Final = (*((*size, 96) for size in product((2, 4), (128, 256), (3, 6))), (2, 128, 3, 192), (4, 256, 6, 192))
"""Layers, width, sequences, tokens of each."""
_ALONE: Final = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
_ALL: Final = "all of them"
_ROUNDS: Final = 3
_STEPS: Final = 30


@dataclass(frozen=True, order=True)
class Run:
    """What a run's name says of it."""

    kind: str
    layers: int
    width: int
    batch: int
    sequence: int

    @classmethod
    def of(cls, name: str) -> "Run | None":
        """Read the name of a run's folder; None for another."""
        match = _NAME.fullmatch(name)
        return cls(match[5] or "cpu", *(int(match[place]) for place in range(1, 5))) if match else None

    def settings(self, other: "Run", sizes: Sizes, its: Sizes) -> Settings:
        """Return the change that makes the other run, of which `its` are told, of this one, of which `sizes` are.

        A name may count other layers, or be of another width, than what is told of its run: what is told then changes
        as the name does. A wider layer has more heads, unless the other run is told to have as many.
        """
        names = {"layers": "layers", "width": "hidden", "batch": "micro_batch", "sequence": "seq"}
        numbers: dict[str, int] = {}
        for name, setting in names.items():
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others:
                numbers[setting] = round((getattr(sizes, setting) or mine) * others / mine)
        for setting in _WITH_WIDTH if other.width != self.width else ():
            if told := getattr(sizes, setting):
                # As many heads have to be said, else a wider layer gets more of them.
                stay = setting != "ffn" and sizes.heads == its.heads
                numbers[setting] = told if stay else round(told * other.width / self.width)
        return Settings(numbers=numbers)


def record(folder: Path, python: str) -> None:
    """Record the runs on the CPU that are not there yet; of the rounds of each the fastest stays."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(_ALONE)
    wanted = [size for size in _RUNS if not list((folder / _name(size)).glob("rank0.json.gz"))]
    for turn in range(_ROUNDS):
        for number, size in enumerate(wanted):
            print(f"round {turn + 1} of {_ROUNDS}, run {number + 1} of {len(wanted)}", end="\r", file=sys.stderr)
            once = folder / ".rounds" / f"{_name(size)}-{turn}"
            shutil.rmtree(once, ignore_errors=True)
            settings = CaptureSettings(str(once), warmup=3, steps=5, unprofiled=10)
            captured = capture(_command(python, size, folder / "example.log"), settings)
            if captured.status:
                lines = (folder / "example.log").read_text("utf-8", "replace").strip().splitlines()
                raise LumosError(
                    f"{_name(size)}: the example ended with {captured.status}: {lines[-1] if lines else ''}"
                )
    for size in wanted:
        files = sorted((folder / ".rounds").glob(f"{_name(size)}-*/rank0.json.gz"), key=_fastest)
        (folder / _name(size)).mkdir(parents=True, exist_ok=True)
        files[0].replace(folder / _name(size) / files[0].name)
    shutil.rmtree(folder / ".rounds", ignore_errors=True)


def _name(size: Sequence[int]) -> str:
    return "l{}_w{}_b{}_s{}".format(*size)


def _command(python: str, size: Sequence[int], log: Path) -> list[str]:
    layers, width, batch, sequence = size
    figures = {"layers": layers, "width": width, "heads": width // _HEAD_WIDTH, "batch": batch, "sequence": sequence}
    figures |= {"vocabulary": 2000, "steps": _STEPS}
    options = [word for name, value in figures.items() for word in (f"--{name}", str(value))]
    return ["sh", "-c", 'exec > "$0" 2>&1 "$@"', str(log), python, str(ROOT / "examples" / "train_gpt.py"), *options]


def _times(file: Path, name: str) -> list[int]:
    durations = read_metadata(file).get(name)
    return durations if isinstance(durations, list) else []


def _fastest(file: Path) -> int:
    return min(_times(file, "profiledNs"))


def predict(corpus: Path) -> pl.DataFrame:
    """Return one row for each pair of runs of a kind in a corpus."""
    anchors: dict[Run, RecordedJob] = {}
    unprofiled: dict[Run, float] = {}
    with connect(corpus) as connection:
        jobs = dict(connection.sql("SELECT trace_id, job FROM traces").fetchall())
        paths = dict(connection.sql("SELECT trace_id, path FROM traces").fetchall())
    for ids in groups(corpus):
        run = Run.of(jobs[ids[0]])
        if run:
            try:
                anchors[run] = _loaded(corpus, ids)
            except LumosError as refused:
                print(refused, file=sys.stderr)
                continue
            file = Path(paths[ids[0]])
            unprofiled[run] = min(_times(file, "unprofiledBeforeNs") + _times(file, "unprofiledAfterNs")) * 1e-6
    pairs = [
        {**line, "unprofiled_ms": unprofiled[after], "share": unprofiled[before] / line["from_ms"]}
        for _, runs in groupby(sorted(anchors), lambda run: run.kind)
        for before, after, line in _pairs(list(runs), anchors)
    ]
    error = 100 * (pl.col("predicted_ms") / pl.col("unprofiled_ms") - 1)
    # As the predicting run's own file says what the profiler cost there.
    corrected = 100 * (pl.col("predicted_ms") * pl.col("share") / pl.col("unprofiled_ms") - 1)
    table = pl.DataFrame(pairs).with_columns(
        error.alias("unprofiled_error_pct"), corrected.alias("corrected_error_pct")
    )
    return table.drop("share", "from_ms")


def _loaded(corpus: Path, ids: list[str]) -> RecordedJob:
    """Return a recorded job, told the layers that it asks for where only its user can say that they are layers."""
    job = load(corpus, ids, {})
    number, _ = job.about.ranks[0].structure.unlike
    return load(corpus, ids, {"layers": number}) if number else job


def _pairs(runs: list[Run], anchors: dict[Run, RecordedJob]) -> Iterator[tuple[Run, Run, dict[str, Any]]]:
    recorded = {run: _steps(anchors[run], Settings()).ms for run in runs}
    for before, after in permutations(runs, 2):
        settings = before.settings(after, anchors[before].sizes, anchors[after].sizes)
        answer = _steps(anchors[before], settings)
        step, truth = min(answer.ms, default=None), min(recorded[after])
        yield (
            before,
            after,
            {
                "kind": before.kind,
                "from": anchors[before].about.job,
                "to": anchors[after].about.job,
                "changed": "+".join(name for name in settings.numbers if name not in _WITH_WIDTH),
                "from_ms": min(recorded[before]),
                "recorded_ms": truth,
                "predicted_ms": step,
                "error_pct": None if step is None else 100 * (step / truth - 1),
                "inside": answer.share_inside(recorded[after]),
            },
        )


@dataclass(frozen=True)
class _Answer:
    """The steps of an estimate, ms, and the interval of that of median length; nothing of one that is refused."""

    ms: list[float]
    low: float
    high: float

    def share_inside(self, recorded: list[float]) -> float | None:
        """Return which share of some recorded steps, ms, lies in the interval; None of one that is refused."""
        return sum(self.low <= ms <= self.high for ms in recorded) / len(recorded) if self.ms else None


def _steps(anchor: RecordedJob, settings: Settings) -> _Answer:
    """Return the steps of a changed job."""
    try:
        answer = rows(estimated(anchor, settings)).sort_by("iteration_time_s").to_pylist()
    except QueryError as error:
        print(error, file=sys.stderr)
        return _Answer([], 0.0, 0.0)
    if settings:
        answer = [row for row in answer if not row["waits_unseen"]] or answer
    middle = answer[(len(answer) - 1) // 2]
    return _Answer([1e3 * row["iteration_time_s"] for row in answer], 1e3 * middle["low_s"], 1e3 * middle["high_s"])


def summary(table: pl.DataFrame) -> pl.DataFrame:
    """Return mean, median and worst error, %, by kind of net, and over all, and by what was changed."""
    counted = table.with_columns(pl.col("changed").str.count_matches("+", literal=True).alias("changes") + 1)
    single = counted.filter(pl.col("changes") == 1).with_columns(pl.col("changed").alias("what"))
    several = counted.filter(pl.col("changes") > 1).with_columns(pl.lit("several").alias("what"))
    absolute = pl.col("error_pct").abs()
    changed = pl.concat((single, several))
    kinds = (changed, changed.with_columns(pl.lit(_ALL).alias("kind"))) if table["kind"].n_unique() > 1 else (changed,)
    return (
        pl.concat(kinds)
        .group_by("kind", "what")
        .agg(
            pl.len().alias("pairs"),
            pl.col("error_pct").count().alias("answered"),
            absolute.mean().round(1).alias("mean_pct"),
            absolute.median().round(1).alias("median_pct"),
            absolute.max().round(1).alias("worst_pct"),
            (100 * pl.col("inside").mean()).round().alias("inside_pct"),
            pl.col("unprofiled_error_pct").abs().mean().round(1).alias("unprofiled_mean_pct"),
            pl.col("corrected_error_pct").abs().mean().round(1).alias("corrected_mean_pct"),
        )
        .sort(pl.col("kind") == _ALL, "kind", pl.col("what") == "several", "what")
    )


def main() -> int:
    """Record, predict, print; return 1 where it cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the runs and the corpus go")
    parser.add_argument("--python", required=True, help="a Python that has torch")
    options = parser.parse_args()
    folder: Path = options.folder
    look = [options.python, "-c", "import torch"]
    if subprocess.run(look, check=False, capture_output=True).returncode:  # noqa: S603 - the user's own
        print(f"{options.python} has no torch; make validate PYTHON_WITH_TORCH=/path/to/python3", file=sys.stderr)
        return 1
    subprocess.run([options.python, "-m", "tools.record_grid", str(folder / "gpu")], check=True, cwd=ROOT)  # noqa: S603 - as above
    plain = [options.python, "-m", "tools.record_plain", str(folder / "plain")]
    subprocess.run(plain, check=True, cwd=ROOT, env={**os.environ, **_ALONE})  # noqa: S603 - as above
    fidelity = ["-m", "tools.benchmark_fidelity", str(folder / "benchmarks"), "--python", options.python]
    subprocess.run([sys.executable, *fidelity], check=True, cwd=ROOT)  # noqa: S603 - as above
    try:
        record(folder / "cpu", options.python)
        corpus = folder / "corpus"
        shutil.rmtree(corpus, ignore_errors=True)
        folders = (folder / "cpu", folder / "plain", folder / "gpu", ROOT / "tests/recordings/grid")
        grids = [grid for grid in folders if grid.exists()]
        ingest(grids, corpus)
        table = predict(corpus)
    except LumosError as error:
        print(error, file=sys.stderr)
        return 1
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, float_precision=1, tbl_width_chars=200):
        print(table.drop("kind"))
        print(summary(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
