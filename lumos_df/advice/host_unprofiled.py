"""How much of the host's work is left where no profiler runs, of a job whose steps were timed without it, too.

Each row of the host that a profiler writes down costs as much as another: its inputs are noted before it begins. So
the work between two calls is shorter by the rows that begin in it, and what has none, as a sleep, stays. What a row
costs is found by replaying: the least with which steps are as long as those that were timed.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.host_work import HostWork

_MOST_NS: Final = 8_000
"""Threshold, ns. No row costs more. Evidence: of 122 runs of an H200 on a shared core those whose steps tell it took
1,500 to 6,500 ns a row."""
_HALVINGS: Final = 12
"""The cost is found to 2 ns."""


def rows_begun(work: HostWork) -> NDArray[np.int64]:
    """Return how many rows of the host begin in the work of each edge of a trace, its target among them [m]."""
    _, place = work.placed
    begun = np.zeros(len(work.graph.edges), np.int64)
    begun[work.edge] = place[1] - place[0] + np.maximum(place[3] - place[2], 0)
    return begun


def kept(
    lag: NDArray[np.int64],
    begun: NDArray[np.int64],
    unprofiled_ns: float,
    step_ns: Callable[[NDArray[np.float64]], float],
) -> NDArray[np.float64]:
    """Return which part of each edge's lag is left without a profiler, 0 to 1 [m].

    Where the GPU leaves a host time, its steps tell only the least that a row costs: no more is taken off.

    Args:
        lag: of the edges, ns [m].
        begun: as `rows_begun` returns it [m].
        unprofiled_ns: mean step without a profiler.
        step_ns: mean step of the replay in which such parts are left, ns.
    """

    def left(cost: float) -> NDArray[np.float64]:
        of_lag: NDArray[np.float64] = np.where(begun > 0, np.maximum(lag - cost * begun, 0) / np.maximum(lag, 1), 1.0)
        return of_lag

    low, high = 0.0, float(_MOST_NS)
    wanted = max(unprofiled_ns, (1 + typical_values.LEAST_PCT / 100) * step_ns(left(high)))
    for _ in range(_HALVINGS if step_ns(left(low)) > wanted else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if step_ns(left(middle)) > wanted else (low, middle)
    return left(low)
