"""Levenberg and Marquardt's method with numerical derivatives, and losses that a few odd measurements do not pull."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEP: Final = 1e-3
"""How far apart the two places are between which a derivative is told."""
_ENOUGH: Final = 1e-6
"""Of the cost: a round that gains less is the last. Places are then told better than they are measured."""
_NEAR: Final = 0.02
"""Deviations that are smaller weigh the same where their sizes are summed: the weight of none would be infinite."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is least: a cost, and weights of squares that lead to where it is (iteratively reweighted least squares)."""

    cost: Callable[[Array], float]
    """Of residuals [m]."""
    root_weights: Callable[[Array], Array]
    """Square roots of the weights [m] of the squares of residuals [m], for one round."""


SQUARES: Final = Loss(lambda far: float(far @ far), np.ones_like)
"""The sum of squares."""


def deviations(weight: Array) -> Loss:
    """Return the sum of the residuals' sizes times `weight` [m]: least at the median of what disagrees."""
    return Loss(lambda far: float(weight @ np.abs(far)), lambda far: np.sqrt(weight / np.maximum(np.abs(far), _NEAR)))


def soften(deviation: Array, knee: float) -> Array:
    """Return deviations whose squares are those of the pseudo-Huber loss: quadratic below `knee`, linear far above."""
    ratio = deviation / knee
    return np.sign(deviation) * knee * np.sqrt(2.0 * (np.sqrt(1.0 + ratio * ratio) - 1.0))


def minimum(residuals: Callable[[Array], Array], start: Array, rounds: int = 40, loss: Loss = SQUARES) -> Array:
    """Return the place [n] near `start` [n] at which the loss of `residuals` (place -> [m]) is least.

    Places are of order one (logarithms of factors, say): the derivatives' step is the same for each. Residuals must be
    finite.
    """
    place = start.astype(np.float64)
    far = residuals(place)
    cost, damping = loss.cost(far), 1e-3
    for _ in range(rounds):
        slope = np.empty((len(far), len(place)))
        for column in range(len(place)):
            moved = place.copy()
            moved[column] += _STEP
            slope[:, column] = (residuals(moved) - far) / _STEP
        root = loss.root_weights(far)
        slope *= root[:, None]
        normal, gradient = slope.T @ slope, slope.T @ (root * far)
        diagonal = np.diag(normal) + 1e-12 * (1.0 + np.trace(normal))
        gained = 0.0
        while damping < 1e9 and not gained:
            step = np.clip(-np.linalg.solve(normal + damping * np.diag(diagonal), gradient), -1.0, 1.0)
            there = residuals(place + step)
            next_cost = loss.cost(there)
            if next_cost < cost:
                gained = 1.0 - next_cost / cost
                place, far, cost, damping = place + step, there, next_cost, damping / 5.0
            else:
                damping *= 4.0
        if gained < _ENOUGH:
            break
        damping = max(damping, 1e-9)
    return place
