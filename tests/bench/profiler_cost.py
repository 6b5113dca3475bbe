"""By how much a profiler made steps longer, by how long the GPU stood still.

`python -m tests.bench.profiler_cost FOLDER`, of recordings that hold what steps took without it (`lumosCapture`), by
default those of tests/recordings. A step is as long as `estimate` has it: the GPU's where the host ran ahead.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from lumos_df import connect
from lumos_df.corpus.profiler_overhead import idle
from lumos_df.graph.gpu_pace import GpuPace
from lumos_df.graph.job import load
from lumos_df.graph.steps import steps
from lumos_df.trace.ingest import ingest

_RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
_EDGES: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of the time in which no kernel ran, between the lines that are printed."""


def measured(folder: Path) -> pl.DataFrame:
    """Return of each recording of a folder: job, share of the time that its GPU stood still, how much longer, %."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch)
        ingest([folder], corpus, workers=1)
        with connect(corpus) as connection:
            told = connection.sql("SELECT trace_id, job, unprofiled_ns FROM profiling_overhead").fetchall()
        rows = [
            (job, idle(corpus, trace_id), 100 * (_profiled_ns(corpus, trace_id) / unprofiled - 1))
            for trace_id, job, unprofiled in told
            if unprofiled
        ]
    return pl.DataFrame(rows, schema=["job", "idle", "longer_pct"], orient="row")


def _profiled_ns(corpus: Path, trace_id: str) -> float:
    graph = load(corpus, [trace_id]).graphs[0]
    marks = steps(graph.rows)
    pace = GpuPace.of(graph, marks)
    low, high = marks.low, marks.high
    if pace is not None:
        low, high = pace.windows(graph.rows.ts, graph.rows.end, low, high)
    return float(np.median(high - low))


def main() -> None:
    """Print the recordings, then a line for each range of idle time."""
    table = measured(Path(sys.argv[1]) if len(sys.argv) > 1 else _RECORDINGS).sort("idle")
    longer = pl.col("longer_pct")
    ranges = table.group_by(pl.col("idle").cut(_EDGES).alias("stood still"), maintain_order=True)
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, float_precision=2, fmt_str_lengths=60):
        print(table)
        for name, group in (
            ("by range", ranges),
            ("above a tenth", table.filter(pl.col("idle") > 0.1).group_by(pl.lit("all"))),
        ):
            print(name)
            print(
                group.agg(
                    pl.len().alias("recordings"),
                    longer.quantile(0.1).alias("a tenth below"),
                    longer.median().alias("in the middle"),
                    longer.quantile(0.9).alias("a tenth above"),
                )
            )


if __name__ == "__main__":
    main()
