"""Estimates against measurements on one screen: how far off they are, and what a calibration makes of that."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from lumos_df.base.units import format_count
from lumos_df.cli.screens.terminal import change_pct, console, say, say_next, say_row

if TYPE_CHECKING:
    from rich.console import Console

    from lumos_df.calibrate.corpus_findings import Finding
    from lumos_df.calibrate.runs_machine import Calibration
    from lumos_df.calibrate.scoreboard import Score

_NAME: Final = 42
"""Columns of a name."""
_REASONS: Final = 3
"""Reasons of a set that are shown, those of most runs first; `--format table` has all of them."""


def draw_scores(scores: "Sequence[Score]", truth: Path) -> None:
    """Print how far estimates are from the measured runs of some sets, a line a set."""
    screen = console()
    used, rows = (sum(getattr(score, column) for score in scores) for column in ("used", "rows"))
    known = [score.mape_pct for score in scores if score.mape_pct is not None]
    off = f", {median(known):.1f}% off on average" + (" in the middle set" if len(known) > 1 else "") if known else ""
    say(screen, (f"{used:,} of {format_count(rows, 'measured run')} estimated{off}", "bold"))
    say_row(screen, f"{'set':<{_NAME}}", "  runs  error  middle  9 of 10    bias  in range  memory")
    for score in scores:
        say_row(screen, f"{score.dataset:<{_NAME}}", _figures(score))
        if fits := _wrong_fits(score):
            say(screen, fits, before="  ")
        for refused in score.refused_reasons[:_REASONS]:
            say(screen, f"{int(refused['rows']):,} not estimated: {refused['reason']}", before="  ")
        if rest := score.refused_reasons[_REASONS:]:
            runs = sum(int(refused["rows"]) for refused in rest)
            say(screen, f"{runs:,} not estimated for {format_count(len(rest), 'other reason')}", before="  ")
    say_next(screen, f"scoreboard --truth {truth} --format table", "calibrate RUNS.csv --hardware NAME")


def _figures(score: "Score") -> str:
    bias = "-" if score.bias_pct is None else change_pct(score.bias_pct)
    errors = _percent(score.mape_pct, 7) + _percent(score.median_ape_pct, 8) + _percent(score.p90_ape_pct, 9)
    return f"{score.used:>6,}{errors}{bias:>8}{_percent(score.coverage_pct, 10)}{_percent(score.memory_mape_pct, 8)}"


def _wrong_fits(score: "Score") -> str:
    ran, crashed = score.ran_said_too_large, score.crashed_said_to_fit
    told = [f"{format_count(ran, 'run')} said not to fit"] if ran else []
    told += [f"{crashed:,} of {format_count(score.crashed, 'crashed run')} said to fit"] if crashed else []
    return ", ".join(told)


def draw_calibration(calibration: "Calibration") -> None:
    """Print what a calibration on measured runs brings, and where it is."""
    screen = console()
    say(
        screen,
        (f"{format_count(calibration.runs, 'run')}: {calibration.mape_before_pct:.1f}% off as they are, ", "bold"),
        (f"{calibration.mape_after_pct:.1f}% calibrated; expect {calibration.mape_left_out_pct:.1f}% ", "bold"),
        ("of a run that was not measured", "bold"),
    )
    factors = (f"{kind} x{factor:.2f}" for kind, factor in calibration.factors.items())
    say(screen, ", ".join(factors), before="time of ")
    for reason, rows in calibration.refused.items():
        say(screen, f"{rows:,} not estimated: {reason}", before="  ")
    _draw_files(screen, calibration.hardware_file, calibration.software_files)


def draw_findings(findings: "Sequence[Finding]", hardware_file: str, software_file: str) -> None:
    """Print what the kernels of a corpus say of a machine, a line a figure, and where it is."""
    screen = console()
    kernels = sum(finding.kernels for finding in findings)
    say(screen, (f"{format_count(kernels, 'kernel')} set {format_count(len(findings), 'figure')}", "bold"))
    say_row(screen, f"{'figure':<{_NAME}}", "   before      after   error before  after   kernels")
    for finding in findings:
        errors = f"{_percent(finding.error_before_pct, 15)}{_percent(finding.error_after_pct, 7)}"
        both = f"{finding.before:>9.3g}  {finding.after:>9.3g}"
        say_row(screen, f"{finding.figure:<{_NAME}}", f"{both}{errors}{finding.kernels:>10,}")
    _draw_files(screen, hardware_file, [software_file])


def _draw_files(screen: "Console", hardware_file: str, software_files: Sequence[str]) -> None:
    software = " or ".join(f"software={file}" for file in software_files)
    say_next(screen, f"estimate --model NAME --hardware {hardware_file} --plan PLAN,{software}")


def _percent(pct: float | None, width: int) -> str:
    return f"{'-' if pct is None else f'{pct:.1f}%':>{width}}"
