"""How long generated benchmarks take: `python -m tools.benchmark_fidelity FOLDER --python PYTHON`.

PYTHON, one with torch, trains nets of tools/plain_nets.py under `lumos-df capture`, on a GPU where it sees one. Of
the fastest step of each recording a benchmark is generated and run, and its own trace is read as the recording was.
What the profiler costs is in both; without it, the steps that the capture timed beside those it recorded are compared
with those of the benchmark. Recordings and benchmarks take turns, each with its memory mapped beforehand
(tools/mapped_memory.py).

A machine that does something else, too, breaks into some call of nearly every step, and seldom into the same one. So
the lower quartile of each call, and of the time before it, over the steps of a round stands for it, and a step is the
sum of these; with a GPU, beside which the host goes on, it is the lower quartile of the steps. Of steps without the
profiler the median counts. A process may differ from another in all its steps: of the rounds the median counts.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from lumos_df.base.errors import LumosError
from lumos_df.capture.capture_settings import CaptureSettings
from lumos_df.capture.command import capture
from lumos_df.capture.publish import read_metadata
from lumos_df.corpus import catalog
from lumos_df.generate.benchmark_folder import generate
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay
from lumos_df.trace.ingest import ingest
from tools.mapped_memory import TUNABLES

if TYPE_CHECKING:
    import duckdb

ROOT: Final = Path(__file__).parent.parent
NETS: Final = {
    "gpt": ((3, 128, 3, 96), 1),
    "mixer": ((3, 96, 10, 49), 1),
    "conv": ((3, 24, 10, 16), 1),
    "ddp": ((3, 128, 3, 96), 2),
    "lstm": ((3, 192, 5, 40), 1),
    "vit": ((3, 128, 5, 40), 1),
    "resnet": ((3, 128, 5, 96), 1),
    "dlrm": ((3, 256, 300, 12), 1),
    "bf16": ((3, 128, 3, 96), 1),
}
"""Layers, width, batch and tokens of each net, and its ranks."""
_USUAL: Final = ("gpt", "mixer", "conv", "ddp")
"""Nets that are compared where none are named; on them the rules of benchmarks were made."""
_WARMUP: Final = 5
_RECORDED: Final = 10
_LARGEST: Final = 5
"""Families that are compared, those of the most time."""
_STEP, _BETWEEN, _ALONE = "step", "between calls", "step without the profiler"
_COUNT: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def compared(folder: Path, python: str, nets: list[str], rounds: int) -> pl.DataFrame:
    """Return each call of recordings and benchmarks: net, round, job, rank, what (a family), name, place, ns.

    `place` is a call's number among those of its name in the step; the time before it stands in a row of its own.
    Raises `LumosError` where a net or its benchmark does not run.
    """
    return pl.concat(
        _once(folder / f"{net}-{turn}", python, net).with_columns(pl.lit(turn).alias("round"))
        for turn in range(rounds)
        for net in nets
    )


def _once(folder: Path, python: str, net: str) -> pl.DataFrame:
    print(f"{folder.name}    ", end="\r", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    corpus, log = folder / "corpus", folder / "train.log"
    size, ranks = NETS[net]
    launch = [python, *((*_COUNT, str(ranks)) if ranks > 1 else ()), "-m", "tools.mapped_memory"]
    train = [*launch, "-m", "tools.train_plain", net, *map(str, size)]
    settings = CaptureSettings(str(folder / "recorded"), warmup=_WARMUP, steps=_RECORDED)
    captured = capture(["sh", "-c", 'exec > "$0" 2>&1 "$@"', str(log), *train], settings)
    if captured.status:
        raise LumosError(f"{net}: training ended with {captured.status}; see {log}")
    ingest([folder / "recorded"], corpus, job="recorded", workers=1)
    with catalog.connect(corpus) as connection:
        ((fastest,),) = connection.execute("SELECT arg_min(step, dur) FROM step WHERE step IS NOT NULL").fetchall()
    generate(corpus, folder / "benchmark", step=fastest)
    again = [
        *launch,
        str(folder / "benchmark" / "benchmark.py"),
        "--trace",
        str(folder / "again"),
        "--iterations",
        "10",
    ]
    done = subprocess.run(again, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
    if done.returncode:
        raise LumosError(f"{net}: its benchmark ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    (folder / "printed.json").write_text(done.stdout)
    ingest([folder / "again"], corpus, job="benchmark", workers=1)
    with catalog.connect(corpus) as connection:
        table = _calls(connection)
    printed = json.loads(done.stdout)["step_ms"]
    told = read_metadata(folder / "recorded" / "rank0.json.gz")
    times = [*_listed(told, "unprofiledBeforeNs"), *_listed(told, "unprofiledAfterNs")]
    alone = pl.DataFrame(
        [("recorded", ns) for ns in times] + [("benchmark", round(printed * 1e6))], schema=["job", "ns"], orient="row"
    ).with_columns(
        pl.lit(0, pl.Int32).alias("rank"),
        pl.lit(_ALONE).alias("what"),
        pl.lit("").alias("name"),
        pl.lit(0).alias("place"),
    )
    return pl.concat([table, alone.select(table.columns)], how="vertical_relaxed").with_columns(
        pl.lit(net).alias("net")
    )


def _listed(told: dict[str, object], name: str) -> list[int]:
    durations = told.get(name)
    return durations if isinstance(durations, list) else []


def _calls(connection: "duckdb.DuckDBPyConnection") -> pl.DataFrame:
    """Return the calls of every step, and the time before each: job, rank, what, name, place, ns."""
    steps = connection.execute("SELECT trace_id, job, rank, step FROM step WHERE step IS NOT NULL").fetchall()
    return pl.concat(
        _timed(RecordedRows.read(connection, trace_id, step)).with_columns(
            pl.lit(job).alias("job"), pl.lit(rank, pl.Int32).alias("rank")
        )
        for trace_id, job, rank, step in steps
    ).select("job", "rank", "what", "name", "place", "ns")


def _timed(rows: RecordedRows) -> pl.DataFrame:
    calls = replay(rows).calls
    amount = pl.when(pl.col("gpu_ns").sum() > 0).then(pl.col("gpu_ns")).otherwise(pl.col("host_ns"))
    ended = pl.col("end").cum_max().shift(1).fill_null(rows.start_ns)
    both = calls.sort("ts").select(
        pl.col("family").alias("what"),
        "name",
        pl.int_range(pl.len()).over("name").alias("place"),
        amount.alias("ns"),
        (pl.col("ts") - ended).clip(0).alias("before"),
    )
    if calls["gpu_ns"].sum():
        step = {"what": [_STEP], "name": [""], "place": [0], "ns": [rows.end_ns - rows.start_ns]}
        return pl.concat([both.drop("before"), pl.DataFrame(step)], how="vertical_relaxed")
    last = pl.DataFrame(
        {"name": [""], "place": [0], "ns": [rows.end_ns - int(calls["end"].to_numpy().max(initial=rows.start_ns))]}
    )
    between = pl.concat([both.select("name", "place", ns="before"), last]).with_columns(pl.lit(_BETWEEN).alias("what"))
    return pl.concat([both.drop("before"), between.select("what", "name", "place", "ns")], how="vertical_relaxed")


def summary(table: pl.DataFrame) -> pl.DataFrame:
    """Return what the step and the largest families of each net take, ms, and the error of the benchmark, percent.

    It is the median of the rounds of the mean of the ranks.
    """
    typical = (
        table.group_by("net", "round", "job", "rank", "what", "name", "place")
        .agg(
            # Of its steps without the profiler a benchmark tells the median.
            pl.when(pl.col("what").first() == _ALONE)
            .then(pl.col("ns").median())
            .otherwise(pl.col("ns").quantile(0.25, "linear")),
            pl.len().alias("seen"),
        )
        # A call that was broken into inside another operator than usual looks like one of another family.
        .filter(pl.col("seen") > pl.col("seen").max().over("net", "round", "job", "rank", pl.col("what") == _ALONE) / 2)
    )
    of_ranks = typical.group_by("net", "round", "job", "rank", "what").agg(pl.col("ns").sum())
    parts = of_ranks.filter(pl.col("what") != _ALONE, ~(pl.col("what") == _STEP).any().over("net"))
    whole = parts.group_by("net", "round", "job", "rank").agg(pl.col("ns").sum())
    whole = whole.with_columns(pl.lit(_STEP).alias("what"))
    of_ranks = pl.concat([of_ranks, whole.select(of_ranks.columns)])
    of_rounds = of_ranks.group_by("net", "round", "job", "what").agg((pl.col("ns") * 1e-6).mean().alias("ms"))
    both = of_rounds.group_by("net", "job", "what").agg(pl.col("ms").median())
    order = pl.col("what").is_in([_STEP, _ALONE, _BETWEEN])
    return (
        both.pivot("job", index=["net", "what"], values="ms")
        .sort("net", order, "recorded", descending=[False, True, True])
        .with_columns((~order).cum_sum().over("net").alias("place"))
        .filter(pl.col("place") <= _LARGEST)
        .select(
            "net",
            "what",
            "recorded",
            "benchmark",
            (100 * (pl.col("benchmark") / pl.col("recorded") - 1)).alias("error_pct"),
        )
    )


def main() -> int:
    """Record, generate, run, compare; print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where recordings and benchmarks go")
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(_USUAL))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.update(TUNABLES)
    try:
        table = compared(options.folder, options.python, options.nets, options.rounds)
    except LumosError as error:
        print(error, file=sys.stderr)
        return 1
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, float_precision=1, tbl_width_chars=100):
        print(summary(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
