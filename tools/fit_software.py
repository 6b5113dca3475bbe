"""Fit software profiles to measured runs: `python -m tools.fit_software --truth DIR [--software NAME] [--dry-run]`.

Prints the error before, after, and on runs that the fit did not see (by group of runs), and writes the figures into
data/software/<name>.toml, whose comments stay, and those of GPUs into data/hardware.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import LumosError
from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.levenberg_marquardt import minimum, soften
from lumos_df.calibrate.measured_runs import MeasuredRuns, read
from lumos_df.calibrate.population import Prior
from lumos_df.model.fitted import GemmParameters, place_of_factor
from lumos_df.model.hardware import Hardware
from lumos_df.model.library import data_folder, names
from lumos_df.schema.dtypes import PRECISIONS

Array = NDArray[np.float64]

FOLDS: Final = 5

NOISE: Final = 0.05
"""Spread of the logarithm of a run's time: what a prior is weighed against."""

KNEE: Final = 0.1
"""Logarithm of the ratio beyond which a run counts as odd."""


@dataclass(frozen=True)
class Profile:
    """What is fitted of a software, and to what."""

    runs: Mapping[str, float]
    """Sets of measured runs, and the weight of a run of theirs."""
    figures: Mapping[str, Prior]
    """By figure: a column of SOFTWARE_COLUMNS, or `gemm@GPU@PRECISION`, the `training_factor` of a GPU or
    of a generation."""
    broken: str = ""
    """The set with runs that broke down, too, where slow messages are counted."""


_KERNELS: Final = {
    "passes": Prior(2.2, 0.4, low=1.0),
    "compute_factor": Prior(1.05, 0.1),
}

_NEMO: Final = {
    **_KERNELS,
    "tp_hidden": Prior(0.7, 0.3, high=1.0),
    "slowdown": Prior(0.1),
    "expert_factor": Prior(1.3, 0.3),
    "network_share": Prior(0.7, 0.3, high=1.0),
    "scan_passes": Prior(3.0, 0.5, low=1.0),
}

PROFILES: Final = {
    "vtrain": Profile(
        {"vtrain_single": 1.0},
        {
            "launch_s": Prior(20e-6),
            "backward_launch_s": Prior(15e-6),
            "micro_batch_s": Prior(2e-3),
            "step_s": Prior(5e-3),
            "compute_factor": _KERNELS["compute_factor"],
            "memory_factor": Prior(1.0, 0.3),
            "collective_s": Prior(40e-6),
            "skew_s": Prior(4e-5, 1.0),
            "layer_step_s": Prior(1e-4),
            "send_s": Prior(3e-4),
            "run_ahead": Prior(4.0, low=1.0),
        },
    ),
    "megatron-deepspeed": Profile(
        {"vtrain_multi": 1.0},
        {
            **_KERNELS,
            "run_ahead": Prior(4.0, low=1.0),
            "network_share": Prior(0.5, 0.5, high=1.0),
        },
    ),
    "nanotron": Profile(
        {"playbook_h100_runs": 1.0},
        {
            **_KERNELS,
            "micro_batch_s": Prior(2e-3),
            "step_s": Prior(5e-3),
            "collective_s": Prior(300e-6),
            "hop_s": Prior(3e-4),
            "layer_step_s": Prior(5e-4),
            "send_s": Prior(3e-4),
            "run_ahead": Prior(6.0, low=1.0),
            "tp_hidden": Prior(0.3, high=1.0),
            "optimizer_traffic": Prior(60.0, 0.3),
            "network_share": Prior(0.5, 0.5, high=1.0),
        },
        broken="playbook_h100_runs_all",
    ),
    "megatron-2021": Profile({"korthikanti": 2.0, "published_training_runs": 1.0}, {**_KERNELS}),
    "llm-foundry": Profile(
        {"published_training_runs": 1.0},
        {**_KERNELS, "step_s": Prior(5e-3), "slowdown": Prior(0.2)},
    ),
    "torchtitan": Profile(
        {"published_training_runs": 1.0}, {**_KERNELS, "step_s": Prior(10e-3), "slowdown": Prior(0.1)}
    ),
    "nemo": Profile(
        {"mlperf": 3.0, "published_training_runs": 1.0},
        {
            **_NEMO,
            "routing_s": Prior(5e-4, 1.0),
            # Around their generation's; other GPUs and precisions have fewer than five runs.
            **{f"gemm@{gpu}@fp8": Prior(1.0, 0.1) for gpu in ("b200", "b300", "gb200", "gb300")},
            "gemm@blackwell@fp4": Prior(1.3, 0.2),
        },
    ),
    "nemo-26.06": Profile({"published_training_runs": 1.0}, {**_NEMO, "attention_factor": Prior(0.9, 0.2)}),
}
"""The profiles that measured runs say something about. Priors are of the order that profilers show."""


