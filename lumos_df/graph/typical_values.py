"""What is typical of some values of a trace: a few make no distribution, whatever is learned from them."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

FEW: Final = 5
"""Threshold, values. Fewer make no distribution. Evidence: a constant of theirs would be what one of them was."""
OUTLIER_RANGES: Final = 1.5
"""Threshold, interquartile ranges. Values further outside the quartiles are outliers. Evidence: Tukey's fences."""
ACCIDENT_SHARE: Final = 0.05
"""Threshold, probability. What comes about by accident so seldom is taken for none: rows that start, and silences that
end, near the end of a row, and waits that all find one place. Evidence: the usual level of significance."""
LEAST_PCT: Final = 0.5
"""Threshold, percent of the step. What takes or brings less is not told: no stall, no advice. Evidence: a convention,
since nobody can measure it."""
OfClasses: TypeAlias = Callable[
    [NDArray[np.int64], NDArray[np.int32] | NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.bool_]]
]
"""Gives for each of some values something of its class, and whether the class has enough values."""


def mean_without_outliers(values: NDArray[np.int64], otherwise: int) -> int:
    """Return the mean of the values without their outliers, or `otherwise` where they are too few."""
    if len(values) < FEW:
        return otherwise
    return round(float(values[inside_fences(values)].mean()))


def inside_fences(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which values are no outliers."""
    low, high = np.percentile(values, (25, 75))
    spread = OUTLIER_RANGES * (high - low)
    inside: NDArray[np.bool_] = (values >= low - spread) & (values <= high + spread)
    return inside


def highest_usual(values: NDArray[np.int64]) -> float:
    """Return the largest value that would be no outlier of some values; there is at least one."""
    low, high = np.percentile(values, (25, 75))
    return float(high + OUTLIER_RANGES * (high - low))


def highest_usual_of(values: NDArray[np.int64], classes: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each value the largest that would be no outlier of its class [n]."""
    low, high = (_at_share(values, classes, share)[0].astype(np.float64) for share in (0.25, 0.75))
    return high + OUTLIER_RANGES * (high - low)


def by_class(values: NDArray[np.int64], classes: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each value the median of its class.

    A few rows make no distribution: theirs is the median of all values.
    """
    typical, known = medians(values, classes)
    return np.where(known, typical, round(float(np.median(values))))


def medians(
    values: NDArray[np.int64], classes: NDArray[np.int32] | NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each value the median of its class, and whether the class has enough of them."""
    return _at_share(values, classes, 0.5)


def least(
    values: NDArray[np.int64], classes: NDArray[np.int32] | NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each value the least of its class, and whether the class has enough of them."""
    return _at_share(values, classes, 0)


def _at_share(
    values: NDArray[np.int64], classes: NDArray[np.int32] | NDArray[np.int64], share: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each value the one at a share of its class in order, and whether the class has enough of them."""
    _, group, size = np.unique(classes, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    place = np.cumsum(size) - size + ((size - 1) * share).astype(np.int64)
    chosen = values[np.lexsort((values, group))][place] if len(values) else values
    return chosen[group], (size >= FEW)[group]
