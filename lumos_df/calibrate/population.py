"""What sources of measured runs have in common: the figures of a software that nobody named, and how far off they are.

A source is the runs of one software on its clusters. Each has figures of its own around a common mean: the most likely
figures of a source, given the mean, and the mean of the sources by how much each knows, in turn, until neither moves
(empirical Bayes). In the end the means move a little together, to where all sources, each for a single run, are best
met: the figures are not independent of each other. A source that is left out has no say in any of that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import TruthError
from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.levenberg_marquardt import minimum, soften
from lumos_df.calibrate.measured_runs import MeasuredRuns, read
from lumos_df.model.fitted import GemmParameters, place_of_factor
from lumos_df.model.hardware import GENERATIONS
from lumos_df.model.library import names
from lumos_df.model.software import Software
from lumos_df.schema.dtypes import PRECISIONS

Array = NDArray[np.float64]
Rows = NDArray[np.void]

GENERIC: Final = "generic"
"""The software of runs whose software is not known."""

SETS: Final = (
    *("vtrain_multi", "vtrain_single", "mlperf", "playbook_h100_runs", "published_training_runs"),
    "lumos_paper",
)
"""Sets of measured runs that sources are taken from: no run is in two of them."""

NOISE: Final = 0.1
"""Threshold, logarithm of a step's time. Spread of runs around an estimate by their source's own figures. Evidence: the
median error of the fitted profiles is 4 to 10 %."""

KNEE: Final = 0.15
"""Threshold, logarithm of a step's time. A run that is further off an estimate is odd. Evidence: 1.5 times `NOISE`."""

MOST: Final = 30.0
"""Threshold, runs. More runs of a source count as so many, for they are no independent evidence of its figures.
Evidence: the 740 runs of one A100 node and the 10 of the paper ought to have as much of a say."""

_ROUNDS: Final = 3
"""Rounds of sources' figures and their mean: the fourth changes no figure by 3 %."""

_TOGETHER: Final = 0.25
"""Threshold, runs. What a source weighs where the means move together. Evidence: sources lie about 0.2 apart in the
logarithm of a step's time, twice `NOISE`, so a source's runs say a quarter of what a run of one's own says."""


@dataclass(frozen=True)
class Prior:
    """What is believed of a figure before any run is seen."""

    value: float
    """Its most likely value."""
    spread: float = 0.4
    """Standard deviation of its logarithm from one source to another."""
    low: float = 0.0
    """Least value that makes sense."""
    high: float = float("inf")
    """Largest value that makes sense."""


SHARED: Final = {
    "launch_s": Prior(20e-6),
    "hop_s": Prior(1e-4, 1.2),
    "micro_batch_s": Prior(2e-3, 0.6),
    "step_s": Prior(8e-3, 0.8),
    "run_ahead": Prior(4.0, low=1.0),
    "passes": Prior(2.2, low=1.0),
    "compute_factor": Prior(1.05, 0.1),
    "expert_factor": Prior(1.5, 0.3),
    "network_share": Prior(0.5, 0.5, high=1.0),
    "gemm@hopper@bf16": Prior(1.1, 0.15),
    "gemm@hopper@fp8": Prior(1.0, 0.15),
    "gemm@blackwell@bf16": Prior(1.0, 0.15),
    "gemm@blackwell@fp8": Prior(1.0, 0.15),
}
"""Figures that sources share: columns of SOFTWARE_COLUMNS, and `gemm@GENERATION@PRECISION`, the time of matrix products
in training over the measured kernel. Values and spreads are of the order that profilers show. What moves by less than
others' spread whatever the sources say keeps the value that profilers show in the file of `GENERIC`: time of
collectives, routing and a layer's step on the host, what the optimizer moves, what of tensor parallelism hides, also in
the backward pass, and slows it down."""

_SPREAD: Final = np.array([prior.spread for prior in SHARED.values()])


FACTS: Final = (
    *("attention", "last_again", "keep_products", "zigzag", "balanced", "dropout", "token_once"),
    *("piped_hops", "overlaps_sharded", "dp_hidden", "blocking_send", "add_bytes", "loss_bytes"),
)
"""Columns of SOFTWARE_COLUMNS that say how a software works, whatever its runs are fitted to."""


@dataclass(frozen=True)
class Source:
    """The runs of one software."""

    name: str
    """The software's, or the set's where its software is not known."""
    parts: tuple[MeasuredRuns, ...]
    """A part a set, estimated as `GENERIC`."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What is known of it, of `FACTS`: a fit to its runs is told, who estimates it without its profile is not."""

    def weights(self) -> tuple[float, ...]:
        """Return what a run of each part weighs: parts as much as each other, and no more than `MOST` runs together."""
        total = min(float(sum(map(len, self.parts))), MOST)
        return tuple(total / (len(self.parts) * len(part)) for part in self.parts)


