"""Write the scoreboard into README and docs/estimator.md: `python -m tools.scoreboard DIR`, DIR as for `--truth`."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from lumos_df.calibrate.population import GENERIC
from lumos_df.calibrate.scoreboard import Score, scoreboard, without_source

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "estimator.md")

_BLOCK: Final = re.compile(r"(?<=<!-- python -m tools.scoreboard DIR -->\n).*?(?=<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """A set of measured runs, the aim, and what is reached elsewhere; percent, but for the rank correlation."""

    title: str
    dataset: str
    mean: float | None = None
    median: float | None = None
    ranks: float | None = None
    elsewhere: str = ""


LINES: Final = (
    Line("vTrain, 64-512 A100", "vtrain_multi", mean=6.5, elsewhere="Calculon 11.1"),
    Line("vTrain, 2-8 A100, host-bound", "vtrain_single", mean=4, elsewhere="Calculon 38.9, vTrain 8.4"),
    Line("Korthikanti table 5", "korthikanti", mean=3.5, elsewhere="Calculon 3.7"),
    Line("MLPerf, pre-training", "mlperf", mean=5.5),
    Line("Ultra-Scale Playbook, 10 % MFU and more", "playbook_h100_runs", mean=7.5),
    Line("the same, every run, also broken-down ones", "playbook_h100_runs_all", median=8, ranks=0.93),
    Line("the paper that lumos-df follows, as `generic`", "lumos_paper", mean=25),
    Line("published runs with a full plan", "published_training_runs", mean=7.5, elsewhere="SimuMax 5.6 on its own 43"),
)

_HEAD: Final = """\
| set | runs | mean error | median | aim, mean | rank correlation | within low..high | best known elsewhere |
|---|---|---|---|---|---|---|---|
"""


def row(line: Line, score: Score) -> str:
    """Return one row of the table, a missed aim said."""
    mean, median, ranks = score.mape_pct, score.median_ape_pct, score.spearman
    if mean is None or median is None or ranks is None or score.coverage_pct is None:
        raise ValueError(f"{line.dataset}: no run is scored")
    aims = [
        f"{name}{aim:g}{', **missed**' if reached > aim else ''}"
        for name, aim, reached in (("", line.mean, mean), ("median ", line.median, median))
        if aim is not None
    ]
    correlation = f"{ranks:.2f}"
    if line.ranks is not None:
        correlation += f", aim {line.ranks}" + (" **missed**" if ranks < line.ranks else "")
    cells = [line.title, str(score.used), f"{mean:.1f}", f"{median:.1f}", "; ".join(aims), correlation]
    return f"| {' | '.join([*cells, f'{score.coverage_pct:.0f}', line.elsewhere])} |\n"


def table(truth: Path) -> str:
    """Score every set of the folder of measured runs, and return the table."""
    scores = {score.dataset: score for score in scoreboard(truth, [line.dataset for line in LINES])}
    return _HEAD + "".join(row(line, scores[line.dataset]) for line in LINES)


_CALIBRATED: Final = re.compile(
    r"(?<=<!-- python -m tools.scoreboard DIR, calibrated -->\n).*?(?=<!-- end -->)", re.DOTALL
)

_CALIBRATED_HEAD: Final = """\
| runs | calibrated on | mean error of the others | aim | within low..high |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Calibrated:
    """A set of which some runs are calibrated on, from the profile `generic`, and the aim for the others."""

    title: str
    dataset: str
    runs: int
    times_own: float = 0.0
    """The aim, times the error that the set has with its own profile."""
    mean: float = 0.0
    """Or in percent."""


CALIBRATIONS: Final = (
    Calibrated("Ultra-Scale Playbook", "playbook_h100_runs", 5, times_own=2),
    Calibrated("Ultra-Scale Playbook", "playbook_h100_runs", 20, times_own=1.3),
    Calibrated("vTrain, 64-512 A100", "vtrain_multi", 5, times_own=2),
    Calibrated("vTrain, 64-512 A100", "vtrain_multi", 20, times_own=1.3),
    Calibrated("the paper that lumos-df follows", "lumos_paper", 3, mean=10),
)


def calibrated_row(line: Calibrated, mean: float, coverage: float, own: float) -> str:
    """Return one row of the table; percent, `own` the error with the set's own profile."""
    aim = line.mean or line.times_own * own
    told = f"{aim:.1f}" + (f", {line.times_own:g} times its own profile's" if line.times_own else "")
    missed = ", **missed**" if mean > aim else ""
    return f"| {line.title} | {line.runs} | {mean:.1f} | {told}{missed} | {coverage:.0f} |\n"


def calibrated_table(truth: Path) -> str:
    """Calibrate `generic` on some runs of each set, score the others, and return the table."""
    rows = ""
    for line in CALIBRATIONS:
        found = scoreboard(truth, [line.dataset], line.runs, software=GENERIC)[0]
        own = scoreboard(truth, [line.dataset])[0] if line.times_own else found
        if found.mape_pct is None or found.coverage_pct is None or own.mape_pct is None:
            raise ValueError(f"{line.dataset}: no run is scored")
        rows += calibrated_row(line, found.mape_pct, found.coverage_pct, own.mape_pct)
    return _CALIBRATED_HEAD + rows


_LEFT_OUT: Final = re.compile(r"(?<=<!-- python -m tools.scoreboard DIR, left out -->\n).*?(?=<!-- end -->)", re.DOTALL)

_LEFT_OUT_HEAD: Final = """\
| source, and set | runs | mean error | median | bias | within low..high |
|---|---|---|---|---|---|
"""


def left_out_table(truth: Path) -> str:
    """Score every source by a fit to the others, and return the table: minutes."""
    scores = without_source(truth)
    rows = "".join(
        f"| {score.dataset} | {score.used} | {score.mape_pct:.1f} | {score.median_ape_pct:.1f} | {score.bias_pct:+.1f} "
        f"| {score.coverage_pct:.0f} |\n"
        for score in scores
    )
    sources: dict[str, list[float]] = {}
    for score in scores:
        sources.setdefault(score.dataset.partition(":")[0], []).append(score.mape_pct or 0.0)
    means = [fmean(errors) for errors in sources.values()]
    mean = f"Mean over the {len(means)} sources {fmean(means):.1f} %, the worst {max(means):.1f} %."
    return f"{_LEFT_OUT_HEAD}{rows}\n{mean}\n"


def main() -> None:
    """Score, and write the pages."""
    if len(sys.argv) != 2:
        sys.exit("which folder of measured runs? python -m tools.scoreboard DIR")
    truth = Path(sys.argv[1])
    blocks = ((_BLOCK, table(truth)), (_CALIBRATED, calibrated_table(truth)), (_LEFT_OUT, left_out_table(truth)))
    for page in PAGES:
        text = page.read_text("utf-8")
        for block, found in blocks:
            text = block.sub(lambda _, found=found: found, text)  # type: ignore[misc]
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
