"""The loop of DualPipe: micro-batches enter at both ends, and forwards overlap with backwards of the other direction.

DeepSeek's eight steps (https://github.com/deepseek-ai/DualPipe, dualpipe.py, `step`), in rounds in which what a stage
waits for was done in the round before, or earlier in this one. As there, the stages of each half are numbered h = 0
at its end to half-1 in the middle; phase 0 is the direction that starts at the half's own end, and phase 1 the other,
so forwards of phase 0 (F0) and backwards of phase 1 (B1) go inward, F1 and B0 outward. In the middle, one half's
phase 0 becomes the other half's phase 1.

One thing is simpler here: a message leaves when its task is done, not with the next batch of messages.
"""

import numpy as np

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.model.pipeline.periods import FOUND, next_period

_F0, _B1, _B1_INPUT, _PAIR_IN, _F1, _B0, _B0_INPUT, _PAIR_OUT = range(8)
"""Tasks: a forward or a backward of a phase, a backward without its weight gradients, F0 with B1, and F1 with B0."""

_TASKS = 8

_SENT = 2 * _TASKS
"""Rows of `work` before those of times: what each task adds to a stage's clock, and to when its message was sent."""

ROWS = _SENT + 6
"""Rows of a number a stage that `dualpipe` works with."""

_NEVER = -np.inf
"""When a message that nobody sends was sent."""


