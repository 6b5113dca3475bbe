"""Pipeline schedules: when every stage is done, how long it idles, how many micro-batches it holds at once.

A pipeline is simulated task by task (forward, backward, weight gradients of one micro-batch on one chunk of one stage)
with stages and links that need not be equal. Chunk c of stage s is number c*pp+s in every array.
`order` lists the tasks that `simulate` runs through. See docs/schedules.md for the schedules and their sources.
"""

import numpy as np

from lumos_df.jit import inlined_kernel, lean_kernel
from lumos_df.model.dualpipe import dualpipe, pairs
from lumos_df.model.one_f_one_b import interleaved, one_f_one_b

ONE_F_ONE_B = 0
INTERLEAVED = 1
ZB_H1 = 2
DUALPIPE = 3
GPIPE = 4
"""All forwards, then all backwards."""
FSDP = 5
"""No pipeline: one stage."""

END = 0
"""Column of `stages`: s from the start of the step until the stage's gradients are complete."""
START = 1
"""Column: s until the stage computes for the first time."""
COMPUTE = 2
"""Column: s in which it computes."""
BLOCKED = 3
"""Column: s in which it only sends and receives (`send_busy`)."""
BUBBLE = 4
"""Column: the rest of the makespan, s."""
IN_FLIGHT = 5
"""Column: most micro-batches x chunks between their forward and their backward at once."""
KEPT = 6
"""Column: the same between forward and weight gradients: as `IN_FLIGHT` where backward is one task."""
COLUMNS = 7

NO_SUCH_SCHEDULE = -1
NO_MICRO_BATCH = -2
TOO_MANY_CHUNKS = -3
TOO_FEW_CHUNKS = -4
NOT_A_MULTIPLE = -5
NOT_TWO_CHUNKS = -6
ODD_STAGES = -7
TOO_FEW_MICRO_BATCHES = -8
NO_PIPELINE = -9

REFUSALS = {
    NO_SUCH_SCHEDULE: "there is no such schedule",
    NO_MICRO_BATCH: "a pipeline needs at least one stage and one micro-batch",
    TOO_MANY_CHUNKS: "only the interleaved schedule and DualPipe have several chunks a stage",
    TOO_FEW_CHUNKS: "the interleaved schedule needs two stages and two chunks a stage or more",
    NOT_A_MULTIPLE: "the interleaved schedule needs micro-batches that are a multiple of the stages",
    NOT_TWO_CHUNKS: "DualPipe has two chunks a stage",
    ODD_STAGES: "DualPipe needs an even number of stages",
    TOO_FEW_MICRO_BATCHES: "DualPipe needs an even number of micro-batches, at least two a stage",
    NO_PIPELINE: "FSDP without a pipeline has one stage",
}
"""What is wrong, by the code that `refusal` and `simulate` return."""

_NEVER = -np.inf
"""When a message that nobody sends was sent."""


@lean_kernel
def refusal(schedule, pp, vp, micro_batches):
    """Return 0 where the schedule can run so, else a code of `REFUSALS`."""
    if schedule < ONE_F_ONE_B or schedule > FSDP:
        return NO_SUCH_SCHEDULE
    if pp < 1 or vp < 1 or micro_batches < 1:
        return NO_MICRO_BATCH
    if schedule == INTERLEAVED:
        if pp < 2 or vp < 2:
            return TOO_FEW_CHUNKS
        return 0 if micro_batches % pp == 0 else NOT_A_MULTIPLE
    if schedule == DUALPIPE:
        if vp != 2:
            return NOT_TWO_CHUNKS
        if pp % 2:
            return ODD_STAGES
        return 0 if micro_batches % 2 == 0 and micro_batches >= 2 * pp else TOO_FEW_MICRO_BATCHES
    if schedule == FSDP and pp > 1:
        return NO_PIPELINE
    return 0 if vp == 1 else TOO_MANY_CHUNKS


@lean_kernel
def work_size(pp, vp):
    """Return how many float64 `simulate` wants to work with."""
    return 5 * pp * vp + 8 * pp


