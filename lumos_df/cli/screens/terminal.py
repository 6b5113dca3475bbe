"""One screen of a terminal: lines that never run over its edge, 100 columns where the output is no terminal."""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from lumos_df.base.plain_names import plain
from lumos_df.base.printable import printable
from lumos_df.base.units import format_count, format_ns
from lumos_df.cli.options import DEFAULT_CORPUS
from lumos_df.corpus.object_store import as_named
from lumos_df.corpus.output import screen_columns

if TYPE_CHECKING:
    import duckdb

_WORD: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
"""Of a command: what stands in quotes is one."""
_NOTES: Final = 3
"""Kinds of warnings of a job that are shown."""
_NUMBER: Final = re.compile(r"[0-9][0-9,.]*")


def console(stream: TextIO | None = None) -> Console:
    """Return a stream, standard output by default, as wide as the screen."""
    return Console(file=stream or sys.stdout, highlight=False, width=screen_columns())


def say(screen: Console, *parts: str | tuple[str, str], before: str | Text = "") -> None:
    """Print texts, or (text, style), as one line behind `before`; what does not fit goes on below, as far in.

    Words stay whole where they can.
    """
    lead = _assembled(before)
    for line in _assembled(*parts).wrap(screen, max(20, screen.width - lead.cell_len)):
        line.rstrip()
        screen.print(lead + line, no_wrap=True, overflow="ellipsis", crop=True)
        lead = Text(" " * lead.cell_len)


def say_headline(screen: Console, first: tuple[str, str], *parts: str) -> None:
    """Print (text, style) and what belongs to it as one line; parts that do not fit go on below, each whole, set in."""
    below = "  "
    lines, filled = [[first]], cell_len(first[0])
    for part in parts:
        filled += cell_len(part)
        if filled > screen.width:
            lines.append([])
            filled = cell_len(below + part.lstrip())
        lines[-1].append((part if lines[-1] else part.lstrip(), ""))
    for place, line in enumerate(lines):
        say(screen, *line, before=below if place else "")


def _assembled(*parts: str | tuple[str, str] | Text) -> Text:
    """Return texts, some with a style, as one that no name in it can steer a terminal with."""
    whole = Text()
    for part in parts:
        if isinstance(part, Text):
            whole.append_text(part)
        else:
            text, style = (part, None) if isinstance(part, str) else part
            whole.append(printable(text), style)
    return whole


def with_words_cut(screen: Console, text: str, lead: str | Text) -> str:
    """Return a text in which no word is longer than a line behind `lead`: names of kernels may fill ten."""
    room = max(20, screen.width - _assembled(lead).cell_len)
    return " ".join(word if len(word) <= room else f"{word[: room - 1]}…" for word in text.split(" "))


def say_row(screen: Console, lead: str | Text, text: str, behind: str = "") -> None:
    """Print one line between `lead` and `behind`; a text that does not fit loses its end."""
    before, after = _assembled(lead), Text(printable(behind))
    named = Text(printable(plain(text)))
    named.truncate(max(screen.width - before.cell_len - after.cell_len, 1), overflow="ellipsis")
    line = before + named + after
    line.truncate(screen.width, overflow="ellipsis")
    screen.print(line, no_wrap=True, crop=True)


