"""How far off memory is of runs that nothing was fitted to: `python -m tests.bench.unseen_memory [--runs]`.

The runs are in unseen_memory.toml, each with its source.
"""

import math
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from lumos_df.calibrate.measured_runs import GIB
from lumos_df.calibrate.population import GENERIC
from lumos_df.estimate import estimate
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from tests.bench.unseen import hardware_of, model_of

FILE: Final = Path(__file__).with_name("unseen_memory.toml")


@dataclass(frozen=True)
class Held:
    """A run, its memory, and what one profile says of it."""

    run: str
    """Model, GPU and plan."""
    measured_bytes: float
    """Memory of the fullest GPU; infinite where the plan did not fit."""
    estimated_bytes: float
    """Ours."""
    fits: bool
    """Whether we say that the plan fits."""

    @property
    def off(self) -> float:
        """Estimated over measured memory, less one."""
        return self.estimated_bytes / self.measured_bytes - 1.0

    @property
    def wrong(self) -> bool:
        """Whether a plan that ran is said not to fit, or the other way round."""
        return self.fits != math.isfinite(self.measured_bytes)


def sources() -> list[dict[str, Any]]:
    """Return the sources of the file, as it has them."""
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["source"]
    return found


def runs_of(jobs: dict[str, Any]) -> dict[str, float]:
    """Return GiB by the rest of a plan, infinite of those that did not fit."""
    ran: dict[str, float] = jobs.get("memory", {})
    return ran | dict.fromkeys(jobs.get("out_of_memory", ()), math.inf)


def tell(source: dict[str, Any], profile: str) -> Iterator[Held]:
    """Estimate every run of a source with one profile."""
    beside = 0.0 if source["whole_gpu"] else Software.read(profile).reserve_bytes
    for jobs in source["jobs"]:
        model, hardware = model_of(jobs), hardware_of(jobs)
        for rest, gib in runs_of(jobs).items():
            answers = estimate(model, hardware, Plan.parse(f"{jobs['plan']},{rest},software={profile}")).answers
            run = f"{model.name}, {answers['gpus']:,} {hardware.name}: {jobs['plan']},{rest}"
            yield Held(run, gib * GIB, answers["memory_gb"] * 1e9 - beside, answers["fits"])


HEAD: Final = """\
| source | runs | `generic` | bias | wrong of fits | nearest profile | mean error | bias | wrong of fits |
|---|---|---|---|---|---|---|---|---|
"""


def row(source: dict[str, Any]) -> tuple[str, list[float]]:
    """Return the row of a source, and the mean error of both profiles, percent."""
    cells, means = [source["name"]], []
    for profile in (GENERIC, source["nearest"]):
        told = list(tell(source, profile))
        off = 100.0 * np.array([each.off for each in told if np.isfinite(each.measured_bytes)])
        means.append(float(np.abs(off).mean()))
        cells.append(str(len(told)) if profile == GENERIC else f"`{profile}`")
        cells += [f"{means[-1]:.1f}", f"{off.mean():+.1f}", f"{sum(each.wrong for each in told)}"]
    return f"| {' | '.join(cells)} |\n", means


def table() -> str:
    """Return the table: a row a source, and the means over the sources."""
    rows = [row(source) for source in sources()]
    generic, nearest = np.array([means for _, means in rows]).mean(0)
    mean = f"Mean over {len(rows)} sources: `generic` {generic:.1f} %, nearest profiles {nearest:.1f} %."
    return f"{HEAD}{''.join(cells for cells, _ in rows)}\n{mean}\n"


def main() -> None:
    """Print the table, or every run of it."""
    if "--runs" not in sys.argv:
        print(table(), end="")
        return
    for source in sources():
        print(source["name"])
        pairs = zip(*(tell(source, profile) for profile in (GENERIC, source["nearest"])), strict=True)
        for told, near in pairs:
            said = ", ".join(f"{100.0 * each.off:+.0f} %{' WRONG' if each.wrong else ''}" for each in (told, near))
            print(f"  {told.measured_bytes / GIB:6.1f} GiB  {said:24}  {told.run}")


if __name__ == "__main__":
    main()
