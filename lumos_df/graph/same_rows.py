"""Which rows of several ranks are the same row of the program, and what is usual of them."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE


def same_rows(ranks: list[Rows]) -> list[NDArray[np.int64]]:
    """Return a number for every row of every rank [n]: the same for the same row of the program.

    That is the same name on the same thread, or stream, at the same place among rows of that name in the same step.
    """
    number = {name: place for place, name in enumerate(sorted({name for rows in ranks for name in rows.names}))}
    bounds = np.cumsum([0, *map(len, ranks)])
    name, lane, step, ordinal = (
        np.concatenate(column) for column in zip(*(_columns(rows, number) for rows in ranks), strict=True)
    )
    return np.split(packed(step, name, lane, ordinal), bounds[1:-1])


def _columns(rows: Rows, number: dict[str, int]) -> tuple[NDArray[np.int64], ...]:
    """Return the name, lane, step and place among like rows of each row [n]; streams are lanes below `NONE`."""
    name = np.array([*(number[text] for text in rows.names), NONE], np.int64)[rows.name]
    lane = np.where(rows.on_gpu, -2 - rows.stream.astype(np.int64), rows.thread)
    return name, lane, rows.step.astype(np.int64), ordinals(packed(name, lane, rows.step))


def ordinals(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rows of its group come before each row [n]."""
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=NONE))
    ordinal = np.empty(len(group), np.int64)
    ordinal[order] = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    return ordinal


def usual(
    same: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64], least: int = 1
) -> NDArray[np.int64]:
    """Return the median (the lower of two) of the values of each wanted number, or NONE where they are few [wanted].

    Args:
        same: [k] number of each value, as `same_rows` gives it.
        values: [k] at least 0.
        wanted: numbers.
        least: fewer values of a number than this tell nothing.
    """
    order = np.lexsort((values, same))
    low, high = (np.searchsorted(same[order], wanted, side=side) for side in ("left", "right"))
    known = high - low >= least
    return np.where(known, values[order][np.where(known, (low + high - 1) // 2, 0)] if len(order) else NONE, NONE)
