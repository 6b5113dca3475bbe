"""The summary of a corpus, drawn for a terminal."""

from collections import Counter
from typing import Final, TextIO

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from lumos_df.base.plain_names import plain
from lumos_df.base.printable import printable
from lumos_df.base.units import format_count, format_ns
from lumos_df.cli.screens.terminal import change_ns, change_pct, console, draw_table, say, say_command, with_words_cut
from lumos_df.corpus.report import CorpusSummary, JobSummary, KernelSummary, StragglerSummary
from lumos_df.graph import typical_values
from lumos_df.schema import STEP_PARTS

JOBS_SHOWN: Final = 12
COMMUNICATING_SHOWN: Final = 6
STRAGGLERS_SHOWN: Final = 3
ADVICE_SHOWN: Final = 3

_MARKS: Final = (("█", "green"), ("▓", "cyan"), ("▒", "red"), ("░", "bright_black"))
"""Mark and colour of each of `STEP_PARTS`; the marks differ without colour, too."""

_BESIDES_BAR: Final = 50
"""What a line of the job table takes besides the job and the bar."""

_SHARES: Final = 22
"""What of that the four shares take."""
_NARROW: Final = 72
"""On a narrower terminal the bar stands without the shares, and a kernel without its family."""


def draw(summary: CorpusSummary, stream: TextIO) -> None:
    """Print `summary` on `stream`, as wide as the terminal."""
    screen = console(stream)
    for limit in summary.limits:
        say(screen, (limit, "bold"))
    traces = sum(job.traces for job in summary.jobs)
    operators = sum(job.operators for job in summary.jobs)
    gpu_rows = sum(job.gpu_rows for job in summary.jobs)
    say(
        screen,
        f"{summary.corpus}: {format_count(traces, 'trace')} of {format_count(len(summary.jobs), 'job')}, "
        f"{format_count(operators, 'operator')}, {format_count(gpu_rows, 'GPU row')}",
    )
    corpus = f" --corpus {summary.corpus}"
    if not summary.jobs:
        say(screen, "nothing can be said: no trace yet; add some with:")
        say_command(screen, f"ingest TRACE...{corpus}", before="  ")
        return
    _draw_advice(screen, summary, corpus)
    _draw_jobs(screen, summary, corpus)
    _draw_gpu(screen, summary)
    for note in summary.notes:
        screen.print()
        say(screen, f"{note.what}:")
        say_command(screen, note.command, before="  ")
    warnings = sum(job.warnings for job in summary.jobs)
    if warnings:
        screen.print(f"\n{format_count(warnings, 'warning')} of the files:")
        say_command(screen, f'sql "SELECT path, unnest(warnings) FROM traces"{corpus}', before="  ")


def _draw_jobs(screen: Console, summary: CorpusSummary, corpus: str) -> None:
    """Print a line a job: where its steps go."""
    screen.print()
    draw_table(screen, _job_table(summary.jobs[:JOBS_SHOWN], screen.width))
    if len(summary.jobs) > JOBS_SHOWN:
        say(screen, f"and {len(summary.jobs) - JOBS_SHOWN} more jobs:")
        say_command(screen, f"report --view corpus_summary{corpus}", before="  ")
    screen.print(_legend())


def _draw_gpu(screen: Console, summary: CorpusSummary) -> None:
    """Print what took most time on GPUs, and who waits for whom."""
    if summary.kernels:
        screen.print("\nmost GPU time", style="bold")
        draw_table(screen, _kernel_table(summary.kernels, screen.width, name_jobs=len(summary.jobs) > 1))
    communicating = [job for job in summary.jobs if job.collectives]
    if communicating:
        screen.print("\nexposed communication", style="bold")
        for job in communicating[:COMMUNICATING_SHOWN]:
            say(screen, _communication_line(job))
    if summary.stragglers:
        screen.print("\nwaited for", style="bold")
        for straggler in summary.stragglers[:STRAGGLERS_SHOWN]:
            say(screen, _straggler_line(straggler))


