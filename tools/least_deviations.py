"""Fit bounded parameters so that the sum of weighted absolute deviations of log seconds is least.

Levenberg and Marquardt's method with numerical derivatives, on weights 1/|deviation| that are renewed each round
(iteratively reweighted least squares): the median fits, a few odd measurements do not pull.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEP: Final = 1e-3
_NEAR: Final = 0.02
"""Deviations below it weigh the same."""


def fit(
    start: Array,
    of: type[Any],
    free: tuple[str, ...],
    seconds: Callable[[Array], Array],
    measured_s: Array,
    weight: Array,
    rounds: int = 40,
) -> Array:
    """Return the parameters (float64 [fields of `of`]) nearest to what was measured, from `start`.

    Args:
        start: float64 [fields].
        of: the class of the parameters, whose fields have their bounds in `metadata`: low, above 0, and high.
        free: names of the fields that may change.
        seconds: gives the model's seconds [rows] for parameters.
        measured_s: seconds [rows].
        weight: [rows].
        rounds: steps at most.
    """
    names = [each.name for each in fields(of)]
    moving = [names.index(name) for name in free]
    low, high = (np.log([fields(of)[k].metadata[end] for k in moving]) for end in ("low", "high"))

    def inside(place: Array) -> Array:
        found = start.copy()
        found[moving] = np.exp(low + (high - low) / (1.0 + np.exp(-place)))
        return found

    def deviation(place: Array) -> Array:
        return np.log(seconds(inside(place))) - np.log(measured_s)

    share = np.clip((np.log(start[moving]) - low) / (high - low), 0.02, 0.98)
    place: Array = np.log(share / (1.0 - share))
    far = deviation(place)
    cost, damping = float(weight @ np.abs(far)), 1e-2
    for _ in range(rounds):
        slope = np.empty((len(far), len(place)))
        for column in range(len(place)):
            moved = place.copy()
            moved[column] += _STEP
            slope[:, column] = (deviation(moved) - far) / _STEP
        reweighted = weight / np.maximum(np.abs(far), _NEAR)
        normal = slope.T @ (slope * reweighted[:, None])
        gradient = slope.T @ (reweighted * far)
        gained = 0.0
        while damping < 1e6 and not gained:
            diagonal = np.diag(normal) + 1e-9 * np.trace(normal)
            step = np.clip(-np.linalg.solve(normal + damping * np.diag(diagonal), gradient), -1.0, 1.0)
            there = deviation(place + step)
            next_cost = float(weight @ np.abs(there))
            if next_cost < cost:
                gained = 1.0 - next_cost / cost
                place, far, cost, damping = place + step, there, next_cost, damping / 3.0
            else:
                damping *= 4.0
        if gained < 1e-5:
            break
        damping = max(damping, 1e-7)
    return inside(place)
