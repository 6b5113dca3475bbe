"""A few corrections of a machine, fitted to a handful of measured runs of it.

Each correction is a factor on the time of one kind of work, and stays near 1 unless the runs say otherwise: what is
minimised is, with the logarithms of the factors f and of the ratios r of estimate to measurement,

    sum over runs (log r / NOISE)**2  +  sum over corrections (log f / spread)**2,

the first term growing only linearly beyond `KNEE`: the most likely factors where they and the runs' own noise are
log-normal. Three runs cannot bend thirteen factors far.

Of a software that nobody named the habits are not known either: each of `HABITS` may be the other way, for `_OTHERWISE`
more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress, product
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.calibrate.levenberg_marquardt import minimum, soften
from lumos_df.calibrate.measured_runs import MeasuredRuns
from lumos_df.calibrate.population import GENERIC
from lumos_df.model.fitted import AttentionParameters, GemmParameters, MemoryParameters, place_of_factor

Rows = NDArray[np.void]
Seconds = NDArray[np.float64]

NOISE: Final = 0.05
"""Threshold, logarithm of a step's time. Its spread around a well calibrated estimate: a run that is as far off counts
as much as a factor that is off by its own spread. Evidence: half of the runs are within 4 % of the profiles that were
fitted to them, so two thirds within 6. Sources that `generic` is fitted without are 9.3 % off on average where 20 of
their runs are calibrated on, and 9.6 with 0.08 (both with three factors more, which gain nothing)."""
KNEE: Final = 0.05
"""Threshold, logarithm of a step's time. A run that is further off an estimate is odd, and pulls no more than in
proportion. Evidence: `NOISE`; beyond it a run is more likely odd. No set decides it."""
LARGEST: Final = 10.0
"""Threshold, times. A larger factor is no correction. Evidence: collectives of `nanotron` take 9 times the host time of
the generic software's; where 2.5 times is the most, 20 of its runs leave the others 11.8 % off, else 9.8."""


_NAMED: Final = 0.5
"""Threshold, times. Spread of a factor where the software has a profile of its own over that between sources. Evidence:
with 0.7, five runs of a set that a profile was fitted to leave it at 7.6 %, with this at 7.5, with 0.35 at 7.3; the
nearer, the less is found of another machine: four runs of one 1.3 times slower leave it 3 % off, with 0.35 7."""


@dataclass(frozen=True)
class Correction:
    """One factor on the time of one kind of work."""

    name: str
    """What it is a factor of."""
    spread: float
    """Standard deviation of its logarithm from one machine to another of the same kind."""
    apply: Callable[[Rows, Rows, float], None]
    """Changes HARDWARE_ROW [h] and SOFTWARE_ROW [s] in place."""


def _compute(hardware: Rows, _: Rows, factor: float) -> None:
    hardware["gemm"][:, :, place_of_factor(GemmParameters)] *= factor
    hardware["attention"][:, :, place_of_factor(AttentionParameters)] *= factor


def _memory(hardware: Rows, _: Rows, factor: float) -> None:
    hardware["memory"][:, place_of_factor(MemoryParameters)] *= factor


def _scale_up(hardware: Rows, _: Rows, factor: float) -> None:
    hardware["scale_up_bandwidth"] /= factor


def _scale_out(hardware: Rows, _: Rows, factor: float) -> None:
    hardware["scale_out_bandwidth"] /= factor


SOFTWARE_FIGURES: Final[dict[str, tuple[str, ...]]] = {
    "attention": ("attention_factor",),
    "collectives": ("collective_s", "skew_s"),
    "hops": ("hop_s",),
    "messages": ("send_s",),
    "run_ahead": ("run_ahead",),
    "optimizer": ("optimizer_traffic",),
    "host": ("launch_s", "backward_launch_s"),
    "micro_batches": ("micro_batch_s",),
    "steps": ("step_s", "layer_step_s"),
}
"""Figures of a software that a factor of each name is of."""

LEAST: Final = {"run_ahead": 1.0}
"""Figures that are no less than this, whatever the factor."""

HABITS: Final = ("piped_hops", "balanced", "overlaps_sharded")
"""Flags of a software on which a step's time hangs most, and which no plan says."""