def draw_table(screen: Console, table: RenderableType) -> None:
    """Print a table without the blanks that fill its last cells."""
    for segments in screen.render_lines(table, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        screen.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def say_command(screen: Console, command: str, before: str = "", program: str = "lumos-df ") -> None:
    """Print a command behind `before`, to be copied; one that does not fit goes on below, as a shell takes it."""
    first, *words = _WORD.findall(printable(f"{program}{command}"))
    lines, mark = [before + first], " \\"
    for place, word in enumerate(words, 1):
        room = screen.width - (len(mark) if place < len(words) else 0)
        if cell_len(f"{lines[-1]} {word}") <= room:
            lines[-1] += f" {word}"
        else:
            lines[-1] += mark
            # A path that fits the screen begins further to the left, so that it stays whole.
            start, opened = cell_len(before) + 2, ""
            start = min(start, room - cell_len(word)) if cell_len(word) <= room else start
            lines.append(f"{' ' * start}{word}")
            # A query longer than the screen goes on behind a blank, a path at the edge. A shell joins both lines, but
            # not within single quotes: these end here, and begin again.
            while cell_len(lines[-1]) > room:
                edge = max(screen.width - 2, 2)
                cut = lines[-1].rfind(" ", start, edge) + 1 or edge
                quote = _open_quote(f"{opened}{lines[-1][start:cut]}")
                again, opened = (quote, "") if quote == "'" else ("", quote)
                lines[-1:], start = [f"{lines[-1][:cut]}{again}\\", f"{again}{lines[-1][cut:]}"], 0
    for line in lines:
        screen.print(Text(line, "dim"), no_wrap=True, overflow="ignore", crop=False)


def _open_quote(text: str) -> str:
    """Return the quote that a shell has open behind a text, nothing where it has none."""
    quote = ""
    for letter in text:
        if letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
    return quote


def say_next(screen: Console, *commands: str) -> None:
    """Print which commands to try next."""
    for place, command in enumerate(commands):
        say_command(screen, command, before="      " if place else "next: ")


def where(corpus: object) -> str:
    """Return what a command needs behind it to mean this corpus."""
    return "" if corpus == DEFAULT_CORPUS else f" --corpus {as_named(str(corpus))}"


def of_job(corpus: Path, trace_ids: Iterable[str]) -> str:
    """Return what a command needs behind it to mean the job that a screen is about, some of whose traces are given.

    Nothing where the corpus has no other, or the screen is about several; its trace, where others have its name.
    """
    from lumos_df.graph.job import jobs  # noqa: PLC0415 - slow to import

    every, shown = jobs(corpus, needed=False), {*trace_ids}
    mine = [job for job in every if not shown.isdisjoint(job.trace_ids)]
    names = {job.name for job in mine}
    if len(names) != 1 or len(mine) == len(every):
        return ""
    (name,) = names
    if len(mine) == sum(job.name == name for job in every):
        return f" --job {shlex.quote(name)}"
    return f" --trace {mine[0].trace_ids[0]}" if len(mine) == 1 else ""


def called(corpus: Path, trace_ids: Iterable[str]) -> dict[str, str]:
    """Return what a screen calls the job of each trace: its name, and its first trace where others shown have that."""
    from lumos_df.graph.job import jobs  # noqa: PLC0415 - slow to import

    shown = {*trace_ids}
    mine = [job for job in jobs(corpus, needed=False) if not shown.isdisjoint(job.trace_ids)]
    alike = Counter(job.name for job in mine)
    return {
        trace_id: job.name + (f" ({job.trace_ids[0]})" if alike[job.name] > 1 else "")
        for job in mine
        for trace_id in job.trace_ids
        if trace_id in shown
    }


def change_ns(ns: float) -> str:
    """Return the change of a time with its sign: `-310 ms`, `+4 us`."""
    if not round(ns):
        return "0 ns"
    return f"{'+' if ns > 0 else '-'}{format_ns(abs(round(ns)))}"


def change_of(old: float, new: float) -> str:
    """Return the change from one time to another: `-51%`, from ten times on `4,370,000 times as long`."""
    times = new / old
    return f"{float(f'{times:.3g}'):,.0f} times as long" if times >= 10 else change_pct(100 * (times - 1))


def change_pct(pct: float) -> str:
    """Return the change of a share with its sign: `-51%`, `-0.8%`."""
    text = f"{pct:+.{0 if abs(pct) >= 9.95 else 1}f}%"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


def grouped(warnings: Iterable[str]) -> list[str]:
    """Return warnings that differ in numbers alone as one, the most frequent first, with how many more there are.

    What is said of several steps or ranks in the same words is one warning.
    """
    kinds: dict[str, str] = {}
    count: Counter[str] = Counter()
    for warning in dict.fromkeys(warnings):
        kind = _NUMBER.sub("#", warning)
        kinds.setdefault(kind, warning)
        count[kind] += 1
    return [
        kinds[kind] + (f" (and {times - 1} more like it)" if times > 1 else "") for kind, times in count.most_common()
    ]


def say_notes(screen: Console, warnings: Iterable[str], *, full: bool, before: str = "  ") -> None:
    """Print warnings, alike ones once: all of them if `full`, else as many as a screen has room for, and how many not.

    Args:
        screen: where to.
        warnings: what to say.
        full: whether to print them all.
        before: what stands before each line.
    """
    notes = grouped(warnings)
    for note in notes if full else notes[:_NOTES]:
        say(screen, note, before=f"{before}note: ")
    if len(notes) > _NOTES and not full:
        say(screen, f"and {format_count(len(notes) - _NOTES, 'more note')}: --full", before=before)


def rows_of(connection: "duckdb.DuckDBPyConnection", query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Return the rows of a query, each by the names of its columns."""
    from lumos_df.corpus.catalog import one_line_errors  # noqa: PLC0415 - imports DuckDB

    with one_line_errors():
        result = connection.execute(query, list(values))
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