_ALIKE: Final = {"nemo": ("megatron",), "torchtitan": ("torchtitan-2025.04",)}
"""Profiles of the same software that differ in what they overlap or hold or in their loss, not in what is fitted."""


@dataclass(frozen=True)
class Fit:
    """Runs of one software, and the figures that may change."""

    software: str
    """Name of the profile."""
    figures: Mapping[str, Prior]
    """By name."""
    runs: tuple[MeasuredRuns, ...]
    """A part a set."""
    weights: tuple[float, ...]
    """A run of each."""

    def estimate(self, truth: MeasuredRuns, values: Mapping[str, float]) -> Array:
        """Return the seconds of a step [n] with other values of the figures."""
        hardware, software = truth.hardware.copy(), truth.software.copy()
        alike = (self.software, *_ALIKE.get(self.software, ()))
        rows = [place for place, name in enumerate(truth.software_names) if name in alike]
        for name, value in values.items():
            figure, *where = name.split("@")
            if where:
                gpus = [place for place, gpu in enumerate(truth.hardware_names) if gpu in _gpus(where[0])]
                hardware["gemm"][gpus, PRECISIONS.index(where[1]), place_of_factor(GemmParameters)] = value
            else:
                software[figure][rows] = value
        return truth.estimate(hardware, software)[:, 0]

    def solve(self, rows: tuple[NDArray[np.int64], ...] | None = None) -> dict[str, float]:
        """Return the most likely figures, by `rows` of each part or by all."""
        parts = self.runs if rows is None else [each.take(some) for each, some in zip(self.runs, rows, strict=True)]
        spread = np.array([prior.spread for prior in self.figures.values()])

        def residuals(place: Array) -> Array:
            values = self.values(place * spread)
            off = [
                soften(np.log(self.estimate(part, values) / part.measured_s), KNEE) / NOISE * np.sqrt(weight)
                for part, weight in zip(parts, self.weights, strict=True)
            ]
            return np.concatenate([*off, place])

        return self.values(minimum(residuals, np.zeros(len(spread))) * spread)

    def values(self, logs: Array) -> dict[str, float]:
        """Return the figures whose logarithms are `logs` away from the priors' values."""
        return {
            name: float(np.clip(prior.value * np.exp(log), prior.low, prior.high))
            for (name, prior), log in zip(self.figures.items(), logs, strict=True)
        }

    def left_out(self) -> list[Array]:
        """Return the seconds of each part's runs, each by a fit to the runs of other groups."""
        estimated = [np.empty(len(part)) for part in self.runs]
        for fold in range(FOLDS):
            out = [part.group % FOLDS == fold for part in self.runs]
            values = self.solve(tuple(np.flatnonzero(~each) for each in out))
            for seconds, part, each in zip(estimated, self.runs, out, strict=True):
                if each.any():
                    seconds[each] = self.estimate(part.take(np.flatnonzero(each)), values)
        return estimated


def load(name: str, truth: Path) -> Fit:
    """Return the runs of a profile that are in a folder. Raises `LumosError` for files that do not read."""
    profile = PROFILES[name]
    parts, weights = [], []
    for wanted, weight in profile.runs.items():
        dataset = Dataset.read(wanted)
        runs = read(dataset, truth / dataset.file)
        alike = np.isin(runs.software_names, (name, *_ALIKE.get(name, ())))
        if alike.any():
            parts.append(runs.take(np.flatnonzero(alike[runs.plans["software"]])))
            weights.append(weight)
    return Fit(name, profile.figures, tuple(parts), tuple(weights))


def error(seconds: Array, truth: MeasuredRuns) -> str:
    """Return runs, mean, median and 90th percentile of the error and the bias, in percent, as one line."""
    ratio = seconds / truth.measured_s - 1.0
    off = 100.0 * np.abs(ratio)
    return (
        f"{truth.dataset.name:24} runs {len(off):4}  mean {off.mean():5.1f} %  median {np.median(off):5.1f} %  "
        f"p90 {np.quantile(off, 0.9):5.1f} %  bias {100.0 * ratio.mean():+5.1f} %"
    )


def rewritten(text: str, values: Mapping[str, float]) -> str:
    """Return a profile's text with other values, and everything else as it was. Raises `KeyError` for a lacking one."""
    for name, value in values.items():
        text, replaced = re.subn(rf"(?m)^{name} = \S+", f"{name} = {value:.4g}", text)
        if not replaced:
            raise KeyError(name)
    return text


