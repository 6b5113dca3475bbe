"""Levenberg and Marquardt's method with numerical derivatives, and a loss that a few odd measurements do not pull."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEP: Final = 1e-3
_ENOUGH: Final = 1e-6
"""Share of the sum of squares below which a round has gained nothing."""


def soften(deviation: Array, knee: float) -> Array:
    """Return deviations whose squares are those of the pseudo-Huber loss: quadratic below `knee`, linear far above."""
    ratio = deviation / knee
    return np.sign(deviation) * knee * np.sqrt(2.0 * (np.sqrt(1.0 + ratio * ratio) - 1.0))


def least_squares(residuals: Callable[[Array], Array], start: Array, rounds: int = 40) -> Array:
    """Return the place [n] near `start` [n] at which the sum of squares of `residuals` (place -> [m]) is least.

    Places are of order one (logarithms of factors, say): the derivatives' step is the same for each. Residuals must be
    finite.
    """
    place = start.astype(np.float64)
    far = residuals(place)
    cost, damping = float(far @ far), 1e-3
    for _ in range(rounds):
        slope = np.empty((len(far), len(place)))
        for column in range(len(place)):
            moved = place.copy()
            moved[column] += _STEP
            slope[:, column] = (residuals(moved) - far) / _STEP
        normal, gradient = slope.T @ slope, slope.T @ far
        diagonal = np.diag(normal) + 1e-12 * (1.0 + np.trace(normal))
        gained = 0.0
        while damping < 1e9 and not gained:
            step = np.clip(-np.linalg.solve(normal + damping * np.diag(diagonal), gradient), -1.0, 1.0)
            there = residuals(place + step)
            next_cost = float(there @ there)
            if next_cost < cost:
                gained = 1.0 - next_cost / cost
                place, far, cost, damping = place + step, there, next_cost, damping / 5.0
            else:
                damping *= 4.0
        if gained < _ENOUGH:
            break
        damping = max(damping, 1e-9)
    return place
