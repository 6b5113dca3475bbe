"""Which row of a stream each wait takes, against a slow twin that looks through all rows for every wait."""

import numpy as np
import pytest

from lumos_df.graph.simulate.pending_rows import oldest_pending

RESOLUTION = 1


@pytest.mark.parametrize("seed", range(20))
def test_waits_take_the_oldest_row_that_none_has_taken_and_that_had_ended(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, waits = random.integers(0, 12), random.integers(1, 20)
    issued = np.sort(random.integers(0, 40, rows)).astype(np.int32)
    wait = np.sort(random.integers(0, 50, waits)).astype(np.int32)
    end = np.sort(random.integers(0, 100, rows))
    start = np.sort(random.integers(0, 120, waits))
    is_open = random.random(waits) < 0.7
    behind = np.where(is_open | (random.random(waits) < 0.5), 0, random.integers(0, rows + 1, waits))
    told = oldest_pending(wait, is_open, behind, issued, end, start, RESOLUTION).tolist()
    over: set[int] = set()
    for k in range(waits):
        over |= set(range(behind[k]))
        left = [row for row in range(rows) if row not in over and issued[row] < wait[k]][:1]
        taken = [row for row in left if is_open[k] and start[k] >= end[row] - RESOLUTION]
        assert told[k] == (taken or [-1])[0]
        over |= set(taken)
