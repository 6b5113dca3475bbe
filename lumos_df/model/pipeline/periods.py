"""When a pipeline repeats itself: the rest of its steady part is then a multiple of one period.

A step of a pipeline computes the next times of the stages from the last ones with maxima and sums only, so a later
start of everything by t ends everything later by t. Once a step finds every time that matters as it was some steps
before, but for one constant, these steps go on adding that constant for as long as the steps stay the same.
Such maps do not move two states further apart (the largest difference never grows), so a difference of 1e-12 of the
period stays that small in each period to come.
Source: Baccelli, Cohen, Olsder, Quadrat: Synchronization and Linearity (1992), 3.7: every irreducible max-plus matrix
becomes periodic. How many steps the period and the approach to it take depends on the stages, so it is looked for, not
computed: Brent, An improved Monte Carlo factorization algorithm (BIT 20, 1980).
"""

from typing import Final

from lumos_df.base.jit import inlined_kernel

TOLERANCE: Final = 1e-12
"""By how much of a period the times of a state may differ from its copy."""

FOUND: Final = -1
"""Instead of steps after which the next copy is made: a period was found, and no other is looked for."""


@inlined_kernel
def next_period(state, copy, size, steps, wanted):
    """Look for a period after one more step; return its length, s, or -1.0, and `steps` and `wanted` for the next call.

    Args:
        state: float64, the times of the stages, of which the first `size` matter.
        copy: float64 [size], those of some steps before.
        steps: steps since that copy; 0 at first. Where a period was found, as many steps as it has.
        wanted: steps after which the next copy is made: 0 at first, then powers of two; `FOUND` where a period was
            found.
    """
    steps += 1
    period = _shift(state, copy, size) if wanted > 0 else -1.0
    if period >= 0.0:
        return period, steps, FOUND
    if steps >= wanted:
        for i in range(size):
            copy[i] = state[i]
        return -1.0, 0, max(1, 2 * wanted)
    return -1.0, steps, wanted


@inlined_kernel
def _shift(state, copy, size):
    """Return the constant s by which `state[:size]` is later than `copy[:size]`, or -1.0 when there is none."""
    constant = state[0] - copy[0]
    tolerance = TOLERANCE * constant
    for i in range(1, size):
        if abs(state[i] - copy[i] - constant) > tolerance:
            return -1.0
    return constant
