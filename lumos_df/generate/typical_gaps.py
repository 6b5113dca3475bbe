"""The host's own time between the calls of a step, as most of the recorded steps have it.

A pause of the machine lengthens one gap of one step: another one in the next. Where steps are alike, call by call, the
median over them is what the job itself takes there.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from lumos_df.generate.call_order import ordered
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay

if TYPE_CHECKING:
    import duckdb

_MOST_STEPS: Final = 9
"""Steps that are read, the nearest ones: a median of more hardly differs, and takes as much longer to read."""
_NEAREST: Final = """
WITH sizes AS (
  SELECT step, count(*) AS rows FROM operators
  WHERE trace_id = $trace AND kind = 'cpu_op' AND step IS NOT NULL GROUP BY step
)
SELECT step FROM sizes
WHERE step != $step AND rows = (SELECT rows FROM sizes WHERE step = $step)
ORDER BY abs(step - $step), step LIMIT $most
"""


@dataclass(frozen=True, slots=True)
class TypicalGaps:
    """What the host takes between calls."""

    order: pl.DataFrame
    """As of `ordered`, with the typical gap_ns."""
    own_gap_ns: pl.Series
    """Of the chosen step."""
    last_gap_ns: int
    """Behind the last call."""
    steps: int
    """How many recorded steps say so, the chosen one among them."""
    longer_ns: int
    """How much longer all gaps of the chosen step are together."""


def typical_gaps(
    connection: "duckdb.DuckDBPyConnection",
    trace_id: str,
    step: int | None,
    calls: pl.DataFrame,
    start_ns: int,
    end_ns: int,
) -> TypicalGaps:
    """Return the order of a step's calls with the lower median of each gap over the steps of the same calls.

    Args:
        connection: to the corpus.
        trace_id: of the rank.
        step: the chosen one; None for a trace without steps, whose gaps stay as they are.
        calls: those of `replayed_calls` of that step, by their start.
        start_ns, end_ns: of the step, on the trace's clock.
    """
    order, last_gap_ns = ordered(calls, start_ns, end_ns)
    gaps = [_all_gaps(order, last_gap_ns)]
    if step is not None:
        asked = {"trace": trace_id, "step": step, "most": _MOST_STEPS - 1}
        for (number,) in connection.execute(_NEAREST, asked).fetchall():
            rows = RecordedRows.read(connection, trace_id, number)
            others = replay(rows).calls
            found, last = ordered(others, rows.start_ns, rows.end_ns)
            if others["name"].equals(calls["name"]) and found["thread"].equals(order["thread"]):
                gaps.append(_all_gaps(found, last))
    typical = np.sort(np.stack(gaps), axis=0)[(len(gaps) - 1) // 2]
    return TypicalGaps(
        order.with_columns(gap_ns=pl.Series(typical[:-1])),
        order["gap_ns"],
        int(typical[-1]),
        len(gaps),
        int(gaps[0].sum() - typical.sum()),
    )


def _all_gaps(order: pl.DataFrame, last_gap_ns: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.append(order["gap_ns"].to_numpy(), last_gap_ns)
