"""The difference of two steps on one screen: how much, and the largest parts of it in every grouping."""

from typing import Final

import polars as pl
import pyarrow as pa

from lumos_df.base.units import format_ns
from lumos_df.cli.screens.terminal import change_ns, change_pct, console, say, say_row

_ROWS: Final = 4
"""Rows of a grouping that are shown."""
_LEAST_PCT: Final = 0.1
"""Threshold, percent of the step. Smaller differences are counted and not shown. Evidence: a judgement."""


def draw(rows: pa.Table, *, full: bool) -> None:
    """Print the difference of two steps; rows as `corpus.diff.diff` returns them."""
    screen = console()
    table = pl.DataFrame(rows)
    step = table.row(0, named=True)
    share = f", {change_pct(step['difference_pct'])}" if step["difference_pct"] is not None else ""
    times = f"step {format_ns(step['a_ns'])} -> {format_ns(step['b_ns'])}"
    say(screen, (times, "bold"), f"  ({change_ns(step['difference_ns'])}{share})")
    for (grouping,), parts in table.slice(1).group_by("what", maintain_order=True):
        say(screen, f"by {grouping}")
        large = parts.filter(pl.col("difference_ns").abs() * 100 >= _LEAST_PCT * max(step["a_ns"], 1))
        shown = parts if full else large.head(_ROWS)
        for row in shown.iter_rows(named=True):
            both = f"({format_ns(row['a_ns'])} -> {format_ns(row['b_ns'])})"
            say_row(screen, f"  {change_ns(row['difference_ns']):>9}   ", f"{row['value']}  {both}")
        rest = len(parts) - len(shown)
        if rest:
            left = sum(parts["difference_ns"].to_list()) - sum(shown["difference_ns"].to_list())
            say(screen, f"  {change_ns(left):>9}   {rest} more: --full")
