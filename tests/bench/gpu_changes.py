"""How far changed jobs are from runs of one GPU: `python -m tests.bench.gpu_changes FOLDER [--net NET ...]`.

FOLDER is what tools/record_changes.py made, or tests/recordings/h200/nets, which has the nets as they are and what
the others took without a profiler. Each net is asked for the settings of each other run of it, and where that run was
recorded, it for the net's own. One line a pair, what a summary counts behind it. The GPU's time is held against
recorded kernels, those that the recorded steps issued; the step against unprofiled ones; `inside` is that of the
unprofiled median and the share of recorded steps.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import LumosError
from lumos_df.capture.publish import read_metadata
from lumos_df.graph.job import Job, jobs
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import Settings, parse

_BASE: Final = "base"
_UNSAID: Final = {"gradient_accumulation": "1", "recompute": "none"}
"""What a net has of what its sizes do not say."""
_ERRORS: Final = ("step_pct", "profiled_pct", "gpu_pct", "memory_pct")
_FIGURES: Final = {
    **dict.fromkeys(("step_ms", "low_ms", "high_ms", "unprofiled_ms", "profiled_ms", *_ERRORS), pl.Float64),
    "inside": pl.Boolean,
    "inside_profiled": pl.Float64,
    "cause": pl.String,
    "refused": pl.String,
}


@dataclass(frozen=True)
class Measured:
    """What a run was: recorded steps (none where it was not recorded), ms, and without the profiler."""

    steps_ms: list[float]
    gpu_ms: float | None
    unprofiled_ms: float
    peak_bytes: int


def changes(folder: Path, corpus: Path, nets: list[str]) -> pl.DataFrame:
    """Return a row a pair of runs of a folder, which a corpus holds."""
    table = next(place / "runs.csv" for place in (folder, folder.parent) if (place / "runs.csv").exists())
    runs = pl.read_csv(table).filter(pl.col("change").str.contains(f"=|^{_BASE}$")).sort("net", maintain_order=True)
    ids = {job.name: job.trace_ids for job in jobs(corpus)}
    rows = []
    for (net,), of_net in runs.group_by("net", maintain_order=True):
        if nets and net not in nets:
            continue
        anchors = {
            change: load(corpus, ids[name], {})
            for change in of_net["change"]
            if (name := f"{net}--{change.replace(' ', '+')}") in ids
        }
        truths = {row["change"]: _measured(row, anchors.get(row["change"])) for row in of_net.to_dicts()}
        own = read_metadata(folder / f"{net}--{_BASE}" / "rank0.json.gz")
        for change in truths.keys() - {_BASE}:
            for before, after, said in _ways(change, own):
                if before in anchors:
                    pair = {"net": net, "change": change, "from": before, "set": " ".join(said)}
                    rows.append(pair | _answer(anchors[before], said, truths[after]))
    named = dict.fromkeys(("net", "change", "from", "set"), pl.String)
    return pl.DataFrame(rows, schema={**named, **_FIGURES}).sort("net", "change", pl.col("from") != _BASE)


def _ways(change: str, own: Any) -> Iterator[tuple[str, str, list[str]]]:
    """Give (from, to, settings) both ways. The GPT-2 of transformers has an FFN four times as wide as it is."""
    words = dict(word.split("=") for word in change.split())
    if own["net"] == "gpt2" and "hidden" in words:
        words["ffn"] = str(4 * int(words["hidden"]))
    yield _BASE, change, [f"{name}={value}" for name, value in words.items()]
    known = {**_UNSAID, "dtype": own["dtype"], "ffn": 4 * own["sizes"].get("hidden", 0), **own["sizes"]}
    yield change, _BASE, [f"{name}={known[name]}" for name in words]


def _measured(run: dict[str, Any], anchor: RecordedJob | None) -> Measured:
    rows = step_rows.rows(estimated(anchor, Settings())).to_pylist() if anchor else []
    steps = [row["original_step_ns"] * 1e-6 for row in rows]
    busy = _issued_ms(anchor.job, len(steps)) if anchor else None
    return Measured(steps, busy, run["median_ms"], run["peak_bytes"])


def _issued_ms(job: Job, steps: int) -> float:
    """Return how long the GPU works on what a step issues; a recorded one has what was issued before as well."""
    gpu, own = job.graphs[0].gpu, job.graphs[0].own
    return 1e-6 * float(own[gpu.row[gpu.call >= 0]].sum()) / steps


def _answer(anchor: RecordedJob, said: list[str], true: Measured) -> dict[str, Any]:
    try:
        changed = estimated(anchor, parse(said))
        rows = step_rows.rows(changed).to_pylist()
    except LumosError as error:
        return {"refused": str(error)}
    rows.sort(key=lambda row: row["step_ns"])
    row = rows[(len(rows) - 1) // 2]
    step, low, high = row["step_ns"] * 1e-6, 1e3 * row["low_s"], 1e3 * row["high_s"]
    answer = {"step_ms": step, "low_ms": low, "high_ms": high, "unprofiled_ms": true.unprofiled_ms}
    answer |= {"step_pct": _off(step, true.unprofiled_ms), "inside": low <= true.unprofiled_ms <= high}
    # What libraries hold beside the allocator is none of its peak.
    answer |= {"memory_pct": row["memory_gb"] and _off(1e9 * (row["memory_gb"] - row["reserve_gb"]), true.peak_bytes)}
    if true.gpu_ms:
        middle = median_low(true.steps_ms)
        inside = [low <= taken <= high for taken in true.steps_ms]
        answer |= {
            "profiled_ms": middle,
            "profiled_pct": _off(step, middle),
            "inside_profiled": sum(inside) / len(inside),
        }
        answer |= {"gpu_pct": _off(_issued_ms(changed.job, len(rows)), true.gpu_ms)}
    return {**answer, "cause": row["interval_from"]}


def _off(told: float, true: float) -> float:
    return 100 * (told / true - 1)


def summary(table: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return pairs, answers, mean and worst errors, %, and how many were inside, %, by a column, and of all."""
    absolute = [pl.col(name).abs() for name in _ERRORS]
    figures = [each for one in absolute for each in (one.mean().round(1), one.max().round(1).name.suffix("_worst"))]
    inside = [(pl.col(name).mean() * 100).round() for name in ("inside", "inside_profiled")]
    counts = [pl.len().alias("pairs"), pl.col("step_ms").count().alias("answered")]
    whole = pl.concat((table.with_columns(pl.lit(f"~ all, by {by}").alias(by)), table))
    return whole.group_by(by).agg(*counts, *figures, *inside).sort(by)


