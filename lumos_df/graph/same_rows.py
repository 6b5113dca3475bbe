"""Which rows of several ranks are the same row of the program, and what is usual of them."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE


def same_rows(ranks: list[Rows], *, of_stages: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two numbers for every row of every rank, rank by rank [n]: of the row of the program, and of its like.

    Like rows have the same name on the same thread, or stream, in the same step. The same row is that at the same
    place among them; `of_stages`, of a pipeline, which run programs of their own, among as many of them.
    """
    number = {name: place for place, name in enumerate(sorted({name for rows in ranks for name in rows.names}))}
    name, lane, step, ordinal, count = (
        np.concatenate(column) for column in zip(*(_columns(rows, number) for rows in ranks), strict=True)
    )
    return packed(step, name, lane, ordinal, count * of_stages), packed(step, name, lane)


def _columns(rows: Rows, number: dict[str, int]) -> tuple[NDArray[np.int64], ...]:
    """Return of each row name, lane, step, place among like rows, how many these are [n]; streams are below `NONE`."""
    name = np.array([*(number[text] for text in rows.names), NONE], np.int64)[rows.name]
    lane = np.where(rows.on_gpu, -2 - rows.stream.astype(np.int64), rows.thread)
    like = packed(name, lane, rows.step)
    _, group, size = np.unique(like, return_inverse=True, return_counts=True)
    return name, lane, rows.step.astype(np.int64), ordinals(like), size[group.reshape(-1)]


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


def longest(like: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest of the values of each wanted number, NONE of none [wanted]; arguments as above."""
    order = np.lexsort((values, like))
    place = np.searchsorted(like[order], wanted, side="right") - 1
    known = (place >= 0) & (like[order][np.maximum(place, 0)] == wanted) if len(order) else np.zeros(len(wanted), bool)
    return np.where(known, values[order][np.maximum(place, 0)] if len(order) else NONE, NONE)
