"""How far off estimates are of runs that nothing was fitted to: `python -m tests.bench.unseen [--runs]`.

The runs are in unseen_runs.toml, each with its source.
"""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from lumos_df.calibrate.population import GENERIC
from lumos_df.estimate import estimate
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model

FILE: Final = Path(__file__).with_name("unseen_runs.toml")

FIGURES: Final = ("seconds", "tokens", "tflops")
"""What a run's figure may be: seconds of a step, tokens/s of a GPU, TFLOP/s of a GPU with all pairs of tokens."""


@dataclass(frozen=True)
class Told:
    """A measured run, and what one profile says of it."""

    run: str
    """Model, GPU and plan."""
    measured_s: float
    """Seconds of a step."""
    estimated_s: float
    """Ours."""
    inside: bool
    """Whether the measured one is within our interval."""

    @property
    def off(self) -> float:
        """Estimated over measured seconds, less one."""
        return self.estimated_s / self.measured_s - 1.0


def sources() -> list[dict[str, Any]]:
    """Return the sources of the file, as it has them."""
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["source"]
    return found


def tell(source: dict[str, Any], profile: str) -> Iterator[Told]:
    """Estimate every run of a source with one profile."""
    for jobs in source["jobs"]:
        model, hardware = model_of(jobs), hardware_of(jobs)
        for figure in FIGURES:
            for rest, measured in jobs.get(figure, {}).items():
                plan = Plan.parse(f"{jobs['plan']},{rest},software={profile}")
                answers = estimate(model, hardware, plan).answers
                tokens = plan.batch * model.seq / answers["gpus"]
                flops = 3.0 * model.flops_per_token() * tokens / 1e12
                measured_s = {"seconds": measured, "tokens": tokens / measured, "tflops": flops / measured}[figure]
                inside = answers["low_s"] <= measured_s <= answers["high_s"]
                run = f"{model.name}, {answers['gpus']:,} {hardware.name}: {jobs['plan']},{rest}"
                yield Told(run, measured_s, answers["iteration_time_s"], inside)


def model_of(jobs: dict[str, Any]) -> Model:
    """Return the model: of the library, perhaps with other figures, or of its figures."""
    said, seq = jobs["model"], jobs["seq"]
    if isinstance(said, str):
        return replace(Model.read(said), seq=seq)
    if "model" in said:
        others = {figure: value for figure, value in said.items() if figure != "model"}
        return replace(Model.read(said["model"]), **others, seq=seq)
    return Model(**said, seq=seq)


def hardware_of(jobs: dict[str, Any]) -> Hardware:
    """Return the GPU, with nodes and network of the page where it says them."""
    hardware = Hardware.read(jobs["gpu"])
    if "node_bytes_s" not in jobs:
        return hardware
    gpus = jobs.get("node_gpus", hardware.scale_up.gpus)
    hardware = replace(hardware, scale_up=replace(hardware.scale_up, gpus=gpus))
    cards = replace(hardware.scale_out, bandwidth=jobs["node_bytes_s"] / gpus, nics=jobs["cards"] / gpus)
    return replace(hardware, scale_out=cards)


def score(told: list[Told]) -> tuple[float, float, float]:
    """Return mean error, bias, and how many are within the interval, percent."""
    off = 100.0 * np.array([each.off for each in told])
    inside = 100.0 * np.mean([each.inside for each in told])
    return float(np.abs(off).mean()), float(off.mean()), float(inside)


HEAD: Final = """\
| source | runs | `generic` | bias | within low..high | nearest profile | mean error | bias | within low..high |
|---|---|---|---|---|---|---|---|---|
"""


def row(source: dict[str, Any]) -> tuple[str, list[float]]:
    """Return the row of a source, and of both profiles mean error and share within the interval."""
    told = [list(tell(source, profile)) for profile in (GENERIC, source["nearest"])]
    (mean, bias, inside), (near, near_bias, near_inside) = map(score, told)
    named = f"`{source['nearest']}`" + (", its own" if source["same"] else "")
    cells = f"{source['name']} | {len(told[0])} | {mean:.1f} | {bias:+.1f} | {inside:.0f} | {named} "
    return f"| {cells}| {near:.1f} | {near_bias:+.1f} | {near_inside:.0f} |\n", [mean, inside, near, near_inside]


def table() -> str:
    """Return the table: a row a source, and the means over the sources, also over those of a software that is new."""
    rows = [(source["same"], *row(source)) for source in sources()]
    text = HEAD + "".join(cells for _, cells, _ in rows) + "\n"
    for which, some in (("all", rows), ("the software that is new", [each for each in rows if not each[0]])):
        figures = np.array([each for _, _, each in some])
        (mean, inside, near, near_inside), (worst, _, near_worst, _) = figures.mean(0), figures.max(0)
        text += (
            f"Mean over {which}, {len(some)} sources: `generic` {mean:.1f} %, the worst {worst:.1f} %, {inside:.0f} % "
            f"within; nearest profiles {near:.1f} %, the worst {near_worst:.1f} %, {near_inside:.0f} % within.\n"
        )
    return text


def main() -> None:
    """Print the table, or every run of it."""
    if "--runs" not in sys.argv:
        print(table(), end="")
        return
    for source in sources():
        print(source["name"])
        pairs = zip(*(tell(source, profile) for profile in (GENERIC, source["nearest"])), strict=True)
        for told, near in pairs:
            said = ", ".join(f"{100.0 * each.off:+.0f} %{'' if each.inside else ' outside'}" for each in (told, near))
            print(f"  {told.measured_s:8.3f} s  {said:24}  {told.run}")


if __name__ == "__main__":
    main()