def main() -> None:
    """Print the pairs and their summaries."""
    parser = ArgumentParser("python -m tests.bench.gpu_changes", description=__doc__)
    parser.add_argument("folder", type=Path, help="recordings, a folder a run")
    parser.add_argument("--corpus", type=Path, help="one that has them already")
    parser.add_argument("--net", nargs="+", default=[], help="these nets alone")
    parser.add_argument("--output", type=Path, help="write the pairs here, too, as CSV")
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        corpus = given.corpus or Path(scratch)
        if given.corpus is None:
            wanted = [
                run for run in sorted(given.folder.iterdir()) if run.name.endswith(f"--{_BASE}") or "=" in run.name
            ]
            ingest([run for run in wanted if not given.net or run.name.partition("--")[0] in given.net], corpus)
        table = changes(given.folder, corpus, given.net)
    if given.output:
        table.write_csv(given.output)
    shown = table.with_columns(
        pl.col("change") + pl.when(pl.col("from") == _BASE).then(pl.lit("")).otherwise(pl.lit(", back"))
    )
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, float_precision=1, tbl_width_chars=220):
        print(shown.filter(pl.col("refused").is_null()).drop("from", "set", "refused"))
        for row in shown.filter(pl.col("refused").is_not_null()).to_dicts():
            print(f"{row['net']}: {row['change']}: refused: {row['refused']}")
        named = table.with_columns(pl.col("set").str.replace_all(r"=\S+", "").alias("setting"))
        print(summary(named, "setting"), summary(named, "net"), sep="\n")


if __name__ == "__main__":
    main()
