"""The difference of two steps on one screen: how much, what made it, and where in the model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa

from lumos_df.base.units import format_ns
from lumos_df.cli.screens.terminal import change_ns, change_pct, console, say, say_next, say_row, where
from lumos_df.corpus.diff import ComparedStep, Grouping

if TYPE_CHECKING:
    from rich.console import Console

_ROWS: Final = 8
"""Rows of a grouping that are shown."""
_LEAST_PCT: Final = 0.1
"""Threshold, percent of the step. Smaller differences are counted and not shown. Evidence: a judgement."""
_ON_SCREEN: Final = (Grouping.CAUSE, Grouping.LAYER)
"""Groupings that are shown when none is asked for."""


def draw(rows: pa.Table, steps: tuple[ComparedStep, ComparedStep], corpus: Path, *, asked: bool, full: bool) -> None:
    """Print the difference of two steps; rows and steps as `corpus.diff.diff` returns them.

    Args:
        rows: of the groupings to show.
        steps: what is compared.
        corpus: the corpus.
        asked: whether someone named these groupings; else those without news are left out.
        full: whether every row is shown.
    """
    screen = console()
    table = pl.DataFrame(rows)
    step = table.row(0, named=True)
    share = f", {change_pct(step['difference_pct'])}" if step["difference_pct"] is not None else ""
    times = f"step {format_ns(step['a_ns'])} -> {format_ns(step['b_ns'])}"
    say(screen, (times, "bold"), f"  ({change_ns(step['difference_ns'])}{share})")
    layers = any(compared.has_layers for compared in steps)
    shown = [group for group in _ON_SCREEN if group is not Grouping.LAYER or layers]
    for (grouping,), parts in table.slice(1).group_by("what", maintain_order=True):
        if asked or full or grouping in shown:
            if grouping != Grouping.CAUSE:
                say(screen, f"by {grouping}")
            _draw_parts(screen, parts, step["a_ns"], full=full)
    both = " ".join(compared.asked for compared in steps)
    slower = steps[int(step["difference_ns"] > 0)]
    more = [] if asked else [f"diff {both} --by operator{where(corpus)}"]
    if slower.rank is not None and slower.has_gpu:
        chosen = "" if slower.step is None else f" --step {slower.step}"
        more.append(f"critical-path --trace {slower.trace_id}{chosen}{where(corpus)}")
    say_next(screen, *more)


def _draw_parts(screen: "Console", parts: pl.DataFrame, step_ns: int, *, full: bool) -> None:
    """Print the rows of one grouping, the largest differences first."""
    large = parts.filter(pl.col("difference_ns").abs() * 100 >= _LEAST_PCT * max(step_ns, 1))
    shown = parts if full else large.head(_ROWS)
    for row in shown.iter_rows(named=True):
        say_row(screen, f"  {change_ns(row['difference_ns']):>9}   ", row["value"], _both(row))
    rest = len(parts) - len(shown)
    if rest:
        left = sum(parts["difference_ns"].to_list()) - sum(shown["difference_ns"].to_list())
        less, within = len(parts) - len(large), f"within {_LEAST_PCT:g}%"
        small = f" {within}" if less == rest else f", {less} of them {within}" if less else ""
        say(screen, f"  {change_ns(left):>9}   {rest}{' more' if len(shown) else ''}{small}: --full")


def _both(row: dict[str, Any]) -> str:
    """Return what both steps take, and of how many operators where that differs."""
    before, after = row["a_operators"], row["b_operators"]
    calls = f", {before:,} -> {after:,} calls" if before and after and before != after else ""
    return f"  ({format_ns(row['a_ns'])} -> {format_ns(row['b_ns'])}{calls})"
