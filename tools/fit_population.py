"""Fit what sources of measured runs share: `python -m tools.fit_population --truth DIR [--dry-run]`.

Writes data/software/generic.toml (figures and spreads), the factors of each generation into data/hardware, and what
being unlike the measured runs adds to an interval into data/validation/distance.toml. GPUs with a factor of their own
get it back from `python -m tools.fit_software`, which goes after it. Prints every source's error by a fit without it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.base.errors import LumosError
from lumos_df.calibrate.levenberg_marquardt import minimum
from lumos_df.calibrate.measured_runs import MeasuredRuns
from lumos_df.calibrate.population import GENERIC, Source, common, off, sources, with_figures
from lumos_df.model.hardware import GENERATIONS, Hardware
from lumos_df.model.library import data_folder, names
from lumos_df.model.uncertainty import PARTS, ends
from lumos_df.schema.dtypes import PRECISIONS
from tools.fit_software import rewritten, write_factor

Array = NDArray[np.float64]
Chosen = Callable[[MeasuredRuns], NDArray[np.bool_]]

HELD: Final = 0.8
"""Share of runs that lie within an interval."""

_FEW_GPUS: Final = 64
_SHORT_SEQ: Final = 2048
"""Jobs and sequences up to these are those of which larger ones are foretold, to see how errors grow."""


def left_out(some: Sequence[Source]) -> dict[str, dict[str, float]]:
    """Return, by source, the figures that the other sources have in common."""
    return {source.name: common([other for other in some if other is not source]) for source in some}


def part_spreads(some: Sequence[Source], figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the spread of each part of a step with which `HELD` of the runs of every part of a source are within.

    Estimates are those of a source by a fit to the others, `figures`, and intervals what `ends` tells of them: with the
    distances that are on file, so of new ones a second fit knows. A run counts as within by how far it is from the end,
    smoothly, so that a least sum of squares can be found; spreads stay near `_USUAL` where no run says otherwise.
    """
    runs = []
    for source in some:
        for part in source.parts:
            hardware, software = with_figures(part, figures[source.name])
            told = part.estimate(hardware, software)
            rows = part.plans, part.models[part.model_of], hardware[part.hardware_of], software[part.plans["software"]]
            runs.append((told, rows, np.log(part.measured_s / told[:, 0])))

    def residuals(place: Array) -> Array:
        missed = []
        for told, (plans, models, hardware, software), far in runs:
            for name, spread in zip(PARTS, np.exp(place), strict=True):
                software[name] = spread
            low, high = ends(told, plans, models, hardware, software)
            end = np.maximum(np.where(far > 0.0, np.log(high), -np.log(low)), _LEAST)
            room = np.log(end / np.maximum(np.abs(far), _LEAST))
            missed.append(np.mean(1.0 / (1.0 + np.exp(-room / _SOFT))) - HELD)
        return np.concatenate([missed, _NEAR * (place - np.log(_USUAL))])

    # Several places are lower than all around them.
    ways = [minimum(residuals, np.log(start)) for start in product((0.1, 1.0), repeat=len(PARTS))]
    spreads = np.exp(min(ways, key=lambda place: float(np.sum(residuals(place) ** 2))))
    return dict(zip(PARTS, spreads.tolist(), strict=True))


_LEAST: Final = 0.01
"""Errors below are as good as none."""

_SOFT: Final = 0.1
"""Logarithm of a ratio within which a run is partly inside an interval."""

_USUAL: Final = 0.3
"""Spread of a part that is believed of it before any run is seen: the order of those between sources."""

_NEAR: Final = 0.2
"""Share of the runs of a source's part that a spread is moved for by its logarithm. With half of it communication may
take four times as long, for the sake of one source, and intervals of unseen runs are wider and hold no more."""


def unlike(some: Sequence[Source], chosen: Chosen, doublings: Callable[[MeasuredRuns], Array] | None = None) -> float:
    """Return what it adds to the spread that runs of a kind were in no fit: a logarithm, or that a doubling.

    Sources weigh as many runs of the kind as they have, no more than a fit lets them count: one run says little.

    Args:
        some: the sources.
        chosen: which runs of a part are of the kind.
        doublings: how far each is from what the fit saw, where that is a number.
    """
    without, values = common(_only(some, lambda part: ~chosen(part))), common(some)
    square, runs = 0.0, 0.0
    for source in _only(some, chosen):
        for part, weight in zip(source.parts, source.weights(), strict=True):
            by_none, by_all = (off(part, figures) for figures in (without, values))
            distance = np.ones(len(part)) if doublings is None else doublings(part)
            square += weight * float(np.sum((by_none**2 - by_all**2) / distance**2))
            runs += weight * len(part)
    square /= runs
    return float(np.sqrt(max(square, 0.0)) * _NORMAL_80)


_NORMAL_80: Final = 1.28
"""Standard deviations that 8 of 10 of a normal distribution are within."""


