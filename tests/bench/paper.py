"""The paper's experiments on emulated jobs: from one trace to plans and models that it did not run.

    python -m tests.bench.paper [--noise] [--small]

A GPT of 15 billion parameters is recorded on 2 x 2 x 4 ranks (tensor, pipeline, data parallel) of the emulator. Each
target is predicted from these traces alone, and then run on the emulator. Aims: iteration time within 2 % on average
and 4 % at worst, each part of the breakdown within 4 % of the step.
"""

import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema import STEP_PARTS
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.bench.measure import claim
from tests.emulator import Profiler, write
from tests.emulator.megatron import Megatron, simulate
from tests.emulator.truth import StepTruth

_MOST_RANKS: Final = 32
"""With noise every rank of a target runs, and they have to fit into memory."""
Target: TypeAlias = dict[str, Any]
"""What becomes of the base: fields of `Megatron`."""
PARTS: Final = tuple(part.name for part in STEP_PARTS)
BASE: Final = Megatron(tp=2, pp=2, dp=4, layers=48, hidden=6144, ffn=12288, heads=48)
SMALL: Final = Megatron(tp=2, pp=2, dp=2, layers=8, hidden=4096, ffn=8192, heads=32)
_FULL_TARGETS: Final[tuple[Target, ...]] = (
    {},
    {"dp": 8},
    {"dp": 16},
    {"dp": 32},
    {"pp": 4, "micro_batches": 8},
    {"pp": 8, "micro_batches": 16},
    {"pp": 16, "micro_batches": 32},
    {"pp": 4, "micro_batches": 8, "dp": 8},
    {"pp": 8, "micro_batches": 16, "dp": 8},
    {"pp": 4, "micro_batches": 8, "dp": 16},
    {"tp": 4},
    {"tp": 8},
    {"layers": 64},
    {"layers": 96},
    {"hidden": 9216},
    {"hidden": 12288},
    {"ffn": 24576},
    {"hidden": 12288, "ffn": 24576},
)
SMALL_TARGETS: Final[tuple[Target, ...]] = (
    {"dp": 4},
    {"pp": 4, "micro_batches": 8},
    {"pp": 4, "micro_batches": 8, "dp": 4},
    {"tp": 4},
    {"layers": 16},
    {"hidden": 6144},
    {"ffn": 16384},
)


@dataclass(frozen=True, slots=True)
class Result:
    """A target, and what came of it."""

    target: str
    true_ms: float
    predicted_ms: float
    parts: tuple[float, ...]
    """Predicted less true, by `PARTS`, in per cent of the true step: of the rank that is furthest off."""
    seconds: float
    """That the prediction took."""

    @property
    def error(self) -> float:
        """Return the error of the iteration time, per cent."""
        return 100 * (self.predicted_ms / self.true_ms - 1)

    @property
    def worst_part(self) -> float:
        """Return the largest error of a part."""
        return max(map(abs, self.parts))


def record(job: Megatron, folder: Path) -> Path:
    """Run a job, write its traces, and return their corpus."""
    write(simulate(job), Profiler(memory=False, stacks=False), folder / "job")
    if failed := ingest([folder / "job"], folder / "corpus", workers=1).failed:
        sys.exit(str(failed))
    return folder / "corpus"


def compare(base: Megatron, corpus: Path, target: Target) -> Result:
    """Predict a target from the corpus of a base job, and run it."""
    settings = parse([f"{'batch' if name == 'micro_batches' else name}={value}" for name, value in target.items()])
    start = time.perf_counter()
    found = estimate(corpus, settings).to_pylist()
    seconds = time.perf_counter() - start
    heads = base.heads * target.get("hidden", base.hidden) // base.hidden
    job = replace(base, **target, heads=heads, one_replica=not base.noise)
    steps = simulate(job).steps
    true = {stage: _mean([one for one in steps if job.place(one.rank)[2] == stage]) for stage in range(job.pp)}
    # The ranks of an estimate come stage by stage.
    ranks = sorted({row["rank"] for row in found})
    each = len(ranks) // job.pp
    predicted = {
        stage: np.mean(
            [
                [row["step_ns"], *(row[f"{part}_ns"] for part in PARTS)]
                for row in found
                if row["rank"] in ranks[stage * each : (stage + 1) * each]
            ],
            axis=0,
        )
        for stage in range(job.pp)
    }
    whole = max(one[0] for one in true.values())
    apart = {stage: 100 * (predicted[stage] - true[stage])[1:] / whole for stage in true}
    worst = max(apart.values(), key=lambda parts: float(np.abs(parts).max()))
    name = " ".join(f"{key}={value}" for key, value in target.items()) or "unchanged"
    step = max(one[0] for one in predicted.values())
    return Result(name, whole * 1e-6, step * 1e-6, tuple(worst.tolist()), seconds)


def _mean(steps: list[StepTruth]) -> NDArray[np.float64]:
    rows = [
        (
            step.step_ns,
            step.exposed_compute_ns,
            step.overlapped_ns,
            step.exposed_communication_ns,
            step.memory_ns + step.idle_ns,
        )
        for step in steps
    ]
    mean: NDArray[np.float64] = np.array(rows, np.float64).mean(axis=0)
    return mean


def main() -> None:
    """Print the table."""
    parser = ArgumentParser("python -m tests.bench.paper")
    parser.add_argument("--noise", action="store_true", help="emulate with noise")
    parser.add_argument("--small", action="store_true", help="a small job and few targets")
    given = parser.parse_args()
    base, targets = (SMALL, SMALL_TARGETS) if given.small else (BASE, _FULL_TARGETS)
    base = replace(base, noise=given.noise)
    columns = "".join(f"{part:>22}" for part in PARTS)
    print(f"{'target':28}{'true ms':>10}{'predicted':>10}{'error %':>9}{columns}{'took s':>8}")
    results = []
    with TemporaryDirectory() as folder:
        corpus = record(base, Path(folder))
        for target in targets:
            if base.noise and replace(base, **target).ranks > _MOST_RANKS:
                continue
            one = compare(base, corpus, target)
            results.append(one)
            parts = "".join(f"{part:22.2f}" for part in one.parts)
            numbers = f"{one.true_ms:10.2f}{one.predicted_ms:10.2f}{one.error:9.2f}{parts}{one.seconds:8.1f}"
            print(f"{one.target:28}{numbers}", flush=True)
    errors = [abs(one.error) for one in results if one.target != "unchanged"]
    part = max(one.worst_part for one in results)
    of = f"{'noisy ' * base.noise}emulated targets, iteration time"
    claim(f"{len(errors)} {of}: mean |error|", float(np.mean(errors)), "%", 2)
    claim(f"{len(errors)} {of}: worst |error|", max(errors), "%", 4)
    claim("their exposed compute, overlap, exposed communication, other: worst", part, "%", 4)


if __name__ == "__main__":
    main()