def _draw_advice(screen: Console, summary: CorpusSummary, corpus: str) -> None:
    """Print what to change: the first of each job or run, or the first few of the only one; or that there is none."""
    if not summary.advised:
        return
    first = sorted((advice for advice in summary.advice if advice.place == 1), key=lambda advice: -advice.gain_pct)
    runs = Counter(advice.job for advice in first)
    name_jobs = len(summary.jobs) > 1 or len(first) > 1
    shown = first[:JOBS_SHOWN] if name_jobs else summary.advice[:ADVICE_SHOWN]
    screen.print("\nwhat to change", style="bold")
    for advice in shown:
        which = f" ({advice.trace_id})" if runs[advice.job] > 1 else ""
        job = f"{advice.job}{which}: " if name_jobs else ""
        share = f"({change_pct(-advice.gain_pct)})"
        lead = Text.assemble((f"{change_ns(-advice.gain_ns):>9}", "bold green"), f" {share:>7}  ")
        what = with_words_cut(screen, plain(advice.what), lead)
        say(screen, f"{job}{what}  [{advice.known}]", before=lead)
    without = [job for job in summary.advised if job not in {advice.job for advice in first}]
    if without:
        names = f" in {', '.join(without)}" if name_jobs else ""
        say(screen, f"nothing found that makes the step at least {typical_values.LEAST_PCT:g}% shorter{names}")
    if summary.advice:
        say(screen, f"{format_count(len(summary.advice), 'change')} with intervals and commands:")
    else:
        say(screen, "what the critical path is made of instead:")
    say_command(screen, f"advise{corpus}", before="  ")


def _job_table(jobs: tuple[JobSummary, ...], width: int) -> Table:
    job_width = max(3, min(24, width // 5, max(len(job.job) for job in jobs)))
    narrow = width < _NARROW
    bar_width = max(13, min(40, width - job_width - (_BESIDES_BAR - _SHARES if narrow else _BESIDES_BAR)))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("job", overflow="ellipsis", no_wrap=True, min_width=job_width, max_width=job_width)
    for title in ("ranks", "steps", "step"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("where it goes"[:bar_width], no_wrap=True, min_width=bar_width)
    for title in () if narrow else ("comp", "over", "comm", "other"):
        table.add_column(title, justify="right", no_wrap=True)
    for job in jobs:
        shares = [getattr(job, f"{part.name}_pct") for part in STEP_PARTS]
        measured = job.gpu_rows > 0 and None not in shares
        table.add_row(
            Text(printable(job.job)),
            str(job.ranks),
            str(job.steps or "-"),
            "-" if job.mean_step_ns is None else format_ns(job.mean_step_ns),
            _bar(shares, bar_width) if measured else Text("no GPU", style="bright_black"),
            *(f"{share:.0f}%" if measured else "-" for share in shares if not narrow),
        )
    return table


def _bar(shares: list[float], width: int) -> Text:
    """Draw shares of 100, rounded so that the whole bar is `width` wide."""
    bar = Text()
    drawn, total = 0, 0.0
    for share, (mark, style) in zip(shares, _MARKS, strict=True):
        total += share
        end = min(width, round(total * width / 100))
        bar.append(mark * (end - drawn), style=style)
        drawn = end
    return bar


def _legend() -> Text:
    legend = Text()
    for place, (part, (mark, style)) in enumerate(zip(STEP_PARTS, _MARKS, strict=True)):
        legend.append("  " if place else "").append(mark, style=style).append(f" {part.label}")
    return legend


def _kernel_table(kernels: tuple[KernelSummary, ...], width: int, *, name_jobs: bool) -> Table:
    cells = [
        (
            f"{kernel.gpu_pct:.1f}%",
            format_ns(kernel.total_ns),
            f"{kernel.calls:,} x",
            *([] if width < _NARROW else [kernel.family]),
            *([kernel.job] if name_jobs else []),
        )
        for kernel in kernels
    ]
    # What is short keeps its width; only the kernel's name gives way to a narrow terminal.
    longest = 12 if width < _NARROW else 20
    widths = [min(longest, max(map(len, column))) for column in zip(*cells, strict=True)]
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for place, column_width in enumerate([*widths, max(20, width - sum(widths) - len(widths) - 1)]):
        justify: JustifyMethod = "right" if place < 3 else "left"
        table.add_column(justify=justify, no_wrap=True, overflow="ellipsis", max_width=column_width)
    for row, kernel in zip(cells, kernels, strict=True):
        table.add_row(*map(Text, map(printable, row)), Text(printable(plain(kernel.name))))
    return table


def _communication_line(job: JobSummary) -> str:
    waiting, transfer = job.exposed_waiting_pct, job.exposed_transfer_pct
    known = "unknown" if waiting is None or transfer is None else f"{waiting:.0f}%, transfer {transfer:.0f}%"
    matched = f"{job.matched_collectives:,} of {format_count(job.collectives or 0, 'collective')} matched"
    return f"{job.job}: waiting {known}; {matched}"


def _straggler_line(straggler: StragglerSummary) -> str:
    return (
        f"{straggler.job}: rank {straggler.rank}, last to {straggler.times_last} of {straggler.collectives} "
        f"collectives; others waited {format_ns(straggler.made_others_wait_ns)} for it"
    )
