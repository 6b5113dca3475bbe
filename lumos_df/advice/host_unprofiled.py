"""How much of the host's work is left where no profiler runs, of a job whose steps were timed without it, too.

Each row of the host that a profiler writes down costs as much as another: its inputs are noted before it begins. So
the work between two calls is shorter by the rows that begin in it, and what has none, as a sleep, stays. What a row
costs is found by replaying: the least with which steps are as long as those that were timed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host_spread, typical_values
from lumos_df.graph.host_work import HostWork

_MOST_NS: Final = 8_000
"""Threshold, ns. No row costs more. Evidence: of 122 runs of an H200 on a shared core those whose steps tell it took
1,500 to 6,500 ns a row."""
_HALVINGS: Final = 12
"""The cost is found to 2 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """What a row of the host costs that a profiler writes down, ns."""

    likely: float
    least: float
    """With less, steps would be longer than any that another run would time."""
    most: float
    """With more they would be shorter; where the GPU leaves a host time, its steps do not tell."""


def rows_begun(work: HostWork) -> NDArray[np.int64]:
    """Return how many rows of the host begin in the work of each edge of a trace, its target among them [m]."""
    _, place = work.placed
    begun = np.zeros(len(work.graph.edges), np.int64)
    begun[work.edge] = place[1] - place[0] + np.maximum(place[3] - place[2], 0)
    return begun


def row_cost(unprofiled_ns: NDArray[np.int64], step_ns: Callable[[float], float]) -> RowCost:
    """Return what a row costs.

    Args:
        unprofiled_ns: steps without a profiler [s].
        step_ns: mean step of the replay where a row costs so much, ns.
    """
    alone = float(np.median(unprofiled_ns))
    spread = host_spread.of_two_runs(host_spread.of_steps(unprofiled_ns) / float(np.sqrt(len(unprofiled_ns))))
    shortest = step_ns(_MOST_NS)
    likely = _least_cost(max(alone, (1 + typical_values.LEAST_PCT / 100) * shortest), step_ns)
    return RowCost(
        likely=likely,
        least=min(_least_cost((1 + spread) * alone, step_ns), likely),
        most=max(_least_cost((1 - spread) * alone, step_ns), likely),
    )


def _least_cost(wanted_ns: float, step_ns: Callable[[float], float]) -> float:
    """Return the least cost with which steps are no longer than is wanted, or the most that a row may cost."""
    low, high = 0.0, float(_MOST_NS)
    if step_ns(low) <= wanted_ns:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if step_ns(middle) > wanted_ns else (low, middle)
    return high
