"""How long generated benchmarks take: `python -m tools.benchmark_fidelity FOLDER --python PYTHON`.

PYTHON, one with torch, trains nets of tools/record_plain.py under `lumos-df capture`, on a GPU where it sees one. Of
the fastest step of each recording a benchmark is generated and run, and its own trace is read as the recording was.
What the profiler costs is in both. Recordings and benchmarks take turns. A machine that does something else, too, makes
steps longer, and one that finds its memory mapped is shorter: the lower quartile of all stands for each.
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
from lumos_df.corpus import catalog
from lumos_df.generate.benchmark_folder import generate
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay
from lumos_df.trace.ingest import ingest

if TYPE_CHECKING:
    import duckdb

ROOT: Final = Path(__file__).parent.parent
NETS: Final = {
    "gpt": ((3, 128, 3, 96), 1),
    "mixer": ((3, 96, 10, 49), 1),
    "conv": ((3, 24, 10, 16), 1),
    "ddp": ((3, 128, 3, 96), 2),
}
"""Layers, width, batch and tokens of each net, and its ranks."""
_WARMUP: Final = 5
_RECORDED: Final = 10
_LARGEST: Final = 5
"""Families that are compared, those of the most time."""
_STEP: Final = "step"
_COUNT: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def compared(folder: Path, python: str, nets: list[str], rounds: int) -> pl.DataFrame:
    """Return what steps of recordings and benchmarks took, mean of ranks: net, job, step, what (step, a family), ms.

    Raises `LumosError` where a net or its benchmark does not run.
    """
    return pl.concat([_once(folder / f"{net}-{turn}", python, net) for turn in range(rounds) for net in nets])


def _once(folder: Path, python: str, net: str) -> pl.DataFrame:
    print(f"{folder.name}    ", end="\r", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    corpus, log = folder / "corpus", folder / "train.log"
    size, ranks = NETS[net]
    launch = [python, *((*_COUNT, str(ranks)) if ranks > 1 else ())]
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
        table = _times(connection)
    printed = json.loads(done.stdout)["step_ms"]
    alone = pl.DataFrame({"job": ["benchmark"], "step": [0], "what": ["step without the profiler"], "ms": [printed]})
    return pl.concat([table, alone.select(table.columns).cast({"step": pl.Int64})]).with_columns(
        pl.lit(net).alias("net")
    )


def _times(connection: "duckdb.DuckDBPyConnection") -> pl.DataFrame:
    """Return what every step and each family in it took, mean of the ranks: job, step, what, ms."""
    steps = connection.execute("SELECT trace_id, job, step, dur FROM step WHERE step IS NOT NULL").fetchall()
    return (
        pl.concat(
            _families(replay(RecordedRows.read(connection, trace_id, step)).calls, dur).with_columns(
                pl.lit(job).alias("job"), pl.lit(step, pl.Int64).alias("step")
            )
            for trace_id, job, step, dur in steps
        )
        .group_by("job", "step", "what")
        .agg(pl.col("ms").mean())
    )


def _families(calls: pl.DataFrame, step_ns: int) -> pl.DataFrame:
    amount = pl.when(pl.col("gpu_ns").sum() > 0).then(pl.col("gpu_ns")).otherwise(pl.col("host_ns"))
    families = calls.select(pl.col("family").alias("what"), amount.alias("ns")).group_by("what").agg(pl.col("ns").sum())
    whole = pl.DataFrame({"what": [_STEP], "ns": [step_ns]})
    return pl.concat([whole, families], how="vertical_relaxed").select("what", (pl.col("ns") * 1e-6).alias("ms"))


def summary(table: pl.DataFrame) -> pl.DataFrame:
    """Return the quartile of each net's step and largest families, ms, and the benchmark's error, percent."""
    typical = table.group_by("net", "what", "job").agg(pl.col("ms").quantile(0.25, "linear"))
    both = typical.pivot("job", index=["net", "what"], values="ms").with_columns(
        pl.when(pl.col("what") == "step without the profiler")
        .then(pl.col("recorded").filter(pl.col("what") == _STEP).first().over("net"))
        .otherwise("recorded")
        .alias("recorded")
    )
    order = pl.col("what").str.starts_with(_STEP)
    ranked = both.sort("net", order, "recorded", descending=[False, True, True])
    return (
        ranked.with_columns((~order).cum_sum().over("net").alias("place"))
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
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONPATH"] = str(ROOT)
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
