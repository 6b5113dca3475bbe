"""Fit bounded parameters so that the sum of weighted absolute deviations of log seconds is least.

The median fits, a few odd measurements do not pull (`lumos_df.calibrate.levenberg_marquardt.deviations`).
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.calibrate.levenberg_marquardt import deviations, minimum

Array = NDArray[np.float64]


def fit(
    start: Array,
    kind: type[Any],
    free: tuple[str, ...],
    seconds: Callable[[Array], Array],
    measured_s: Array,
    weight: Array,
) -> Array:
    """Return the parameters (float64 [fields of `kind`]) nearest to what was measured, from `start`.

    Args:
        start: float64 [fields].
        kind: the class of the parameters, whose fields have their bounds in `metadata`: low, above 0, and high.
        free: names of the fields that may change.
        seconds: gives the model's seconds [rows] for parameters.
        measured_s: seconds [rows].
        weight: [rows].
    """
    names = [each.name for each in fields(kind)]
    moving = [names.index(name) for name in free]
    low, high = (np.log([fields(kind)[k].metadata[end] for k in moving]) for end in ("low", "high"))

    def inside(place: Array) -> Array:
        parameters = start.copy()
        parameters[moving] = np.exp(low + (high - low) / (1.0 + np.exp(-place)))
        return parameters

    def deviation(place: Array) -> Array:
        return np.log(seconds(inside(place))) - np.log(measured_s)

    share = np.clip((np.log(start[moving]) - low) / (high - low), 0.02, 0.98)
    return inside(minimum(deviation, np.log(share / (1.0 - share)), loss=deviations(weight)))
