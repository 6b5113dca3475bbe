"""One screen of a terminal: lines that never run over its edge, 100 columns where the output is no terminal."""

import sys
from typing import Final

from rich.console import Console
from rich.text import Text

from lumos_df.base.units import format_ns

PIPED_COLUMNS: Final = 100
"""Columns of a screen that is written to a file or a pipe."""


def console() -> Console:
    """Return standard output as wide as its terminal."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PIPED_COLUMNS)


def say(screen: Console, *parts: str | tuple[str, str], before: str | Text = "") -> None:
    """Print texts, or (text, style), as one line behind `before`; what does not fit goes on below, as far in.

    Words stay whole where they can.
    """
    lead = Text.assemble(before)
    for line in Text.assemble(*parts).wrap(screen, max(20, screen.width - lead.cell_len)):
        line.rstrip()
        screen.print(lead + line, no_wrap=True, overflow="ellipsis", crop=True)
        lead = Text(" " * lead.cell_len)


def change_ns(ns: float) -> str:
    """Return the change of a time with its sign: `-310 ms`, `+4 us`."""
    return f"{'+' if ns > 0 else '-'}{format_ns(abs(round(ns)))}"


def change_pct(pct: float) -> str:
    """Return the change of a share with its sign: `-51%`, `-0.8%`."""
    digits = 0 if abs(pct) >= 9.95 else 1
    return f"{pct:+.{digits}f}%"
