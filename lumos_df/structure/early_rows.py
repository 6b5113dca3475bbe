"""GPU rows that were issued before the recording began, and what tells their work: the same row of a recorded step.

A host runs ahead of its GPU. So a recording begins with the end of a step whose launches are not in it: nothing tells
their shapes or phases. Steps repeat: counted back from where the recorded launches begin, the kernels are those that
come before some later moment of the same stream.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.issued_before import issued_before
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.structure.kernels.repeats import like_ends


def twins(rows: Rows, grid: NDArray[np.int32], block: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the row that tells the work of each row: itself, but of one issued before the recording its twin [n].

    That is the row in the same place of the stream's longest stretch of the same kernels, by name, grid and block, that
    ends where a step does, or anywhere where no step is marked. One before that stretch has none and stays itself.

    Args:
        rows: the operators of one trace.
        grid, block: codes of the launch grid and thread block of every row [n].
    """
    twin = np.arange(len(rows), dtype=np.int32)
    before = issued_before(rows)
    if not before.any():
        return twin
    row = np.flatnonzero(rows.on_gpu & (rows.stream >= 0)).astype(np.int32)
    symbols = dense(packed(rows.name[row], grid[row], block[row]))
    for stream in np.unique(rows.stream[before]).tolist():
        place = np.flatnonzero(rows.stream[row] == stream)
        early = int(np.count_nonzero(before[row[place]]))
        alike = like_ends(symbols[place], early)
        step = rows.step[row[place[early:]]]
        ends = np.flatnonzero(np.append(np.diff(step) != 0, True)) + 1
        if (step < 0).all():
            ends = np.arange(1, len(alike))
        apart = int(ends[np.argmax(alike[ends])])
        count = int(alike[apart])
        of = np.arange(early - count, early)
        # A tail of more than one step has its twins in the first of the recorded ones.
        twin[row[place[of]]] = row[place[of + apart * -(-(early - of) // apart)]]
    return twin
