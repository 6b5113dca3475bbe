"""The summary of a corpus, drawn for a terminal."""

from collections.abc import Iterable
from typing import Final, TextIO

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from lumos_df.base.plain_names import plain
from lumos_df.base.units import format_count, format_ns
from lumos_df.cli.screens.terminal import change_ns, change_pct, console
from lumos_df.corpus.report import AdviceSummary, CorpusSummary, JobSummary, KernelSummary, StragglerSummary
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
"""On a narrower terminal the bar stands without the shares."""


def draw(summary: CorpusSummary, stream: TextIO) -> None:
    """Print `summary` on `stream`, as wide as the terminal."""
    screen = console(stream)
    screen.print(Group(*_parts(summary, screen.width)), soft_wrap=False)


def _parts(summary: CorpusSummary, width: int) -> Iterable[RenderableType]:
    traces = sum(job.traces for job in summary.jobs)
    operators = sum(job.operators for job in summary.jobs)
    gpu_rows = sum(job.gpu_rows for job in summary.jobs)
    yield Text(
        f"{summary.corpus}: {format_count(traces, 'trace')} of {format_count(len(summary.jobs), 'job')}, "
        f"{format_count(operators, 'operator')}, {format_count(gpu_rows, 'GPU row')}"
    )
    corpus = f"--corpus {summary.corpus}"
    if not summary.jobs:
        yield Text(f"no trace yet; add some with: lumos-df ingest TRACE... {corpus}")
        return
    yield from _advice(summary.advice, name_jobs=len(summary.jobs) > 1, corpus=corpus)
    yield Text()
    yield _job_table(summary.jobs[:JOBS_SHOWN], width)
    if len(summary.jobs) > JOBS_SHOWN:
        yield Text(f"and {len(summary.jobs) - JOBS_SHOWN} more jobs: lumos-df report --view corpus_summary {corpus}")
    yield _legend()
    if summary.kernels:
        yield Text("\nmost GPU time", style="bold")
        yield _kernel_table(summary.kernels, width, name_jobs=len(summary.jobs) > 1)
    communicating = [job for job in summary.jobs if job.collectives]
    if communicating:
        yield Text("\nexposed communication", style="bold")
        yield from map(_communication_line, communicating[:COMMUNICATING_SHOWN])
    if summary.stragglers:
        yield Text("\nwaited for", style="bold")
        yield from map(_straggler_line, summary.stragglers[:STRAGGLERS_SHOWN])
    for note in summary.notes:
        yield Text(f"\n{note}")
    warnings = sum(job.warnings for job in summary.jobs)
    if warnings:
        yield Text(
            f'\n{format_count(warnings, "warning")}: lumos-df sql "SELECT path, unnest(warnings) FROM traces" {corpus}'
        )


def _advice(advice: tuple[AdviceSummary, ...], corpus: str, *, name_jobs: bool) -> Iterable[RenderableType]:
    """Return what to change: the first of each job, or the first few of the only one."""
    first = sorted((one for one in advice if one.place == 1), key=lambda one: -one.gain_pct)
    shown = first[:JOBS_SHOWN] if name_jobs else advice[:ADVICE_SHOWN]
    if not shown:
        return
    yield Text("\nwhat to change", style="bold")
    table = Table.grid(padding=(0, 1, 0, 0))
    for justify in ("right", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    for one in shown:
        job = f"{one.job}: " if name_jobs else ""
        gain, share = Text(change_ns(-one.gain_ns), style="bold green"), Text(f"({change_pct(-one.gain_pct)})")
        table.add_row(gain, share, Text(f"{job}{plain(one.what)}  [{one.known}]"))
    yield table
    yield Text(f"{len(advice)} changes with intervals and commands: lumos-df advise {corpus}", style="dim")


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
            Text(job.job),
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
    for part, (mark, style) in zip(STEP_PARTS, _MARKS, strict=True):
        legend.append(mark, style=style).append(f" {part.label}  ")
    return legend


def _kernel_table(kernels: tuple[KernelSummary, ...], width: int, *, name_jobs: bool) -> Table:
    cells = [
        (
            f"{kernel.gpu_pct:.1f}%",
            format_ns(kernel.total_ns),
            f"{kernel.calls:,} x",
            kernel.family,
            *([kernel.job] if name_jobs else []),
        )
        for kernel in kernels
    ]
    # What is short keeps its width; only the kernel's name gives way to a narrow terminal.
    widths = [min(20, max(map(len, column))) for column in zip(*cells, strict=True)]
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for place, column_width in enumerate([*widths, max(20, width - sum(widths) - len(widths) - 1)]):
        justify: JustifyMethod = "right" if place < 3 else "left"
        table.add_column(justify=justify, no_wrap=True, overflow="ellipsis", max_width=column_width)
    for row, kernel in zip(cells, kernels, strict=True):
        table.add_row(*map(Text, row), Text(plain(kernel.name)))
    return table


def _communication_line(job: JobSummary) -> Text:
    waiting, transfer = job.exposed_waiting_pct, job.exposed_transfer_pct
    known = "unknown" if waiting is None or transfer is None else f"{waiting:.0f}%, transfer {transfer:.0f}%"
    matched = f"{job.matched_collectives:,} of {format_count(job.collectives or 0, 'collective')} matched"
    return Text(f"{job.job}: waiting {known}; {matched}")


def _straggler_line(straggler: StragglerSummary) -> Text:
    return Text(
        f"{straggler.job}: rank {straggler.rank}, last to {straggler.times_last} of {straggler.collectives} "
        f"collectives; others waited {format_ns(straggler.made_others_wait_ns)} for it"
    )
