"""Recurrent layers of a job without a GPU: one operator multiplies matrices and bends the gates of each token."""

import numpy as np
from numpy.typing import NDArray


def grown(
    rate: float,
    time: NDArray[np.float64],
    flop: NDArray[np.float64],
    after: NDArray[np.float64],
    beside: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many times as long recurrent layers take, and how far off that may be, as a share of it [k].

    They multiply at the rate of the step's other products, or in all of their time where that would be more. What they
    do beside it may also grow as the products do, or stay.

    Args:
        rate: operations a second of the step's other products.
        time: of each, s [k].
        flop: operations of the products of each [k].
        after: the same after the change [k].
        beside: how many times as long each takes for what it does beside them [k].
    """
    share = np.minimum(flop / rate / time, 1.0)
    more = after / flop
    times = share * more + (1 - share) * beside
    ends = [np.abs(np.log(end / times)) for end in (more, share * more + 1 - share)]
    return times, np.expm1(np.maximum(*ends))