def ends(parts: tuple[MeasuredRuns, ...], unseen: list[Array]) -> dict[str, float]:
    """Return the ends of the interval that 8 of 10 runs are within whose seconds [n] a fit to others foretold.

    Of runs without experts where there are any; `expert_spread` is what the others are further apart.
    """
    ratio = np.concatenate([part.measured_s / seconds for part, seconds in zip(parts, unseen, strict=True)])
    routed = np.concatenate([part.models["experts"][part.model_of] > 0 for part in parts])
    low, high = np.quantile(ratio[~routed], (0.1, 0.9)).tolist()
    spread = 0.0
    if routed.any():
        square = np.quantile(np.abs(np.log(ratio[routed])), 0.8) ** 2 - np.log(low) ** 2
        spread = float(np.sqrt(max(square, 0.0)))
    return {"low_ratio": low, "high_ratio": high, "expert_spread": spread}


SLOW: Final = 1.5
"""Time of a run over its estimate from which its messages were slow. Few runs lie between 1.3 and 2."""


def slow_messages(runs: MeasuredRuns, seconds: Array) -> dict[str, float]:
    """Return how often a node makes a pipeline's messages slow, and by how many seconds a message.

    The most likely chance of a node, where one of a job's is enough; the median of what slow runs took longer than
    estimated, `seconds` [n].
    """
    plans, ranks = runs.plans, np.ones(len(runs), np.int64)
    for name in ("tp", "cp", "dp", "pp"):
        ranks *= plans[name]
    nodes = np.ceil(ranks / runs.hardware["scale_up_gpus"][runs.hardware_of])
    piped = (plans["pp"] > 1) & (nodes > 1)
    slow = piped & (runs.measured_s > SLOW * seconds)
    chances = np.linspace(1e-3, 0.2, 200)
    none = nodes[piped, None] * np.log1p(-chances)
    likely = np.where(slow[piped, None], np.log(-np.expm1(none)), none).sum(0)
    messages = plans["batch"] // (plans["dp"] * plans["micro_batch"]) + plans["pp"] - 1
    longer = np.median(((runs.measured_s - seconds) / messages)[slow])
    return {"slow_node": float(chances[likely.argmax()]), "slow_message_s": float(longer)}


@cache
def _gpus(name: str) -> tuple[str, ...]:
    """Return the GPU of a name, or those of a generation."""
    known = names("hardware")
    return (name,) if name in known else tuple(gpu for gpu in known if Hardware.read(gpu).generation == name)


def write_factor(gpu: str, precision: str, factor: float) -> None:
    """Write the `training_factor` of matrix products into the file of a GPU that has one."""
    file = data_folder() / "hardware" / f"{gpu}.toml"
    found = rf"(?m)(^\[gemm\.{precision}\]\ntraining_factor = )\S+"
    file.write_text(re.sub(found, rf"\g<1>{factor:.3g}", file.read_text("utf-8")), "utf-8")


def main() -> int:
    """Fit the profiles that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True, help="folder of the measured runs")
    parser.add_argument("--software", choices=list(PROFILES), action="append", help="only this one; may be repeated")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    asked = parser.parse_args()
    for name in asked.software or PROFILES:
        try:
            fit = load(name, asked.truth)
        except LumosError as problem:
            print(problem, file=sys.stderr)
            return 1
        values = fit.solve()
        unseen = fit.left_out()
        print(f"{name}: {', '.join(f'{key} = {value:.4g}' for key, value in values.items())}")
        for part, seconds in zip(fit.runs, unseen, strict=True):
            print(f"  before    {error(part.estimate()[:, 0], part)}")
            print(f"  after     {error(fit.estimate(part, values), part)}")
            print(f"  left out  {error(seconds, part)}")
        interval = ends(fit.runs, unseen)
        if broken := PROFILES[name].broken:
            dataset = Dataset.read(broken)
            every = read(dataset, asked.truth / dataset.file)
            every_fit = replace(fit, runs=(every,))
            interval |= slow_messages(every, every_fit.estimate(every, values))
        print(f"  {', '.join(f'{key} = {value:.3f}' for key, value in interval.items())}")
        if not asked.dry_run:
            figures = {key: value for key, value in values.items() if "@" not in key}
            for written in (name, *_ALIKE.get(name, ())):
                file = data_folder() / "software" / f"{written}.toml"
                file.write_text(rewritten(file.read_text("utf-8"), {**figures, **interval}), "utf-8")
            for key, value in values.items():
                if "@" in key:
                    _, gpu, precision = key.split("@")
                    for each in _gpus(gpu):
                        write_factor(each, precision, value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