_OTHERWISE: Final = 4.2
"""Threshold, squares of spreads. What it costs that a habit is not the generic one's. Evidence: of nine profiles one
has `piped_hops`, one `balanced`, one not `overlaps_sharded`: twice the logarithm of odds of eight. Sources that
`generic` is fitted without are 12.6 % off on average where 5 of their runs, or 3 of ten, are calibrated on, 14.4 with
3 instead."""


def _figures(name: str) -> Callable[[Rows, Rows, float], None]:
    def apply(_: Rows, software: Rows, factor: float) -> None:
        for figure in SOFTWARE_FIGURES[name]:
            software[figure] = np.maximum(software[figure] * factor, LEAST.get(figure, 0.0))

    return apply


CORRECTIONS: Final = (
    Correction("compute", 0.15, _compute),
    Correction("memory", 0.34, _memory),
    Correction("scale_up", 0.30, _scale_up),
    Correction("scale_out", 0.50, _scale_out),
    Correction("attention", 0.33, _figures("attention")),
    Correction("collectives", 0.90, _figures("collectives")),
    Correction("hops", 1.20, _figures("hops")),
    Correction("messages", 1.00, _figures("messages")),
    Correction("optimizer", 0.40, _figures("optimizer")),
    Correction("host", 0.40, _figures("host")),
    Correction("micro_batches", 0.78, _figures("micro_batches")),
    Correction("steps", 0.85, _figures("steps")),
    Correction("run_ahead", 0.45, _figures("run_ahead")),
)
"""What a calibration may change. Spreads are those between the sources of `calibrate.population`: the root of the
mean, over sources, of a figure's square distance from their mean and of what its source leaves open (a step of
expectation and maximisation). Of links and messages no source says enough; theirs are judgements."""


def corrected(runs: MeasuredRuns, factors: Mapping[str, float]) -> tuple[Rows, Rows]:
    """Return the hardware and the software of the runs with factors on the times of `CORRECTIONS`, 1 where none.

    A factor on one of `HABITS`, of any size, says that it is the other way.
    """
    hardware, software = runs.hardware.copy(), runs.software.copy()
    for habit in HABITS:
        if habit in factors:
            software[habit] = 1 - software[habit]
    for correction in CORRECTIONS:
        correction.apply(hardware, software, factors.get(correction.name, 1.0))
    return hardware, software


def fit(runs: MeasuredRuns) -> dict[str, float]:
    """Return the factor of each of `CORRECTIONS` that the runs make most likely, and 1 for each habit that changes."""
    if GENERIC not in runs.software_names:
        return _fit(runs, ())[0]
    ways = [tuple(compress(HABITS, way)) for way in product((False, True), repeat=len(HABITS))]
    return min((_fit(runs, way) for way in ways), key=itemgetter(1))[0]


def _fit(runs: MeasuredRuns, otherwise: tuple[str, ...]) -> tuple[dict[str, float], float]:
    """Return the most likely factors with some habits the other way, and what is minimised."""
    changed = dict.fromkeys(otherwise, 1.0)
    nearer = 1.0 if GENERIC in runs.software_names else _NAMED
    spreads = nearer * np.array([correction.spread for correction in CORRECTIONS])

    def factors(place: NDArray[np.float64]) -> dict[str, float]:
        values = np.clip(np.exp(place * spreads), 1.0 / LARGEST, LARGEST).tolist()
        return {correction.name: value for correction, value in zip(CORRECTIONS, values, strict=True)} | changed

    def residuals(place: NDArray[np.float64]) -> NDArray[np.float64]:
        off = np.log(runs.estimate(*corrected(runs, factors(place)))[:, 0] / runs.measured_s)
        return np.concatenate([soften(off, KNEE) / NOISE, place])

    place = minimum(residuals, np.zeros(len(CORRECTIONS)))
    return factors(place), float((residuals(place) ** 2).sum()) + _OTHERWISE * len(otherwise)


def left_out(runs: MeasuredRuns) -> NDArray[np.float64]:
    """Return the seconds [n] that each run is estimated at by the factors fitted to the others, habits as of all."""
    habits = tuple(name for name in HABITS if name in fit(runs))
    seconds = np.empty(len(runs))
    places = np.arange(len(runs))
    for place in places:
        factors, _ = _fit(runs.take(places[places != place]), habits)
        run = runs.take(np.array([place]))
        seconds[place] = run.estimate(*corrected(run, factors))[0, 0]
    return seconds
