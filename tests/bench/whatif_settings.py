"""Every shared job under fifty settings: `python -m tests.bench.whatif --settings [FOLDER]`, counts by kind.

FOLDER keeps the corpora between runs. Nothing may end in a traceback, hold a NaN, echo the job without a word, have an
interval narrower than the job's own steps differ or that
begins below its operations at the peak, or take over five seconds.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from lumos_df.base.errors import LumosError
from lumos_df.graph.job import groups
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.real import SETS, jobs

SETTINGS: Final = (
    *("dp=1", "dp=2", "dp=4", "dp=8", "dp=16", "dp=1024", "tp=1", "tp=2", "tp=4", "tp=8", "pp=2", "pp=4 batch=8"),
    *("pp=2 schedule=gpipe", "pp=2 schedule=zb-h1", "pp=2 batch=8 vp=2 schedule=interleaved", "layers=1", "layers=4"),
    *("layers=64", "layers=41", "batch=1", "batch=2", "batch=8", "batch_scale=0.5", "batch_scale=2", "batch_scale=16"),
    *("micro_batch=1", "micro_batch=2", "micro_batch=64", "seq=128", "seq=4096", "hidden=256", "hidden=8192"),
    *("ffn=1024", "heads=4", "vocab=1000", "dtype=bf16", "dtype=float32", "dtype=fp8", "hardware=h200-sxm"),
    *("hardware=a100-sxm-80", "hardware=b200", "network=50e9", "network=1e9/1e-4", "network=h200-sxm", "overlap=on"),
    *("overlap=off", "dp=8 network=50e9", "hardware=b200 dtype=bf16 batch_scale=2", "layers=8 dp=2", "ep=2"),
)
_SLOW_S: Final = 5.0


def main(kept: Path | None) -> None:
    """Run them all and print the counts, and what must not be."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for corpus in corpora(kept or Path(folder)):
            ids = groups(corpus)
            for traces in ids:
                for setting in SETTINGS:
                    kinds = list(_kinds(corpus, traces[0], setting))
                    counts.update(kinds)
                    bad = [kind for kind in kinds if kind not in {"answered", "refused"}]
                    if bad:
                        print(f"  {corpus.name}: {setting}: {', '.join(bad)}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


def corpora(folder: Path) -> Iterator[Path]:
    for traces in SETS:
        for job in jobs(traces):
            corpus = folder / f"{traces.name}-{job.name}"
            if not corpus.exists():
                ingest([job], corpus, workers=1)
            yield corpus


def _is_narrow(rows: list[dict[str, Any]], rank: int) -> bool:
    """Return whether a rank's steps differ by more than an interval holds, or 8 of 10 by more than it reaches up.

    What came once is no part of the first, and takes as long in a changed job.
    """
    mine = [row for row in rows if row["rank"] == rank]
    usual = np.array([row["original_iteration_time_s"] for row in mine])
    with_it = usual + 1e-9 * np.array([row["left_out_ns"] for row in mine])
    step, start, end = np.array([[row[name] for name in ("iteration_time_s", "low_s", "high_s")] for row in mine]).T
    low, high = np.percentile(usual, (10, 90))
    spread = (high - low) / 2 / max(float(np.median(usual)), 1e-12)
    longer = np.percentile(with_it, 90) - high if len(mine) > 1 else 0.0
    return bool(((end - start) / 2 < 0.99 * spread * step).any() or (end - step < 0.99 * longer).any())


def _kinds(corpus: Path, trace: str, setting: str) -> Iterator[str]:
    start = time.process_time()
    try:
        rows = estimate(corpus, parse(setting.split()), trace=trace).to_pylist()
    except LumosError as error:
        yield "refused" if len(str(error).splitlines()) == 1 else "refused in several lines"
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
        yield f"traceback {type(error).__name__}: {error}"
        return
    yield "answered"
    if time.process_time() - start > _SLOW_S:
        yield f"slow {time.process_time() - start:.1f} s"
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    if not np.isfinite(numbers).all():
        yield "NaN"
    if all(_echoes(row) for row in rows) and not any("changes no" in text for text in rows[0]["warnings"]):
        yield "echo"
    if any(_is_narrow(rows, rank) for rank in {row["rank"] for row in rows}):
        yield "narrow"
    if any(row["low_s"] < 0.99 * (row["mfu_pct"] or 0.0) / 100 * row["iteration_time_s"] for row in rows):
        yield "below its operations at the peak"


def _echoes(row: dict[str, Any]) -> bool:
    names = ("step_ns", "gpu_busy_ns", "exposed_compute_ns", "overlapped_ns", "exposed_communication_ns", "other_ns")
    return all(row[name] == row[f"original_{name}"] for name in names)
