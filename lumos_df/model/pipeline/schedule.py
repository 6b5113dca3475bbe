"""Pipeline schedules: when every stage is done, how long it idles, how many micro-batches it holds at once.

A pipeline is simulated task by task (forward, backward, weight gradients of one micro-batch on one chunk of one stage)
with stages and links that need not be equal. Chunk c of stage s is number c*pp+s in every array.
`order` lists the tasks that `simulate` runs through. See docs/schedules.md for the schedules and their sources.
"""

from collections import namedtuple

import numpy as np

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.model.pipeline.dualpipe import ROWS, dualpipe, pairs
from lumos_df.model.pipeline.one_f_one_b import interleaved, one_f_one_b
from lumos_df.schema.plan_words import DUALPIPE, FSDP, GPIPE, INTERLEAVED, SCHEDULES, ZB_H1

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

PipelineTimes = namedtuple(  # noqa: PYI024 - numba takes them so, and folders of kernels hold no classes
    "PipelineTimes", ("forward", "backward_input", "backward_weight", "overlapped", "send_delay", "send_busy")
)
"""What tasks and messages take, float64, s.

forward, backward_input, backward_weight: [vp * pp] time of one micro-batch on chunk c of stage s. Backward is both
    together where the schedule does not part them. DualPipe's chunk 0 of stage s is the model's stage s, its chunk 1
    the model's stage pp-1-s.
overlapped: [vp * pp] DualPipe's forward of a chunk together with a backward of the stage's other one; not read by other
    schedules.
send_delay: [pp] from the end of a task on one stage until the other, s+1 (0 for the last; backward the other way
    round), may start; latency and bytes over bandwidth.
send_busy: [pp] at most `send_delay`; 0 where communication is overlapped.
"""

TaskCosts = namedtuple(  # noqa: PYI024 - as above
    "TaskCosts", ("forward_own", "forward_after", "backward_own", "backward_after", "weight")
)
"""What a task adds to its stage's clock (own), and to the time at which its message was sent (after); and the weight
gradients that run apart: float64 [vp * pp], s."""

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
    if schedule < 0 or schedule >= len(SCHEDULES):
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
    return max(5 * vp + 8, ROWS) * pp


@lean_kernel
def simulate(schedule, pp, vp, micro_batches, times, work, stages, gradients):
    """Simulate one training step of a pipeline; return its makespan, s, or a code of `REFUSALS`, below zero.

    A message leaves when its task is done and is there `send_delay` later; for `send_busy` of it the sender does
    nothing else, and for as much the receiver, before its task. All times are s.

    Args:
        schedule: place in `plan_words.SCHEDULES`.
        pp, vp, micro_batches: stages, chunks a stage, micro-batches.
        times: PipelineTimes.
        work: float64 [work_size(pp, vp)].
        stages: float64 [pp, COLUMNS], written.
        gradients: float64 [vp * pp], written: when the gradients of a chunk are complete.
    """
    refused = refusal(schedule, pp, vp, micro_batches)
    if refused:
        return float(refused)
    chunks = pp * vp
    clock = work[5 * chunks : 5 * chunks + 5 * pp]
    copy = work[5 * chunks + 5 * pp :]
    clock[:] = 0.0
    skipped = 0.0
    if schedule == DUALPIPE:
        skipped = dualpipe(pp, micro_batches, times, work, gradients)
        clock = work[:pp]
    else:
        costs = TaskCosts(
            work[:chunks],
            work[chunks : 2 * chunks],
            work[2 * chunks : 3 * chunks],
            work[3 * chunks : 4 * chunks],
            work[4 * chunks : 5 * chunks],
        )
        _write_costs(schedule, pp, vp, times, costs)
        if schedule == INTERLEAVED:
            skipped = interleaved(pp, vp, micro_batches, costs, clock, copy, gradients)
        elif schedule == GPIPE:
            _gpipe(pp, micro_batches, costs, clock)
        else:
            skipped = one_f_one_b(pp, micro_batches, schedule == ZB_H1, costs, clock, copy)
    makespan = 0.0
    for s in range(pp):
        clock[s] += skipped
        makespan = max(makespan, clock[s])
        for c in range(vp):
            gradients[c * pp + s] = clock[s] if vp == 1 else gradients[c * pp + s] + skipped
    _report(schedule, pp, vp, micro_batches, times, stages, clock, makespan)
    return makespan


