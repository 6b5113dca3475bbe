"""In which order a stage runs its tasks: what `schedule.simulate` simulates, as a list."""

from typing import Final

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.model.kernels.cost import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, PASSES
from lumos_df.model.pipeline.schedule import forwards_ahead
from lumos_df.schema.plan_words import DUALPIPE, INTERLEAVED, ZB_H1

BACKWARD: Final = PASSES
"""Kind of a task, beside the passes over a block: both gradients at once."""

KIND = 0
CHUNK = 1
MICRO_BATCH = 2
PAIRED = 3
"""Column: 1 where the task runs overlapped with the next one of the list."""


@kernel
def order(schedule, pp, vp, micro_batches, stage):
    """Return int32 [tasks, 4]: kind, chunk, micro-batch, paired, in the order in which the stage runs them.

    DualPipe's micro-batches 0..m/2-1 enter at stage 0 and meet the stages' chunks 0, the others enter at the last
    stage and meet the chunks 1. What `schedule.refusal` refuses has no order.
    """
    forwards = micro_batches * (1 if schedule == DUALPIPE else vp)
    tasks = np.zeros((3 * forwards, 4), np.int32)
    if schedule == DUALPIPE:
        return tasks[: _dualpipe(tasks, pp, micro_batches // 2, stage)]
    ahead = forwards_ahead(schedule, pp, vp, micro_batches, stage)
    group = pp if schedule == INTERLEAVED else 1
    backward = BACKWARD_INPUT if schedule == ZB_H1 else BACKWARD
    count = 0
    for k in range(-ahead, forwards + stage):
        if k + ahead < forwards:
            count = _add(tasks, count, FORWARD, k + ahead, group, vp)
        if 0 <= k < forwards:
            count = _add(tasks, count, backward, k, group, vp)
        if schedule == ZB_H1 and k >= stage:
            count = _add(tasks, count, BACKWARD_WEIGHT, k - stage, group, vp)
    return tasks[:count]


@kernel
def _add(tasks, count, kind, k, group, chunks):
    """Append a stage's k-th task of its kind; return how many tasks there are now."""
    row = k // group
    chunk = row % chunks
    tasks[count, KIND] = kind
    tasks[count, CHUNK] = chunk if kind == FORWARD else chunks - 1 - chunk
    tasks[count, MICRO_BATCH] = row // chunks * group + k % group
    return count + 1


@kernel
def _dualpipe(tasks, pp, left, stage):
    """Write the eight steps of DeepSeek's `step`; return how many tasks they are.

    Args:
        tasks: int32 [6 * left, 4].
        pp, left: stages, and micro-batches of each direction.
        stage: the stage.
    """
    half = pp // 2
    h = min(stage, pp - 1 - stage)
    flip = 1 if stage >= half else 0
    done = np.zeros((2, 2), np.int32)
    waiting = np.empty(pp, np.int32)
    count = waits = weights = 0
    for _ in range(2 * (half - 1 - h)):
        count = _directed(tasks, count, FORWARD, 0, flip, left, done)
    for _ in range(h + 1):
        count = _directed(tasks, count, FORWARD, 0, flip, left, done)
        count = _directed(tasks, count, FORWARD, 1, flip, left, done)
    for _ in range(half - 1 - h):
        count = _directed(tasks, count, BACKWARD_INPUT, 1, flip, left, done)
        count = _weights(tasks, count, count - 1)
        count = _directed(tasks, count, FORWARD, 1, flip, left, done)
    for i in range(left - pp + h + 1):
        tasks[count, PAIRED] = 0 if i == 0 and h == half - 1 else 1
        count = _directed(tasks, count, FORWARD, 0, flip, left, done)
        count = _directed(tasks, count, BACKWARD, 1, flip, left, done)
        tasks[count, PAIRED] = 1
        count = _directed(tasks, count, FORWARD, 1, flip, left, done)
        count = _directed(tasks, count, BACKWARD, 0, flip, left, done)
    for _ in range(half - 1 - h):
        count = _directed(tasks, count, BACKWARD, 1, flip, left, done)
        tasks[count, PAIRED] = 1
        count = _directed(tasks, count, FORWARD, 1, flip, left, done)
        count = _directed(tasks, count, BACKWARD, 0, flip, left, done)
    for j in range(half):
        if j <= h:
            kind = BACKWARD if j < _apart_from(h, 1) else BACKWARD_INPUT
            count = _directed(tasks, count, kind, 1, flip, left, done)
            if kind == BACKWARD_INPUT:
                waiting[waits] = count - 1
                waits += 1
        else:
            count = _weights(tasks, count, waiting[weights])
            weights += 1
        kind = BACKWARD if j < _apart_from(h, 0) else BACKWARD_INPUT
        count = _directed(tasks, count, kind, 0, flip, left, done)
        if kind == BACKWARD_INPUT:
            waiting[waits] = count - 1
            waits += 1
    for k in range(weights, waits):
        count = _weights(tasks, count, waiting[k])
    return count


@kernel
def _apart_from(h, phase):
    """Return from which of the last single backwards of a phase (step 6) on the weight gradients wait."""
    return h // 2 + 1 if phase else (h + 1) // 2


@kernel
def _directed(tasks, count, kind, phase, flip, left, done):
    """Append a stage's next forward or backward of a phase; return how many tasks there are now."""
    chunk = phase ^ flip
    way = 0 if kind == FORWARD else 1
    tasks[count, KIND] = kind
    tasks[count, CHUNK] = chunk
    tasks[count, MICRO_BATCH] = chunk * left + done[way, phase]
    done[way, phase] += 1
    return count + 1


@kernel
def _weights(tasks, count, row):
    """Append the weight gradients that the backward in a row left; return how many tasks there are now."""
    tasks[count, KIND] = BACKWARD_WEIGHT
    tasks[count, CHUNK] = tasks[row, CHUNK]
    tasks[count, MICRO_BATCH] = tasks[row, MICRO_BATCH]
    return count + 1
