"""The loops of pipelines that alternate one forward with one backward: 1F1B, its interleaved form and ZB-H1.

Every loop runs in steps in which all stages do their next forward and their next backward. The steps are skewed such
that what a stage waits for was done in the step before (or by the next stage in this one), so nothing ever waits in
vain, the state is a few times for each stage, and no time of a single task is stored.

Sent times are when the sender is done with sending. A task then takes a stage from its clock to
`max(clock + own, sent + after)`, where own = receive + compute + send, and after = what is left of the message's way
+ compute + send; see `TaskCosts` in `schedule`.
"""

import numpy as np

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.model.pipeline.periods import FOUND, next_period


@lean_kernel
def one_f_one_b(pp, micro_batches, lagging, costs, clock, copy):
    """Run 1F1B, and with weight gradients apart ZB-H1; return the time that was not simulated step by step.

    Step k is forward pp-1-s+k of every stage s, which waits for the step before; then backward k, from the last stage
    to the first, and, where k >= s, the weight gradients of k-s.

    Args:
        pp, micro_batches: stages and micro-batches.
        lagging: whether there are weight gradients apart, s backwards later on stage s.
        costs: TaskCosts of `schedule`, [pp].
        clock: float64 [2 * pp], zeros; on return when each stage is done, but for the returned time.
        copy: float64 [2 * pp] to work with.
    """
    sent = clock[pp:]
    last = np.uint64(pp - 1)
    left = micro_batches
    skipped = 0.0
    # Every step from here on is the same until the first stage has no forward left.
    steady = pp - 1 if lagging else 0
    steps = 0
    wanted = 0
    k = 1 - pp
    while k < left:
        low = max(0, pp + k - left)
        # What the first stage would wait for is voided by `forward_after`, minus infinity.
        before = sent[low - 1] if low else 0.0
        for s in range(np.uint64(low), np.uint64(max(low, min(pp, pp + k)))):
            done = max(clock[s] + costs.forward_own[s], before + costs.forward_after[s])
            clock[s] = done
            before = sent[s]
            sent[s] = done
        if k >= 0:
            done = 0.0
            lag = np.uint64(min(k + 1, pp))
            for i in range(last + np.uint64(1)):
                s = last - i
                done = max(clock[s] + costs.backward_own[s], done + costs.backward_after[s])
                clock[s] = done + costs.weight[s] if s < lag else done
        if wanted != FOUND and k >= steady and k < left - pp:
            period, steps, wanted = next_period(clock, copy, 2 * pp - 1, steps, wanted)
            if wanted == FOUND:
                times = (left - pp - k) // steps
                left -= times * steps
                skipped = times * period
        k += 1
    if lagging:
        for s in range(pp):
            clock[s] += min(s, micro_batches) * costs.weight[s]
    return skipped


@lean_kernel
def interleaved(pp, vp, micro_batches, costs, clock, copy, gradients):
    """Run interleaved 1F1B; return the time that was not simulated step by step.

    A stage's forwards are numbered: chunk 0 of pp micro-batches, chunk 1 of the same, ..., chunk 0 of the next pp;
    its backwards likewise from the last chunk to the first. Step q is forward q-s and backward q-ahead+s of every
    stage s, all of which wait only for what was done in step q-1. So at most pp forwards are under way between two
    steps, with different remainders of their numbers by pp, and as many backwards: what was sent last of each is the
    state, with the clocks.

    Args:
        pp, vp, micro_batches: stages, chunks a stage, micro-batches, a multiple of pp.
        costs: TaskCosts of `schedule`, [vp * pp].
        clock: float64 [3 * pp], zeros; on return when each stage is done, but for the returned time.
        copy: float64 [3 * pp] to work with.
        gradients: float64 [vp * pp]; on return when the last backward of a chunk is done, but for the returned time.
    """
    f_sent = clock[pp:]
    b_sent = clock[2 * pp :]
    tasks = pp * vp  # of a stage, until its numbers come again
    ahead = 2 * (pp - 1) + (vp - 1) * pp
    left = micro_batches * vp
    skipped = 0.0
    steps = 0
    wanted = 0
    # The first stage's next forward and backward: remainder by pp, and where its chunk begins.
    f_place = 0
    f_chunk = 0
    b_place = 1
    b_chunk = 0
    q = 0
    while q < left + ahead:
        b = q - ahead
        low = max(0, q - left + 1)
        high = min(pp, q + 1)
        edge = f_place + 1
        chunk = (f_chunk or tasks) - pp
        _forwards(max(low, edge), high, f_place + pp, chunk, clock, f_sent, costs.forward_own, costs.forward_after)
        _forwards(low, min(high, edge), f_place, f_chunk, clock, f_sent, costs.forward_own, costs.forward_after)
        f_place += 1
        if f_place == pp:
            f_place = 0
            f_chunk = f_chunk + pp if f_chunk < tasks - pp else 0
        if b > -pp:
            low = max(0, -b)
            high = min(pp, left - b)
            edge = pp - b_place
            chunk = (b_chunk or tasks) - pp
            _backwards(
                low,
                min(high, edge),
                b_place,
                b_chunk,
                clock,
                b_sent,
                costs.backward_own,
                costs.backward_after,
                gradients,
            )
            _backwards(
                max(low, edge),
                high,
                b_place - pp,
                chunk,
                clock,
                b_sent,
                costs.backward_own,
                costs.backward_after,
                gradients,
            )
            b_place += 1
            if b_place == pp:
                b_place = 0
                b_chunk = chunk
        if wanted != FOUND and b >= 0 and f_place == 0 and f_chunk == 0 and q + tasks < left:
            period, steps, wanted = next_period(clock, copy, 3 * pp, steps, wanted)
            if wanted == FOUND:
                times = (left - 1 - q) // (steps * tasks)
                left -= times * steps * tasks
                skipped = times * period
        q += 1
    return skipped


@inlined_kernel
def _forwards(low, high, place, chunk, clock, sent, own, after):
    """Run a forward on each stage from `low` to before `high`, that of the chunk that begins at `chunk`.

    Numbers without sign halve the time: numba looks at no index whether it is negative.
    """
    where = np.uint64(place)
    first = np.uint64(chunk)
    for s in range(np.uint64(low), np.uint64(max(low, high))):
        done = max(clock[s] + own[first + s], sent[where - s] + after[first + s])
        clock[s] = done
        sent[where - s] = done


@inlined_kernel
def _backwards(low, high, place, chunk, clock, sent, own, after, gradients):
    """Run a backward on each stage from `low` to before `high`, that of the chunk that begins at `chunk`."""
    where = np.uint64(place)
    first = np.uint64(chunk)
    for s in range(np.uint64(low), np.uint64(max(low, high))):
        done = max(clock[s] + own[first + s], sent[where + s] + after[first + s])
        clock[s] = done
        sent[where + s] = done
        gradients[first + s] = done
