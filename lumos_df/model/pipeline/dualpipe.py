"""The loop of DualPipe: micro-batches enter at both ends, and forwards overlap with backwards of the other direction.

DeepSeek's eight steps (https://github.com/deepseek-ai/DualPipe, dualpipe.py, `step`), in rounds in which what a stage
waits for was done in the round before, or earlier in this one. As there, the stages of each half are numbered h = 0
at its end to half-1 in the middle; phase 0 is the direction that starts at the half's own end, and phase 1 the other,
so forwards of phase 0 (F0) and backwards of phase 1 (B1) go inward, F1 and B0 outward. In the middle, one half's
phase 0 becomes the other half's phase 1.

One thing is simpler here: a message leaves when its task is done, not with the next batch of messages.
"""

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.model.pipeline.periods import FOUND, next_period


@inlined_kernel
def apart_from(h, phase):
    """Return from which of the last single backwards of a phase (step 6) on the weight gradients wait."""
    return h // 2 + 1 if phase else (h + 1) // 2


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


@inlined_kernel
def _run(clock, d, receive, ready, seconds, send):
    """Run a task or pair on stage d; return when it is done and sent."""
    clock[d] = max(clock[d] + receive, ready) + seconds + send
    return clock[d]


@lean_kernel
def dualpipe(pp, micro_batches, times, links, state, copy, gradients):
    """Run DualPipe; return the time that was not simulated round by round.

    Args:
        pp, micro_batches: stages, even; micro-batches of both directions together, even, at least 2 * pp.
        times: PipelineTimes of `schedule`.
        links: float64 [4 * pp] to work with.
        state: float64 [5 * pp], zeros; on return the first pp are when each stage is done, but for the returned time.
        copy: float64 [3 * pp] to work with.
        gradients: float64 [2 * pp]; on return when the last backward of a chunk is done, but for the returned time.
    """
    clock = state
    f0 = state[pp:]
    b1 = state[2 * pp :]
    f1 = state[3 * pp :]
    b0 = state[4 * pp :]
    half = pp // 2
    out_busy, out_rest = links[:pp], links[pp : 2 * pp]
    in_busy, in_rest = links[2 * pp : 3 * pp], links[3 * pp : 4 * pp]
    _write_links(pp, times, out_busy, out_rest, in_busy, in_rest)
    forward, overlapped = times.forward, times.overlapped
    backward_input, backward_weight = times.backward_input, times.backward_weight
    # Steps 1 and 2: F0 of j on stage h in wave j + h; F1 of j in wave j + pp-2-h.
    for wave in range(pp - 1):
        for side in range(2):
            for h in range(min(wave, half - 1), -1, -1):
                d = pp - 1 - h if side else h
                ready = f0[d + 1 if side else d - 1] + out_rest[d] if h else 0.0
                f0[d] = _run(clock, d, out_busy[d], ready, forward[side * pp + d], in_busy[d])
        for side in range(2):
            for h in range(pp - 2 - wave, half):
                d = pp - 1 - h if side else h
                inner = d - 1 if side else d + 1
                ready = (f1[inner] if h < half - 1 else f0[inner]) + in_rest[d]
                f1[d] = _run(clock, d, in_busy[d], ready, forward[(1 - side) * pp + d], out_busy[d])
    # Step 3: B1, its weight gradients, F1.
    for i in range(half - 1):
        for side in range(2):
            for h in range(half - 1 - i):
                d = pp - 1 - h if side else h
                inner = d - 1 if side else d + 1
                phase1 = (1 - side) * pp + d
                ready = b1[d + 1 if side else d - 1] + out_rest[d] if h else 0.0
                b1[d] = _run(clock, d, out_busy[d], ready, backward_input[phase1], in_busy[d])
                clock[d] += backward_weight[phase1]
                f1[d] = _run(clock, d, in_busy[d], f1[inner] + in_rest[d], forward[phase1], out_busy[d])
    # Steps 4 to 7: in round i F0 of pp-1-h+i with B1 of half-1-h+i, then F1 of half+i with B0 of i, as far as they go.
    left = micro_batches // 2
    skipped = 0.0
    steps = 0
    wanted = 0
    i = 0
    while i < left:
        last = i - (left - half)
        for side in range(2):
            for h in range(half - 1, -1, -1):
                d = pp - 1 - h if side else h
                outer = d + 1 if side else d - 1
                phase0 = side * pp + d
                phase1 = (1 - side) * pp + d
                f_ready = f0[outer] + out_rest[d] if h else 0.0
                b_ready = b1[outer] + out_rest[d] if h else 0.0
                if pp - 1 - h + i < left:
                    if i == 0 and h == half - 1:
                        # DeepSeek does not overlap these two.
                        f0[d] = _run(clock, d, out_busy[d], f_ready, forward[phase0], in_busy[d])
                        b1[d] = _run(
                            clock, d, out_busy[d], b_ready, backward_input[phase1] + backward_weight[phase1], in_busy[d]
                        )
                    else:
                        ready = max(f_ready, b_ready)
                        f0[d] = _run(clock, d, 2 * out_busy[d], ready, overlapped[phase0], 2 * in_busy[d])
                        b1[d] = f0[d]
                    gradients[phase1] = clock[d]
                elif half - 1 - h + i < left:
                    seconds = backward_input[phase1]
                    if last < apart_from(h, 1):
                        seconds += backward_weight[phase1]
                    b1[d] = _run(clock, d, out_busy[d], b_ready, seconds, in_busy[d])
                    gradients[phase1] = clock[d]
                else:
                    chunk = phase1 if waiting_phase(h, last - h - 1) else phase0
                    clock[d] += backward_weight[chunk]
                    gradients[chunk] = clock[d]
        for side in range(2):
            for h in range(half - 1, -1, -1):
                d = pp - 1 - h if side else h
                inner = d - 1 if side else d + 1
                phase0 = side * pp + d
                phase1 = (1 - side) * pp + d
                f_ready = (f1[inner] if h < half - 1 else f0[inner]) + in_rest[d]
                b_ready = (b0[inner] if h < half - 1 else b1[inner]) + in_rest[d]
                if last < 0:
                    ready = max(f_ready, b_ready)
                    f1[d] = _run(clock, d, 2 * in_busy[d], ready, overlapped[phase1], 2 * out_busy[d])
                    b0[d] = f1[d]
                else:
                    seconds = backward_input[phase0]
                    if last < apart_from(h, 0):
                        seconds += backward_weight[phase0]
                    b0[d] = _run(clock, d, in_busy[d], b_ready, seconds, out_busy[d])
                gradients[phase0] = clock[d]
        if wanted != FOUND and i < left - pp:
            period, steps, wanted = next_period(state, copy, 3 * pp, steps, wanted)
            if wanted == FOUND:
                times = (left - pp - i) // steps
                left -= times * steps
                skipped = times * period
        i += 1
    # Step 8: the weight gradients that still wait.
    for side in range(2):
        for h in range(half):
            d = pp - 1 - h if side else h
            for k in range(half - 1 - h, half):
                chunk = (1 - side if waiting_phase(h, k) else side) * pp + d
                clock[d] += backward_weight[chunk]
                gradients[chunk] = clock[d]
    return skipped


@inlined_kernel
def _write_links(pp, times, out_busy, out_rest, in_busy, in_rest):
    """Write of each stage's links, toward its end and toward the middle, how long busy and how much longer they are."""
    half = pp // 2
    for d in range(pp):
        outer = d - 1 if d < half else d
        inner = d if d < half else d - 1
        at_end = d == 0 or d == pp - 1
        out_busy[d] = 0.0 if at_end else times.send_busy[outer]
        out_rest[d] = 0.0 if at_end else times.send_delay[outer] - times.send_busy[outer]
        in_busy[d] = times.send_busy[inner]
        in_rest[d] = times.send_delay[inner] - times.send_busy[inner]
