"""In which order a stage runs its tasks: what `schedule.simulate` simulates, as a list."""

import numpy as np

from lumos_df.jit import kernel
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
    chunks = 1 if schedule == DUALPIPE else vp
    forwards = micro_batches * chunks
    tasks = np.zeros((3 * forwards, 4), np.int32)
    if schedule == DUALPIPE:
        return tasks[:0]
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
