"""Another GPU with shapes and without: `python -m tests.bench.hidden_shapes [FOLDER]`, every shared job that has them.

The operators' shapes are hidden from the change, and what the GPU then works is held against what it does with them.
FOLDER keeps the corpora between runs.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import LumosError
from lumos_df.graph.job import groups
from lumos_df.structure.labelled_rows import Trace
from lumos_df.whatif.durations import kernel_times, unscaled
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.bench.whatif_settings import corpora

GPUS: Final = ("h100-sxm", "b200", "a100-sxm-80", "h200-sxm", "mi300x")
_KNOWN_PCT: Final = 30
"""Of jobs whose shapes leave more of the GPU's time untold nothing is to be held against."""


def _hidden(_trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.full(len(row), -1, np.int64)


def _answer(corpus: Path, trace: str, hardware: str) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] = estimate(corpus, parse([f"hardware={hardware}"]), trace=trace).to_pylist()[0]
    except LumosError:
        return None
    return row


def _untold_pct(row: dict[str, Any]) -> int:
    told = [text.split("%")[0].split()[-1] for text in row["warnings"] if "the work is not known" in text]
    return max(map(int, told), default=0)


def main(kept: Path | None) -> None:
    """Print every answer, and how far both are apart."""
    apart, inside = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for corpus in corpora(kept or Path(folder)):
            for traces in groups(corpus):
                for hardware in GPUS:
                    known = _answer(corpus, traces[0], hardware)
                    if known is None or _untold_pct(known) > _KNOWN_PCT:
                        continue
                    with patch.object(kernel_times, "shaped", _hidden), patch.object(unscaled, "shaped", _hidden):
                        told = _answer(corpus, traces[0], hardware)
                    if told is None:
                        continue
                    off = told["gpu_busy_ns"] / known["gpu_busy_ns"] - 1
                    holds = told["low_s"] < known["iteration_time_s"] < told["high_s"]
                    apart.append(abs(off))
                    inside += holds
                    print(f"{corpus.name:44} {hardware:12} GPU busy {off:+7.1%}  inside: {holds}", flush=True)
    if apart:
        half, most = np.percentile(apart, (50, 80))
        print(f"{len(apart)} answers: mean {np.mean(apart):.1%}, half {half:.1%}, 8 of 10 {most:.1%}; {inside} inside")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