@lean_kernel
def simulate(
    schedule,
    pp,
    vp,
    micro_batches,
    forward,
    backward_input,
    backward_weight,
    overlapped,
    send_delay,
    send_busy,
    work,
    stages,
    gradients,
):
    """Simulate one training step of a pipeline; return its makespan, s, or a code of `REFUSALS`, below zero.

    A message leaves when its task is done and is there `send_delay` later; for `send_busy` of it the sender does
    nothing else, and for as much the receiver, before its task. All times are s.

    Args:
        schedule: one of the codes above.
        pp, vp, micro_batches: stages, chunks a stage, micro-batches.
        forward, backward_input, backward_weight: float64 [vp * pp] time of one micro-batch on chunk c of stage s.
            Backward is both together where the schedule does not part them. DualPipe's chunk 0 of stage s is the
            model's stage s, its chunk 1 the model's stage pp-1-s.
        overlapped: float64 [vp * pp] DualPipe's forward of a chunk together with a backward of the stage's other one;
            not read by other schedules.
        send_delay: float64 [pp] from the end of a task on one stage until the other, s+1 (0 for the last; backward
            the other way round), may start; latency and bytes over bandwidth.
        send_busy: float64 [pp] at most `send_delay`; 0 where communication is overlapped.
        work: float64 [work_size(pp, vp)].
        stages: float64 [pp, COLUMNS], written.
        gradients: float64 [vp * pp], written: when the gradients of a chunk are complete.
    """
    refused = refusal(schedule, pp, vp, micro_batches)
    if refused:
        return float(refused)
    many = pp * vp
    f_own = work[:many]
    f_after = work[many : 2 * many]
    b_own = work[2 * many : 3 * many]
    b_after = work[3 * many : 4 * many]
    weight = work[4 * many : 5 * many]
    clock = work[5 * many : 5 * many + 5 * pp]
    copy = work[5 * many + 5 * pp :]
    clock[:] = 0.0
    skipped = 0.0
    if schedule == DUALPIPE:
        skipped = dualpipe(
            pp,
            micro_batches,
            forward,
            backward_input,
            backward_weight,
            overlapped,
            send_delay,
            send_busy,
            f_own,
            f_after,
            b_own,
            b_after,
            clock,
            copy,
            gradients,
        )
    else:
        _coefficients(
            schedule,
            pp,
            vp,
            forward,
            backward_input,
            backward_weight,
            send_delay,
            send_busy,
            f_own,
            f_after,
            b_own,
            b_after,
            weight,
        )
        if schedule == INTERLEAVED:
            skipped = interleaved(pp, vp, micro_batches, f_own, f_after, b_own, b_after, clock, copy, gradients)
        elif schedule == GPIPE:
            _gpipe(pp, micro_batches, f_own, f_after, b_own, b_after, clock)
        else:
            lagging = schedule == ZB_H1
            skipped = one_f_one_b(pp, micro_batches, lagging, f_own, f_after, b_own, b_after, weight, clock, copy)
    makespan = 0.0
    for s in range(pp):
        clock[s] += skipped
        makespan = max(makespan, clock[s])
        for c in range(vp):
            gradients[c * pp + s] = clock[s] if vp == 1 else gradients[c * pp + s] + skipped
    _report(
        schedule,
        pp,
        vp,
        micro_batches,
        forward,
        backward_input,
        backward_weight,
        overlapped,
        send_delay,
        send_busy,
        stages,
        clock,
        makespan,
    )
    return makespan


@inlined_kernel
def _report(
    schedule,
    pp,
    vp,
    micro_batches,
    forward,
    backward_input,
    backward_weight,
    overlapped,
    send_delay,
    send_busy,
    stages,
    clock,
    makespan,
):
    """Write what is to be known of every stage."""
    both = schedule == DUALPIPE
    each = micro_batches // 2 if both else micro_batches
    last = pp - 1 if both else pp * vp - 1
    start = 0.0
    for s in range(pp):
        compute = 0.0
        blocked = 0.0
        for c in range(vp):
            i = c * pp + s
            compute += each * (forward[i] + backward_input[i] + backward_weight[i])
            place = s if both else i
            # A message each way over the link before, and one each way over the link behind.
            blocked += 2.0 * each * ((send_busy[s - 1] if place else 0.0) + (send_busy[s] if place < last else 0.0))
            if both:
                other = (1 - c) * pp + s
                alone = forward[i] + backward_input[other] + backward_weight[other]
                h = min(s, pp - 1 - s)
                compute += pairs(pp, micro_batches, h, c if s < pp // 2 else 1 - c) * (overlapped[i] - alone)
        stages[s, END] = clock[s]
        stages[s, START] = start
        stages[s, COMPUTE] = compute
        stages[s, BLOCKED] = blocked
        stages[s, BUBBLE] = makespan - compute - blocked
        in_flight = pp + 1 if both else min(each * vp, 1 + forwards_ahead(schedule, pp, vp, micro_batches, s))
        stages[s, IN_FLIGHT] = in_flight
        stages[s, KEPT] = min(each, pp) if schedule == ZB_H1 else in_flight
        start += forward[s] + send_delay[s]
    if both:
        start = 0.0
        for s in range(pp - 1, pp // 2 - 1, -1):
            stages[s, START] = start
            start += forward[pp + s] + send_delay[s - 1]


@inlined_kernel
def forwards_ahead(schedule, pp, vp, micro_batches, stage):
    """Return how many forwards stage `stage` runs before its first pair of a forward and a backward."""
    if schedule == GPIPE:
        return micro_batches
    if schedule == INTERLEAVED:
        return 2 * (pp - 1 - stage) + (vp - 1) * pp
    return pp - 1 - stage


@inlined_kernel
def _coefficients(
    schedule,
    pp,
    vp,
    forward,
    backward_input,
    backward_weight,
    send_delay,
    send_busy,
    f_own,
    f_after,
    b_own,
    b_after,
    weight,
):
    """Write what a task adds to its stage's clock and to the time at which its message was sent; [vp * pp], s."""
    last = pp * vp - 1
    for i in range(last + 1):
        s = i % pp
        before = send_busy[s - 1] if i else 0.0
        behind = send_busy[s] if i < last else 0.0
        apart = schedule == ZB_H1
        backward = backward_input[i] + (0.0 if apart else backward_weight[i])
        weight[i] = backward_weight[i] if apart else 0.0
        f_own[i] = before + forward[i] + behind
        b_own[i] = behind + backward + before
        f_after[i] = send_delay[s - 1] - before + forward[i] + behind if i else _NEVER
        b_after[i] = send_delay[s] - behind + backward + before if i < last else _NEVER


@inlined_kernel
def _gpipe(pp, micro_batches, f_own, f_after, b_own, b_after, clock):
    """Run all forwards, then all backwards.

    A stage that is fed at a steady pace passes on at the slower of that pace and its own, so all its times are the
    first and the pace. What feeds a stage with gradients starts after the stage's last forward, so its clock matters
    only for the last stage.
    """
    first = 0.0
    pace = 0.0
    for s in range(pp):
        first = max(f_own[s], first + f_after[s])
        pace = max(pace, f_own[s])
        clock[s] = first + (micro_batches - 1) * pace
    pace = 0.0
    for s in range(pp - 1, -1, -1):
        first = max(clock[s] + b_own[s], first + b_after[s])
        pace = max(pace, b_own[s])
        clock[s] = first + (micro_batches - 1) * pace
