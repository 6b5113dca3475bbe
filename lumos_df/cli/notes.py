"""What commands tell on standard error besides their result; of an ingest the line that is its result."""

import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lumos_df.base.printable import printable
from lumos_df.base.units import format_count
from lumos_df.corpus.object_store import as_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb

    from lumos_df.corpus.diff import ComparedStep
    from lumos_df.estimate.search import Found
    from lumos_df.generate.benchmark_folder import Generated
    from lumos_df.trace.ingest import IngestResult, Sampled

FITS: Final = "fits"
"""The condition of a search that nobody gave another."""
_KINDS_SHOWN: Final = 10
"""Kinds of warnings of which one is shown."""
_NUMBER: Final = re.compile(r"[0-9][0-9,.]*")
"""Warnings that differ in numbers alone are of one kind."""


def tell(sentence: str) -> None:
    """Say something besides the result."""
    print(printable(as_named(sentence)), file=sys.stderr)


def limits(
    connection: "duckdb.DuckDBPyConnection",
    names: "Iterable[str]",
    trace_ids: "Sequence[str] | None" = None,
    *,
    on_screen: bool = True,
) -> None:
    """Say what some views cannot say, and why: on the screen, or beside a result that a program reads."""
    from lumos_df.corpus.limits import of_views  # noqa: PLC0415 - slow to import

    for line in of_views(connection, names, trace_ids):
        if on_screen:
            from lumos_df.cli.screens.terminal import console, say  # noqa: PLC0415 - as above

            say(console(), (line, "bold"))
        else:
            tell(line)


def ingested(result: "IngestResult", corpus: Path) -> None:
    """Say what became of every file, with the first warnings."""
    for failed in result.failed:
        tell(f"lumos-df: {failed.message}")
    by_kind: dict[str, list[str]] = {}
    for done in result.done:
        for warning in done.warnings:
            by_kind.setdefault(_NUMBER.sub("#", warning), []).append(f"{done.path}: {warning}")
    kinds = sorted(by_kind.values(), key=len, reverse=True)
    for alike in kinds[:_KINDS_SHOWN]:
        more = f" (and {format_count(len(alike) - 1, 'warning')} like it)" if len(alike) > 1 else ""
        tell(f"warning: {alike[0]}{more}")
    warnings = sum(map(len, kinds))
    if len(kinds) > _KINDS_SHOWN or warnings > len(kinds):
        every = f'lumos-df sql "SELECT path, unnest(warnings) FROM traces" --corpus {as_named(str(corpus))}'
        print(
            f"warning: {format_count(warnings, 'warning')} of {format_count(len(kinds), 'kind')}; {every}",
            file=sys.stderr,
        )
    read = {
        "file": len(result.done),
        "trace": sum(len(done.trace_ids) for done in result.done),
        "event": sum(done.events for done in result.done),
        "operator": sum(done.operators for done in result.done),
    }
    skipped = Counter(skip.reason for skip in result.skipped)
    print(
        f"{as_named(str(corpus))}: read {', '.join(format_count(number, noun) for noun, number in read.items())}",
        *(f"skipped {format_count(number, 'file')} ({reason})" for reason, number in skipped.items()),
        *([f"{format_count(len(result.failed), 'file')} failed"] if result.failed else []),
        *([format_count(warnings, "warning")] if warnings else []),
        *([_chosen(result.sampled)] if result.sampled else []),
        sep="; ",
    )


def _chosen(sampled: "Sequence[Sampled]") -> str:
    """Return how many files of how many were chosen, of the jobs that have more than were asked for."""
    jobs = f"job {sampled[0].job}" if len(sampled) == 1 else format_count(len(sampled), "job")
    chosen, files = sum(job.chosen for job in sampled), sum(job.files for job in sampled)
    return f"chosen {chosen:,} of {files:,} files of {jobs} (--sample {sampled[0].asked})"


def compared(step: "ComparedStep", corpus: Path, *, layers: bool) -> None:
    """Say which step was compared, and where `layers` are wanted that none are known."""
    if step.rank is None:
        print(f"{step.asked}: the step of {step.trace_id}, its layers those of the whole model", file=sys.stderr)
        return
    median = f", the median of {step.candidates}" if step.candidates > 1 else ""
    which = "the whole trace" if step.step is None else f"step {step.step}"
    print(f"{step.asked}: {which} of rank {step.rank}, trace {step.trace_id}{median}", file=sys.stderr)
    if layers and not step.has_layers:
        see = f"lumos-df describe --corpus {as_named(str(corpus))} --trace {step.trace_id}"
        print(f"{step.asked}: no layers are known; to look for them: {see}", file=sys.stderr)


def searched(result: "Found", condition: str) -> None:
    """Say what a search refused, with an example of each reason, and how many configurations are left."""
    for line in _refusals(result):
        print(line, file=sys.stderr)
    print(counted(result, condition), file=sys.stderr)


def generated(written: "Generated", output: Path) -> None:
    """Say what a benchmark holds, how to run it, and which ranks it lacks."""
    from lumos_df.cli.screens.terminal import console, say, say_command  # noqa: PLC0415 - slow to import

    screen = console(sys.stderr)
    replaced = f", {written.replaced_pct:.1f}% by others that stand for them" if written.replaced_pct else ""
    say(
        screen,
        f"{output}: {format_count(written.ranks, 'rank')}, {format_count(written.operators, 'operator')} for "
        f"{written.share_pct:.1f}% of the {written.share_is_of}{replaced}",
    )
    launch = "python" if written.ranks == 1 else f"torchrun --nproc-per-node {written.ranks}"
    say_command(screen, f"{launch} {shlex.quote(f'{output}/benchmark.py')}", before="run: ", program="")
    if written.missing:
        names = ", ".join(map(str, written.missing[:_KINDS_SHOWN])) + (
            " ..." if len(written.missing) > _KINDS_SHOWN else ""
        )
        say(screen, f"without {format_count(len(written.missing), 'rank')} ({names}): collectives run without, or copy")


def counted(result: "Found", condition: str) -> str:
    """Return how many configurations a search looked at, and how many were left by its condition, in SQL."""
    kept = "fit" if condition == FITS else f"meet{'s' if result.kept == 1 else ''} the condition"
    return (
        f"{format_count(result.configurations, 'configuration')}; {result.legal:,} legal and estimated; "
        f"{result.kept:,} {kept}"
    )


def nothing_kept(result: "Found", condition: str) -> list[str]:
    """Return what to say where a search left no configuration: how many there were, and why none is left."""
    if not result.legal:
        return [counted(result, condition), *_refusals(result)]
    why = "no plan fits into the memory" if condition == FITS else "no plan meets the condition"
    return [counted(result, condition), f"{why}; --where true shows what there is"]


def _refusals(result: "Found") -> list[str]:
    return [
        f"refused {refusal.count:,} by {field}, such as {refusal.example}" for field, refusal in result.refused.items()
    ]


def software_of_profile(unfitted: str) -> None:
    """Say why the software's figures were not taken from the recorded step, where they were not."""
    if unfitted:
        print(f"the software's figures stay as in its profile: {unfitted}", file=sys.stderr)


def calibrated(hardware: str, software: str) -> None:
    """Say how to estimate with the files that a calibration wrote."""
    print(f"estimate with --hardware {hardware} and {software} in the plan", file=sys.stderr)


def refused(where: str, reasons: "Mapping[str, int]") -> None:
    """Say which rows of measured runs were refused: how many, by reason."""
    for reason, rows in reasons.items():
        print(f"{where}: refused {format_count(rows, 'row')}: {reason}", file=sys.stderr)