def sources(folder: Path) -> list[Source]:
    """Return the sources that have runs in the files of a folder. Raises `TruthError` where they are fewer than two."""
    parts: dict[str, list[MeasuredRuns]] = {}
    for name in SETS:
        dataset = Dataset.read(name)
        file = folder / dataset.file
        if not file.is_file():
            continue
        told, runs = read(dataset, file), read(dataset, file, GENERIC)
        # A profile may be unknown where the generic one is not.
        runs = runs.take(np.flatnonzero(runs.table["row"].is_in(told.table["row"].implode()).to_numpy()))
        of_run = told.plans["software"]
        # Releases of a software are one source.
        of_source = np.array([Software.read(software).release_of or software for software in told.software_names])
        for software in dict.fromkeys(of_source.tolist()):
            rows = np.flatnonzero((of_source == software)[of_run])
            if len(rows):
                parts.setdefault(name if software == GENERIC else software, []).append(runs.take(rows))
    if len(parts) < 2:
        raise TruthError(f"{folder}: leaving a source out needs the runs of two or more, and there are {len(parts)}")
    return [Source(name, tuple(of_source), facts(name)) for name, of_source in parts.items()]


def facts(name: str) -> dict[str, float]:
    """Return what is known of how a source's software works: nothing where that is not known."""
    if name not in names("software"):
        return {}
    row = Software.read(name).row()
    return {fact: float(row[fact]) for fact in FACTS}


def with_figures(runs: MeasuredRuns, values: Mapping[str, float]) -> tuple[Rows, Rows]:
    """Return hardware and software of runs with other values of the figures of `SHARED` and `FACTS`."""
    hardware, software = runs.hardware.copy(), runs.software.copy()
    for name, value in values.items():
        kind, *where = name.split("@")
        if where:
            rows = hardware["generation"] == GENERATIONS.index(where[0])
            hardware["gemm"][rows, PRECISIONS.index(where[1]), place_of_factor(GemmParameters)] = value
        else:
            software[kind] = value
    if "launch_s" in values:
        software["backward_launch_s"] = _BACKWARD_LAUNCH * values["launch_s"]
    return hardware, software


_BACKWARD_LAUNCH: Final = 0.85
"""Threshold, times. Host time of a backward operator over that of a forward one: the autograd engine has no Python in
it. Evidence: the profiles that fit both have 0.25 to 0.83; the others are taken for 0.75."""


def common(some: Sequence[Source]) -> dict[str, float]:
    """Return the figures that the sources have in common: the mean of a source's figures."""
    mean = np.zeros(len(SHARED))
    for _ in range(_ROUNDS):
        places, known = (np.array(pair) for pair in zip(*(_own(source, mean) for source in some), strict=True))
        mean = (places * known).sum(0) / (1.0 + known.sum(0))
    return _values(_together(some, mean))


def off(runs: MeasuredRuns, values: Mapping[str, float]) -> Array:
    """Return the logarithm of estimated over measured seconds of a step [n]."""
    return np.log(runs.estimate(*with_figures(runs, values))[:, 0] / runs.measured_s)


def _own(source: Source, mean: Array) -> tuple[Array, Array]:
    """Return where a source's figures are [SHARED], and how much of that it knows itself, 0 to 1."""

    def residuals(place: Array) -> Array:
        return np.concatenate([*_residuals(source, place, 1.0, source.facts), place - mean])

    place = minimum(residuals, mean)
    there = residuals(place)
    steps = _DERIVATIVE * np.eye(len(place))
    slope = np.array([(residuals(place + step) - there) / _DERIVATIVE for step in steps]).T
    return place, np.clip(1.0 - np.diag(np.linalg.inv(slope.T @ slope)), 0.0, 1.0)


_DERIVATIVE: Final = 1e-3
"""How far apart the two places are between which a derivative is told, in spreads."""


def _together(some: Sequence[Source], mean: Array) -> Array:
    """Return the mean moved to where all sources are best met, each for `_TOGETHER` runs; GPUs stay as they are."""
    free = np.array(["@" not in name for name in SHARED])

    def moved(step: Array) -> Array:
        place = mean.copy()
        place[free] += step
        return place

    def residuals(step: Array) -> Array:
        parts = [
            part
            for source in some
            for part in _residuals(
                source, moved(step), _TOGETHER / min(MOST, sum(map(len, source.parts))), {}, knee=2.0 * KNEE
            )
        ]
        return np.concatenate([*parts, step])

    return moved(minimum(residuals, np.zeros(int(free.sum()))))


def _residuals(
    source: Source, place: Array, weight: float, facts: Mapping[str, float], knee: float = KNEE
) -> Iterator[Array]:
    values = {**_values(place), **facts}
    for part, each in zip(source.parts, source.weights(), strict=True):
        yield soften(off(part, values), knee) / NOISE * np.sqrt(each * weight)


def _values(place: Array) -> dict[str, float]:
    """Return the figures that are `place` spreads away from the priors' values."""
    return {
        name: float(np.clip(prior.value * np.exp(step), prior.low, prior.high))
        for (name, prior), step in zip(SHARED.items(), place * _SPREAD, strict=True)
    }
