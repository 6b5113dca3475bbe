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

from lumos_df.jit import inlined_kernel

TOLERANCE = 1e-12
"""By how much of a period the times of a state may differ from its copy."""


@inlined_kernel
def shift(state, copy, size):
    """Return the constant s by which `state[:size]` is later than `copy[:size]`, or -1.0 when there is none."""
    constant = state[0] - copy[0]
    tolerance = TOLERANCE * constant
    for i in range(1, size):
        if abs(state[i] - copy[i] - constant) > tolerance:
            return -1.0
    return constant


@inlined_kernel
def keep(state, copy, size):
    """Copy `state[:size]`."""
    for i in range(size):
        copy[i] = state[i]
