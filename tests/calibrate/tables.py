"""Tables of runs with the columns of published_training_runs.csv."""

import csv
from collections.abc import Iterable
from pathlib import Path

RUN = {
    "source": "a paper",
    "gpu": "H100",
    "num_gpus": 16,
    "model": "Llama3 8B",
    "seq": 8192,
    "gbs": 128,
    "mbs": 1,
    "grad_accum": "",
    "tp": 2,
    "pp": 2,
    "vp": "",
    "dp": 4,
    "cp": "",
    "ep": "",
    "sp": "yes",
    "precision": "BF16",
    "recompute": "none",
    "zero_or_fsdp": "1",
    "framework": "NeMo",
    "task": "pretrain",
    "iteration_time_s": 10.0,
    "tokens_per_s_per_gpu": "",
    "memory_gb": 60.0,
    "notes": "",
}


def write(file: Path, rows: Iterable[dict[str, object]], without: str = "") -> Path:
    columns = [name for name in RUN if name != without]
    with file.open("w", newline="") as text:
        table = csv.DictWriter(text, columns, extrasaction="ignore")
        table.writeheader()
        table.writerows({**RUN, **row} for row in rows)
    return file
