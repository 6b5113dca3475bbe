"""Which of many estimates to look at: the fastest, or those that no other beats in time, memory and GPUs at once."""

from typing import Final

import numpy as np
import polars as pl

from lumos_df.estimate.kernels.configurations import front
from lumos_df.schema.rankings import RankBy

NUMBER: Final = "number"
"""Column: a configuration's number in its grid, which settles ties."""

_AIMS: Final = ("iteration_time_s", "memory_gb", "gpus")


def fastest(frame: pl.DataFrame, count: int, by: RankBy = RankBy.TIME) -> pl.DataFrame:
    """Return the `count` rows with the shortest step, shortest first."""
    order = np.lexsort((frame[NUMBER].to_numpy(), frame[by.column].to_numpy()))
    return frame[order[:count]]


def pareto_front(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that no other row beats: none is at most as long, as large and as many GPUs, and less in one.

    Shortest first; of rows that are alike in all three, the first of the grid.
    """
    time, memory, gpus = (frame[name].to_numpy() for name in _AIMS)
    order = np.lexsort((frame[NUMBER].to_numpy(), gpus, memory, time))
    order = order[np.isfinite(time[order])]
    sizes, level = np.unique(gpus[order], return_inverse=True)
    return frame[np.asarray(order[front(memory[order], level, len(sizes))])]