@lean_kernel
def pace_stage(pp, stages):
    """Return the stage that sets a pipeline's pace: the busiest, by computing and blocked; the first of several.

    The critical path, back from the last end through what each task waited for, stays on this stage while the pipeline
    is full: no schedule is shorter than it. The path leaves it where the stage waits: to fill and drain the pipeline,
    and where a message or the order of tasks takes longer than what the stage has to do meanwhile.
    """
    busiest = 0
    for s in range(1, pp):
        if stages[s, COMPUTE] + stages[s, BLOCKED] > stages[busiest, COMPUTE] + stages[busiest, BLOCKED]:
            busiest = s
    return busiest


@inlined_kernel
def _report(schedule, pp, vp, micro_batches, times, stages, clock, makespan):
    """Write what is to be known of every stage."""
    two_way = schedule == DUALPIPE
    batches = micro_batches // 2 if two_way else micro_batches
    last = pp - 1 if two_way else pp * vp - 1
    start = 0.0
    for s in range(pp):
        compute = 0.0
        blocked = 0.0
        for c in range(vp):
            i = c * pp + s
            compute += batches * (times.forward[i] + times.backward_input[i] + times.backward_weight[i])
            place = s if two_way else i
            # A message each way over the link before, and one each way over the link behind.
            blocked += (
                2.0
                * batches
                * ((times.send_busy[s - 1] if place else 0.0) + (times.send_busy[s] if place < last else 0.0))
            )
            if two_way:
                opposite = (1 - c) * pp + s
                apart = times.forward[i] + times.backward_input[opposite] + times.backward_weight[opposite]
                h = min(s, pp - 1 - s)
                compute += pairs(pp, micro_batches, h, c if s < pp // 2 else 1 - c) * (times.overlapped[i] - apart)
        stages[s, END] = clock[s]
        stages[s, START] = start
        stages[s, COMPUTE] = compute
        stages[s, BLOCKED] = blocked
        stages[s, BUBBLE] = makespan - compute - blocked
        in_flight = pp + 1 if two_way else min(batches * vp, 1 + forwards_ahead(schedule, pp, vp, micro_batches, s))
        stages[s, IN_FLIGHT] = in_flight
        stages[s, KEPT] = min(batches, pp) if schedule == ZB_H1 else in_flight
        start += times.forward[s] + times.send_delay[s]
    if two_way:
        start = 0.0
        for s in range(pp - 1, pp // 2 - 1, -1):
            stages[s, START] = start
            start += times.forward[pp + s] + times.send_delay[s - 1]


@inlined_kernel
def forwards_ahead(schedule, pp, vp, micro_batches, stage):
    """Return how many forwards stage `stage` runs before its first pair of a forward and a backward."""
    if schedule == GPIPE:
        return micro_batches
    if schedule == INTERLEAVED:
        return 2 * (pp - 1 - stage) + (vp - 1) * pp
    return pp - 1 - stage


@inlined_kernel
def _write_costs(schedule, pp, vp, times, costs):
    """Write the costs of every chunk's tasks."""
    last = pp * vp - 1
    for i in range(last + 1):
        s = i % pp
        before = times.send_busy[s - 1] if i else 0.0
        behind = times.send_busy[s] if i < last else 0.0
        apart = schedule == ZB_H1
        backward = times.backward_input[i] + (0.0 if apart else times.backward_weight[i])
        costs.weight[i] = times.backward_weight[i] if apart else 0.0
        costs.forward_own[i] = before + times.forward[i] + behind
        costs.backward_own[i] = behind + backward + before
        costs.forward_after[i] = times.send_delay[s - 1] - before + times.forward[i] + behind if i else _NEVER
        costs.backward_after[i] = times.send_delay[s] - behind + backward + before if i < last else _NEVER


@inlined_kernel
def _gpipe(pp, micro_batches, costs, clock):
    """Run all forwards, then all backwards.

    A stage that is fed at a steady pace passes on at the slower of that pace and its own, so all its times are the
    first and the pace. What feeds a stage with gradients starts after the stage's last forward, so its clock matters
    only for the last stage.
    """
    first = 0.0
    pace = 0.0
    for s in range(pp):
        first = max(costs.forward_own[s], first + costs.forward_after[s])
        pace = max(pace, costs.forward_own[s])
        clock[s] = first + (micro_batches - 1) * pace
    pace = 0.0
    for s in range(pp - 1, -1, -1):
        first = max(clock[s] + costs.backward_own[s], first + costs.backward_after[s])
        pace = max(pace, costs.backward_own[s])
        clock[s] = first + (micro_batches - 1) * pace
