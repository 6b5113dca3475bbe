"""What every threshold does to the errors: `python -m tests.bench.thresholds [THRESHOLD...]`, each halved and doubled.

The scores go to `docs/threshold_effects.json`, from which `make docs` makes the table. A THRESHOLD is the beginning of
a name as in `graph.host`; what was measured of the others stays, and only the scores that it may change are measured.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.bench import threshold_scores as scores
from tests.bench.threshold_scores import SAMPLES, SCORES, Measure, Scores
from tools.thresholds import EFFECTS, Threshold, thresholds

COMMAND: Final = "python -m tests.bench.thresholds"
INPUTS: Final = (
    f"the recorded traces of [graph.md](graph.md), the samples {' and '.join(SAMPLES)}, the emulated jobs of "
    "`tests/graph/test_truth.py` and `test_truth_recordings.py`, the literal ones of `test_waiting_calls.py` there, "
    "the made jobs of `tests/structure/test_made.py` and `tests/whatif/hosted.py`, the measured runs of LUMOS_TRUTH, "
    "emulated jobs of `tests/advice`, and noisy ones of `tests/bench/whatif_truth.py`"
)
JUDGED_BY: Final = {
    "structure": ("structures",),
    "graph.collective_instances": ("replays", "second replays", "matching"),
    "graph.edges.full_queue": ("replays", "second replays", "predictions", "queues"),
    "graph.gpu_clock": ("device clocks",),
    "graph.gains": ("gaining",),
    "graph.host_spread": ("intervals", "recorded intervals"),
    "graph.replay_warnings": ("warnings",),
    "graph": ("replays", "second replays", "predictions"),
    "whatif.durations.link_laws": ("intervals",),
    "whatif.durations.moved_law": ("intervals", "modelling"),
    "whatif.durations.transfers": ("intervals", "modelling"),
    "whatif.durations.kernel_times.MODELLED_ERROR": ("modelling",),
    "whatif.durations": ("changes",),
    "whatif.answer.step_flops": ("counting",),
    "whatif.answer.": ("intervals",),
    "whatif.pipeline": ("intervals",),
    "calibrate.nearest_shapes": ("kernels",),
    "calibrate.corpus_findings": ("kernels",),
    "calibrate.corrections": ("calibrations",),
    "advice": ("advising",),
}
"""What the thresholds of a part or module change."""


@contextmanager
def multiplied(threshold: Threshold, factor: float) -> Iterator[None]:
    """Multiply a threshold for a while; shares stay below 1, percentiles below 100."""
    module = import_module(f"lumos_df.{threshold.module}")
    before = getattr(module, threshold.name)
    most = {"share": 1, "probability": 1, "percentile": 100}.get(threshold.unit.split()[0], np.inf)
    setattr(module, threshold.name, type(before)(min(before * factor, most)))
    yield
    setattr(module, threshold.name, before)


def rounded(measured: Scores) -> Scores:
    """Return scores to a hundredth."""
    return {name: round(value, 2) for name, value in measured.items()}


def measures(folder: Path, kinds: set[str]) -> dict[str, Measure]:
    """Return what measures some kinds of scores, with its inputs made."""

    @cache
    def corpus() -> Path:
        return scores.corpus_of(folder)

    @cache
    def second() -> Path:
        return scores.second_of(folder)

    made: dict[str, Callable[[], Measure]] = {
        "replays": lambda: scores.replays(corpus()),
        "second replays": lambda: scores.replays(second(), "second "),
        "queues": lambda: scores.queues(folder / "queues"),
        "device clocks": lambda: scores.device_clocks(folder / "device clocks"),
        "predictions": lambda: scores.predictions(folder / "emulated"),
        "matching": lambda: scores.matching(folder / "clocks"),
        "warnings": lambda: scores.warnings(corpus()),
        "gaining": lambda: scores.gaining(corpus()),
        "structures": lambda: scores.structures(folder / "made", corpus()),
        "changes": lambda: scores.changes(folder / "changed"),
        "intervals": lambda: scores.intervals(folder / "noisy"),
        "recorded intervals": scores.recorded_intervals,
        "modelling": lambda: scores.modelling(folder / "modelled"),
        "counting": lambda: scores.counting([corpus(), second()]),
        "kernels": lambda: scores.kernels(folder / "kernels"),
        "calibrations": scores.calibrations,
        "advising": lambda: scores.advising(folder / "advised"),
    }
    return {kind: make() for kind, make in made.items() if kind in kinds}


def judged_by(threshold: Threshold) -> tuple[str, ...]:
    """Return which measures a threshold may change; none for a part that is not measured."""
    return next((names for start, names in JUDGED_BY.items() if threshold.key.startswith(start)), ())


def main() -> None:
    """Measure, print and write."""
    chosen = [
        threshold
        for threshold in thresholds()
        if judged_by(threshold) and threshold.key.startswith(tuple(sys.argv[1:]) or "")
    ]
    effects: dict[str, Any] = {"scores": {}, "thresholds": {}}
    if EFFECTS.exists():
        effects |= json.loads(EFFECTS.read_text("utf-8"))
    known = {threshold.key for threshold in thresholds()}
    effects["thresholds"] = {key: effect for key, effect in effects["thresholds"].items() if key in known}
    with tempfile.TemporaryDirectory() as folder:
        measure = measures(Path(folder), {kind for threshold in chosen for kind in judged_by(threshold)})
        whole: dict[str, float] = {}
        for kind, scored in measure.items():
            usual = rounded(scored())
            print(f"{kind} as it is: {usual}", flush=True)
            whole |= usual
        effects |= {"command": COMMAND, "inputs": INPUTS}
        effects["scores"] |= {
            name: {"value": value, "unit": SCORES[name].unit, "what": SCORES[name].what}
            for name, value in whole.items()
        }
        for threshold in chosen:
            effect: dict[str, Any] = {"value": threshold.value}
            for factor, word in ((0.5, "half"), (2.0, "double")):
                with multiplied(threshold, factor):
                    changed = {
                        name: value for kind in judged_by(threshold) for name, value in rounded(measure[kind]()).items()
                    }
                effect[word] = {name: value for name, value in changed.items() if value != whole[name]}
            effects["thresholds"][threshold.key] = effect
            print(f"{threshold.key}: {effect}", flush=True)
            EFFECTS.write_text(json.dumps(effects, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