@inlined_kernel
def waiting_phase(h, k):
    """Return the phase of the k-th weight gradients that have waited: first in, first out."""
    return 1 if k < 2 * ((h + 1) // 2) and (k + h) % 2 == 1 else 0


@inlined_kernel
def pairs(pp, micro_batches, h, phase):
    """Return how many forwards of a phase run overlapped with a backward of the other."""
    if phase:
        return (micro_batches - pp) // 2
    return micro_batches // 2 - pp + h + (0 if h == pp // 2 - 1 else 1)


@lean_kernel
def dualpipe(pp, micro_batches, times, work, gradients):
    """Run DualPipe; return the time that was not simulated round by round.

    Args:
        pp, micro_batches: stages, even; micro-batches of both directions together, even, at least 2 * pp.
        times: PipelineTimes of `schedule`.
        work: float64 [ROWS * pp] to work with; on return the first pp are when each stage is done, but for the returned
            time.
        gradients: float64 [2 * pp], written: when the last backward of a chunk is done, but for the returned time.
    """
    half = pp // 2
    _write_tasks(pp, times, work)
    # In a row are the stages of one half from h = 0 on, then those of the other half. Here: when a stage's last F0, F1
    # and B1 were sent; and its clock, which is when its last B0 was.
    f0 = work[_SENT * pp :]
    f1 = work[(_SENT + 1) * pp :]
    b1 = work[(_SENT + 2) * pp :]
    now = work[(_SENT + 3) * pp :]
    copy = work[(_SENT + 4) * pp :]
    # The same of the stage one further out, or in; of none further out a number that `_NEVER` voids.
    before_f0 = work[_SENT * pp - 1 :]
    after_f1 = work[(_SENT + 1) * pp + 1 :]
    before_b1 = work[(_SENT + 2) * pp - 1 :]
    for k in range(4 * pp):
        f0[k] = 0.0
    # Steps 1 and 2: F0 of j on stage h in wave j + h; F1 of j in wave j + pp-2-h.
    for wave in range(pp - 1):
        for side in range(2):
            _inward(0, min(wave + 1, half), side * half, now, before_f0, f0, work, _F0, pp)
        for side in range(2):
            middle = (side + 1) * half - 1
            for k in range(np.uint64(pp - 2 - wave + side * half), np.uint64(middle)):
                f1[k] = _run(k, after_f1[k], now, work, _F1, pp)
            if wave >= half - 1:
                f1[middle] = _run(middle, f0[(2 - side) * half - 1], now, work, _F1, pp)
    # Step 3: B1, its weight gradients, F1.
    for i in range(half - 1):
        for side in range(2):
            for h in range(half - 1 - i):
                k = side * half + h
                b1[k] = _run(k, before_b1[k], now, work, _B1_INPUT, pp)
                now[k] += times.backward_weight[_chunk(pp, side, h, 1)]
                f1[k] = _run(k, after_f1[k], now, work, _F1, pp)
    # Steps 4 to 7: in round i F0 of pp-1-h+i with B1 of half-1-h+i, then F1 of half+i with B0 of i, as far as they go.
    # From here on F0 is never sent later than B1, nor F1 later than B0.
    left = micro_batches // 2
    skipped = 0.0
    steps = 0
    wanted = 0
    i = 0
    while i < left:
        last = i - (left - half)
        # From which stage on there is a forward left, a backward, and one whose weight gradients do not wait.
        paired = min(max(pp - left + i, 0), half)
        alone = max(last, 0)
        at_once = min(2 * alone, paired)
        for side in range(2):
            place = side * half
            if i == 0:
                # DeepSeek does not overlap the first two in the middle.
                _inward(half - 1, half, place, now, before_f0, f0, work, _F0, pp)
                _inward(half - 1, half, place, now, before_b1, b1, work, _B1, pp)
            _inward(paired, half - 1 if i == 0 else half, place, now, before_b1, b1, work, _PAIR_IN, pp)
            if paired > 0:
                _inward(at_once, paired, place, now, before_b1, b1, work, _B1, pp)
                _inward(alone, at_once, place, now, before_b1, b1, work, _B1_INPUT, pp)
                # The last of its stage, from the round on in which the first stage has its last.
                gradients[_chunk(pp, side, alone, 1)] = now[place + alone]
                for h in range(alone):
                    _run_weights(pp, side, h, last - h - 1, last - h, times, now, gradients)
        for side in range(2):
            sent = b1[(2 - side) * half - 1]
            if last < 0:
                _outward(0, half, side * half, sent, now, work, _PAIR_OUT, pp)
            else:
                at_once = min(2 * last + 1, half)
                sent = _outward(at_once, half, side * half, sent, now, work, _B0, pp)
                _outward(0, at_once, side * half, sent, now, work, _B0_INPUT, pp)
        if wanted != FOUND and i < left - pp:
            period, steps, wanted = next_period(b1, copy, 2 * pp, steps, wanted)
            if wanted == FOUND:
                times_more = (left - pp - i) // steps
                left -= times_more * steps
                skipped = times_more * period
        i += 1
    # Step 8: the weight gradients that still wait.
    for side in range(2):
        for h in range(half):
            gradients[_chunk(pp, side, h, 0)] = now[side * half + h]
            _run_weights(pp, side, h, half - 1 - h, half, times, now, gradients)
            # What tasks add is no longer wanted.
            work[pp - 1 - h if side else h] = now[side * half + h]
    return skipped


@inlined_kernel
def _chunk(pp, side, h, phase):
    """Return the number of the chunk that stage h of a half runs in a phase."""
    return (1 - phase) * pp + pp - 1 - h if side else phase * pp + h


@inlined_kernel
def _run(k, sent, now, work, task, pp):
    """Run a task on the stage in place k of the rows, which waits for what was sent; return when it has sent."""
    own = work[2 * task * pp :]
    after = work[(2 * task + 1) * pp :]
    now[k] = max(now[k] + own[k], sent + after[k])
    return now[k]


@inlined_kernel
def _run_weights(pp, side, h, low, high, times, now, gradients):
    """Run weight gradients of stage h of a half that have waited, from the `low`-th to before the `high`-th."""
    k = side * (pp // 2) + h
    done = now[k]
    for number in range(low, high):
        chunk = _chunk(pp, side, h, waiting_phase(h, number))
        done += times.backward_weight[chunk]
        gradients[chunk] = done
    now[k] = done


@lean_kernel
def _inward(low, high, place, now, before, sent, work, task, pp):
    """Run a task on stages `high` - 1 down to `low` of the half in `place`: each waits for what the one before sent.

    Numbers without sign halve the time: numba looks at no index whether it is negative. Inlined into its six calls
    it saved 0.7 us of 6.1 an estimate and made the first estimate of a machine compile for a ninth longer.
    """
    own = work[2 * task * pp :]
    after = work[(2 * task + 1) * pp :]
    top = np.uint64(place + high - 1)
    for i in range(np.uint64(max(high - low, 0))):
        k = top - i
        done = max(now[k] + own[k], before[k] + after[k])
        now[k] = done
        sent[k] = done


@inlined_kernel
def _outward(low, high, place, done, now, work, task, pp):
    """Run a task on the same stages, each of which waits for the one inside of it; return when the last has sent.

    `done` is when the stage inside of the first one sent.
    """
    own = work[2 * task * pp :]
    after = work[(2 * task + 1) * pp :]
    top = np.uint64(place + high - 1)
    for i in range(np.uint64(max(high - low, 0))):
        k = top - i
        done = max(now[k] + own[k], done + after[k])
        now[k] = done
    return done


@inlined_kernel
def _write_tasks(pp, times, work):
    """Write what each task adds to its stage's clock and to the time at which its message was sent."""
    half = pp // 2
    for d in range(pp):
        outer = d - 1 if d < half else d
        inner = d if d < half else d - 1
        side = 0 if d < half else 1
        h = pp - 1 - d if side else d
        k = side * half + h
        out_busy = 0.0 if h == 0 else times.send_busy[outer]
        out_rest = _NEVER if h == 0 else times.send_delay[outer] - times.send_busy[outer]
        in_busy = times.send_busy[inner]
        in_rest = times.send_delay[inner] - times.send_busy[inner]
        zero, one = _chunk(pp, side, h, 0), _chunk(pp, side, h, 1)
        forward, weight = times.forward, times.backward_weight
        apart = times.backward_input
        _write_task(work, _F0, pp, k, out_busy, out_rest, forward[zero], in_busy)
        _write_task(work, _B1, pp, k, out_busy, out_rest, apart[one] + weight[one], in_busy)
        _write_task(work, _B1_INPUT, pp, k, out_busy, out_rest, apart[one], in_busy)
        _write_task(work, _PAIR_IN, pp, k, 2 * out_busy, out_rest, times.overlapped[zero], 2 * in_busy)
        _write_task(work, _F1, pp, k, in_busy, in_rest, forward[one], out_busy)
        _write_task(work, _B0, pp, k, in_busy, in_rest, apart[zero] + weight[zero], out_busy)
        _write_task(work, _B0_INPUT, pp, k, in_busy, in_rest, apart[zero], out_busy)
        _write_task(work, _PAIR_OUT, pp, k, 2 * in_busy, in_rest, times.overlapped[one], 2 * out_busy)


@inlined_kernel
def _write_task(work, task, pp, k, receive, rest, seconds, send):
    """Write what a task adds; `rest` is how much longer than receiving its message is on its way."""
    work[2 * task * pp + k] = receive + seconds + send
    work[(2 * task + 1) * pp + k] = rest + seconds + send
