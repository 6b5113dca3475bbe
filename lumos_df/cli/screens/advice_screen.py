"""Advice on one screen: what to change, each change with its gain and how it is known, and what would not help."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.text import Text

from lumos_df.base.plain_names import plain
from lumos_df.base.units import format_count, format_ns
from lumos_df.cli.screens.terminal import (
    change_ns,
    change_pct,
    console,
    say,
    say_command,
    say_next,
    say_notes,
    where,
    with_words_cut,
)

if TYPE_CHECKING:
    from rich.console import Console

    from lumos_df.advice.job_advice import JobAdvice
    from lumos_df.advice.ranked_advice import Advice

ADVICE_SHOWN: Final = 8
"""Of one job."""
_OF_MANY: Final = 2
"""Of each of several jobs."""
_NO_HELP: Final = 3
"""Changes that would not help, of a job."""


def draw(jobs: "list[JobAdvice]", corpus: Path, *, full: bool = False) -> None:
    """Print the advice on some jobs of a corpus: all of it if `full`, else what fits on a screen."""
    screen = console()
    most = None if full else ADVICE_SHOWN if len(jobs) == 1 else _OF_MANY
    for place, job in enumerate(jobs):
        if place:
            screen.print()
        alike = sum(other.job == job.job for other in jobs)
        _draw_job(screen, job, f" ({job.trace_id})" if alike > 1 else "", corpus, most)


def _draw_path(screen: "Console", job: "JobAdvice", corpus: Path) -> None:
    """Print what the step of a job is about that nothing is known to shorten."""
    from lumos_df.cli.screens.path_screen import draw_longest  # noqa: PLC0415 - imports DuckDB
    from lumos_df.corpus.catalog import connect  # noqa: PLC0415 - as above

    say(screen, "its critical path is made of:")
    with connect(corpus) as connection:
        draw_longest(screen, connection, list(job.trace_ids))
    say_next(screen, f"critical-path --trace {job.trace_id}{where(corpus)}")


def _draw_unseen(screen: "Console", job: "JobAdvice", corpus: Path) -> None:
    """Print how much of the step of a job waits, or may wait, for ranks of which no trace is there."""
    from lumos_df.cli.screens.path_screen import draw_unseen  # noqa: PLC0415 - imports DuckDB
    from lumos_df.corpus.catalog import connect  # noqa: PLC0415 - as above

    with connect(corpus) as connection:
        draw_unseen(screen, connection, list(job.trace_ids), corpus)


def _draw_job(screen: "Console", job: "JobAdvice", which: str, corpus: Path, most: int | None) -> None:
    """Print the advice on one job; `which`: which of several of its name."""
    for limit in job.limits:
        say(screen, (limit, "bold"))
    if not job.step_ns:
        say(screen, (job.job, "bold"), f"{which}, {job.verdict}")
        return
    machine = f"{job.ranks} {job.device_name}" if job.device_name else format_count(job.ranks, "rank")
    say(screen, (job.job, "bold"), f"{which}, {format_ns(job.step_ns)} a step on {machine}")
    if job.lacks_ranks:
        _draw_unseen(screen, job, corpus)
    say_notes(screen, job.warnings, full=most is None, before="")
    worth = job.found
    if not worth:
        say(screen, job.verdict)
    for place, advice in enumerate(worth[:most], 1):
        _draw_advice(screen, place, advice, job, where(corpus))
    if most is not None and len(worth) > most:
        say(screen, f"and {len(worth) - most} more: --full")
    rest = [advice for advice in job.advice if not advice.worthwhile][: None if most is None else _NO_HELP]
    if rest:
        gains = (f"{a.remedy.what}, {change_pct(-100 * a.gain_ns / max(job.step_ns, 1))}" for a in rest)
        say(screen, "; ".join(gains), before="not worth it: ")
    if job.without:
        _draw_path(screen, job, corpus)


def _draw_advice(screen: "Console", place: int, advice: "Advice", job: "JobAdvice", in_corpus: str) -> None:
    remedy = advice.remedy
    share = f"({change_pct(-100 * advice.gain_ns / job.step_ns)})"
    lead = Text.assemble(f"{place:>2} ", (f"{change_ns(-advice.gain_ns):>9}", "bold green"), f" {share:>7}  ")
    say(screen, f"{with_words_cut(screen, plain(remedy.what), lead)}  [{remedy.known}]", before=lead)
    between = f"{change_ns(-advice.high_ns)} to {change_ns(-advice.low_ns)}; {advice.rests_on}"
    say(screen, (between, "dim"), before=" " * lead.cell_len)
    say_command(screen, f"{job.command(place)}{in_corpus}", before=" " * lead.cell_len)
