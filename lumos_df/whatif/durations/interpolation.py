"""What kernels take at a size, by what other traces of the same model took at theirs."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
from lumos_df.whatif.durations.kernel_times import KernelWork

_SAME_SIZE: Final = 1e-3
"""Logarithm of the ratio of two sizes from which on they are the same."""


def interpolated(
    kernels: KernelWork, after: NDArray[np.float64], others: list[KernelWork], floor_ratio: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what kernels take by this size and by others, and which ones another size has, too.

    Each size says what its own time becomes, and the mean of the logarithms has as much of each as it is near.

    Args:
        kernels: those of this size [k].
        after: what they take by it alone, s [k].
        others: those of other sizes.
        floor_ratio: floor of the new GPU over that of the old one.
    """
    order = _occurrence(kernels.key)
    apart = _distance(kernels)
    # What stays as large as measured is known.
    weight = np.where(apart > _SAME_SIZE, 1 / apart, np.nan)
    total, said = weight.copy(), weight * np.log(np.maximum(after, 1e-9))
    for other in others:
        place = _paired(kernels.key, order, other.key, _occurrence(other.key))
        paired = np.flatnonzero((place >= 0) & ~np.isnan(weight))
        theirs = place[paired]
        near = 1 / _distance(other)[theirs]
        paired, theirs, near = paired[near > 0], theirs[near > 0], near[near > 0]
        total[paired] += near
        said[paired] += near * np.log(np.maximum(other.rescaled(floor_ratio)[theirs], 1e-9))
    known = total > weight
    mean = np.exp(said / np.where(known, total, 1.0))
    return np.where(known, np.maximum(mean, kernels.least), after), known


def _distance(kernels: KernelWork) -> NDArray[np.float64]:
    """Return how far each kernel's size is from the one asked for, as a logarithm; nan where nothing tells it."""
    apart = np.abs(np.log(np.maximum(kernels.size_after, 1e-12) / np.maximum(kernels.size, 1e-12)))
    return np.where(np.isnan(kernels.size), np.nan, np.maximum(apart, _SAME_SIZE))


def _occurrence(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the how-manieth of its key each entry is."""
    order = np.argsort(key, kind="stable")
    first = np.append(True, np.diff(key[order]) != 0)
    start = np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))
    number = np.empty(len(key), np.int64)
    number[order] = np.arange(len(key)) - start
    return number


def _paired(
    key: NDArray[np.int64], number: NDArray[np.int64], other: NDArray[np.int64], other_number: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return which entry of the others is of the same key, the same of its kind in turn; NONE where there is none."""
    order = np.lexsort((other_number, other))
    keys = other[order]
    low = np.searchsorted(keys, key)
    available = np.searchsorted(keys, key, side="right") - low
    mine = np.unique(key, return_inverse=True)[1].reshape(-1)
    count = np.bincount(mine)[mine]
    # Where one has more of a kind, as with a kernel that splits, they are spread over each other.
    turn = number * np.maximum(available, 1) // count
    place = order[np.minimum(low + turn, max(len(order) - 1, 0))] if len(order) else np.zeros(len(key), np.int64)
    return np.where(available > 0, place, NONE)
