"""One whole number for each row of several columns, so that rows can be grouped and compared at once."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_SPAN: Final = 1 << 62
"""Packed numbers stay below this."""
_TABLE: Final = 1 << 16
"""A table of this size costs less than sorting any column."""


def packed(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return a number of at least 0 for each row of some columns of whole numbers, all [n].

    Rows have the same number where all their values are the same, and the order of the numbers is that of the rows, the
    first column first. Columns whose ranges do not fit into 62 bits together are numbered by their distinct values.
    """
    key = np.zeros(len(columns[0]), np.int64)
    if not len(key):
        return key
    span = 1
    for column in columns:
        low, width = _range(column)
        if span * width > _SPAN:
            key = dense(key)
            span = _range(key)[1]
        values = np.asarray(column, np.int64)
        if span * width > _SPAN:
            values = dense(values)
            low, width = _range(values)
        key = key * width + (values - low)
        span *= width
    return key


def dense(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each value [n] among the distinct ones, in their order, from 0."""
    if not len(values):
        return values
    low, width = _range(values)
    if width >= 8 * len(values) + _TABLE:
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    used = np.zeros(width, np.bool_)
    used[values - low] = True
    return (np.cumsum(used) - 1)[values - low]


def _range(values: NDArray[Any]) -> tuple[int, int]:
    """Return the least value, and how many numbers there are from it to the largest."""
    low = int(values.min())
    return low, int(values.max()) - low + 1
