"""In which order a stage runs its tasks: what `schedule.simulate` simulates, as a list."""

import numpy as np

from lumos_df.jit import kernel
from lumos_df.model.dualpipe import apart_from
from lumos_df.model.schedule import DUALPIPE, INTERLEAVED, ZB_H1, forwards_ahead

FORWARD = 0
BACKWARD = 1
"""Both gradients."""
BACKWARD_INPUT = 2
BACKWARD_WEIGHT = 3

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
    many = 0
    for k in range(-ahead, forwards + stage):
        if k + ahead < forwards:
            many = _add(tasks, many, FORWARD, k + ahead, group, vp)
        if 0 <= k < forwards:
            many = _add(tasks, many, backward, k, group, vp)
        if schedule == ZB_H1 and k >= stage:
            many = _add(tasks, many, BACKWARD_WEIGHT, k - stage, group, vp)
    return tasks[:many]


@kernel
def _add(tasks, many, kind, k, group, chunks):
    """Append a stage's k-th task of its kind; return how many tasks there are now."""
    row = k // group
    chunk = row % chunks
    tasks[many, KIND] = kind
    tasks[many, CHUNK] = chunk if kind == FORWARD else chunks - 1 - chunk
    tasks[many, MICRO_BATCH] = row // chunks * group + k % group
    return many + 1


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
    many = waits = weights = 0
    for _ in range(2 * (half - 1 - h)):
        many = _directed(tasks, many, FORWARD, 0, flip, left, done)
    for _ in range(h + 1):
        many = _directed(tasks, many, FORWARD, 0, flip, left, done)
        many = _directed(tasks, many, FORWARD, 1, flip, left, done)
    for _ in range(half - 1 - h):
        many = _directed(tasks, many, BACKWARD_INPUT, 1, flip, left, done)
        many = _weights(tasks, many, many - 1)
        many = _directed(tasks, many, FORWARD, 1, flip, left, done)
    for i in range(left - pp + h + 1):
        tasks[many, PAIRED] = 0 if i == 0 and h == half - 1 else 1
        many = _directed(tasks, many, FORWARD, 0, flip, left, done)
        many = _directed(tasks, many, BACKWARD, 1, flip, left, done)
        tasks[many, PAIRED] = 1
        many = _directed(tasks, many, FORWARD, 1, flip, left, done)
        many = _directed(tasks, many, BACKWARD, 0, flip, left, done)
    for _ in range(half - 1 - h):
        many = _directed(tasks, many, BACKWARD, 1, flip, left, done)
        tasks[many, PAIRED] = 1
        many = _directed(tasks, many, FORWARD, 1, flip, left, done)
        many = _directed(tasks, many, BACKWARD, 0, flip, left, done)
    for j in range(half):
        if j <= h:
            kind = BACKWARD if j < apart_from(h, 1) else BACKWARD_INPUT
            many = _directed(tasks, many, kind, 1, flip, left, done)
            if kind == BACKWARD_INPUT:
                waiting[waits] = many - 1
                waits += 1
        else:
            many = _weights(tasks, many, waiting[weights])
            weights += 1
        kind = BACKWARD if j < apart_from(h, 0) else BACKWARD_INPUT
        many = _directed(tasks, many, kind, 0, flip, left, done)
        if kind == BACKWARD_INPUT:
            waiting[waits] = many - 1
            waits += 1
    for k in range(weights, waits):
        many = _weights(tasks, many, waiting[k])
    return many


@kernel
def _directed(tasks, many, kind, phase, flip, left, done):
    """Append a stage's next forward or backward of a phase; return how many tasks there are now."""
    chunk = phase ^ flip
    way = 0 if kind == FORWARD else 1
    tasks[many, KIND] = kind
    tasks[many, CHUNK] = chunk
    tasks[many, MICRO_BATCH] = chunk * left + done[way, phase]
    done[way, phase] += 1
    return many + 1


@kernel
def _weights(tasks, many, row):
    """Append the weight gradients that the backward in a row left; return how many tasks there are now."""
    tasks[many, KIND] = BACKWARD_WEIGHT
    tasks[many, CHUNK] = tasks[row, CHUNK]
    tasks[many, MICRO_BATCH] = tasks[row, MICRO_BATCH]
    return many + 1