def _only(some: Sequence[Source], chosen: Chosen) -> list[Source]:
    """Return the sources with those of their runs that are chosen."""
    kept = [
        replace(
            source, parts=tuple(part.take(np.flatnonzero(chosen(part))) for part in source.parts if chosen(part).any())
        )
        for source in some
    ]
    return [source for source in kept if source.parts]


def distances(some: Sequence[Source]) -> dict[str, float]:
    """Return the figures of `lumos_df.model.uncertainty.Distance`."""

    def generation(name: str) -> Chosen:
        return lambda part: part.hardware["generation"][part.hardware_of] == GENERATIONS.index(name)

    def gpus(part: MeasuredRuns) -> Array:
        ranks: Array = (part.plans["tp"] * part.plans["pp"] * part.plans["cp"] * part.plans["dp"]).astype(np.float64)
        return ranks

    def seq(part: MeasuredRuns) -> Array:
        length: Array = part.models["seq"][part.model_of].astype(np.float64)
        return length

    return {
        "generation": float(np.mean([unlike(some, generation(name)) for name in ("ampere", "hopper", "blackwell")])),
        "precision": unlike(some, lambda part: part.plans["precision"] == PRECISIONS.index("fp8")),
        "experts": unlike(some, lambda part: part.models["experts"][part.model_of] > 0),
        "doubled_gpus": unlike(some, lambda part: gpus(part) > _FEW_GPUS, lambda part: np.log2(gpus(part) / _FEW_GPUS)),
        "doubled_seq": unlike(some, lambda part: seq(part) > _SHORT_SEQ, lambda part: np.log2(seq(part) / _SHORT_SEQ)),
    }


_ARCHITECTURES: Final = {
    "ampere": "A100",
    "hopper": "H100|H200",
    "blackwell": "B200|B300",
    "cdna3": "MI300X|MI325X",
    "cdna4": "MI355X",
    "gaudi2": "Gaudi 2",
    "gaudi3": "Gaudi 3",
}
"""How GPUs of an architecture are called in gemm_mamf.csv."""


def between_architectures(file: Path) -> float:
    """Return what it adds to the spread that kernels are another architecture's: a logarithm.

    Large products in bf16 reach a share of the peak that architectures differ in: 8 of 10 pairs by less than this.

    Args:
        file: gemm_mamf.csv, the best measured products by GPU.
    """
    measured = pl.read_csv(file).filter(pl.col("dtype") == "bf16")
    best = [
        measured.filter(pl.col("gpu").str.contains(gpus))["efficiency_pct"].to_numpy().max()
        for gpus in _ARCHITECTURES.values()
    ]
    ratios = [abs(np.log(one / other)) for one, other in combinations(best, 2)]
    return float(np.quantile(ratios, HELD))


def main() -> int:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True, help="folder of the measured runs")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    asked = parser.parse_args()
    try:
        some = sources(asked.truth)
    except LumosError as problem:
        print(problem, file=sys.stderr)
        return 1
    values, others = common(some), left_out(some)
    for source in some:
        for part in source.parts:
            ratio = 100.0 * (np.exp(off(part, others[source.name])) - 1.0)
            told = f"runs {len(part):4}  mean {np.abs(ratio).mean():5.1f} %  bias {ratio.mean():+5.1f} %"
            print(f"{source.name:20} {part.dataset.name:24} {told}")
    spreads, apart = part_spreads(some, others), distances(some)
    apart["kernels"] = between_architectures(asked.truth / "gemm_mamf.csv")
    for figures in (values, spreads, apart):
        print(", ".join(f"{name} = {value:.4g}" for name, value in figures.items()))
    if not asked.dry_run:
        write(values, spreads, apart)
    return 0


def write(values: dict[str, float], spreads: dict[str, float], apart: dict[str, float]) -> None:
    """Write the figures where they belong; comments stay."""
    software = {name: value for name, value in values.items() if "@" not in name}
    software["backward_launch_s"] = 0.85 * values["launch_s"]
    _rewrite(data_folder() / "software" / f"{GENERIC}.toml", {**software, **spreads})
    alike = {name: value for name, value in {**software, **spreads}.items() if name not in OF_XLA}
    _rewrite(data_folder() / "software" / "xla.toml", alike)
    _rewrite(data_folder() / "validation" / "distance.toml", apart)
    for name in names("hardware"):
        for figure, value in values.items():
            _, *where = figure.split("@")
            if where and where[0] == Hardware.read(name).generation:
                write_factor(name, where[1], value)


OF_XLA: Final = ("launch_s", "backward_launch_s", "micro_batch_s", "passes", "attention", "last_again")
"""What XLA does as `GENERIC` does not, from how it works; its other figures are those of `GENERIC`."""


def _rewrite(file: Path, figures: dict[str, float]) -> None:
    file.write_text(rewritten(file.read_text("utf-8"), figures), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
