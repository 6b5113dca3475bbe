"""One thing that can go wrong with an estimate, and what it makes of each step."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Steps = list[NDArray[np.float64]]
"""ns of each step, one array a rank."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that can go wrong."""

    name: str
    """What it is called in an answer."""
    low: Steps
    """How long each step is when it goes wrong one way, ns: at most the estimate."""
    high: Steps
    """The same the other way: at least the estimate."""


def logarithm(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the ratio of two times, ns, of which neither is below 1."""
    return np.log(np.maximum(one, 1) / np.maximum(other, 1))


def factor(error: NDArray[np.float64], sign: int) -> NDArray[np.float64]:
    """Return what durations are multiplied by whose relative errors are given; those below 0 are no longer [n]."""
    factor: NDArray[np.float64] = np.where((error < 0) & (sign > 0), 1.0, (1 + np.abs(error)) ** sign)
    return factor


def ends(step: Steps, *played: Steps) -> tuple[Steps, Steps]:
    """Return the shortest and the longest of some runs of each step, the estimate among them."""
    low = [np.minimum.reduce(each) for each in zip(step, *played, strict=True)]
    high = [np.maximum.reduce(each) for each in zip(step, *played, strict=True)]
    return low, high
