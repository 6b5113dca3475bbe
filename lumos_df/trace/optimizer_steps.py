"""Steps of a job without marks, told by the calls of its optimizers.

`torch.optim` puts a range of its own, `Optimizer.step#NAME.step`, around every call, with or without a schedule of the
profiler (https://github.com/pytorch/pytorch/blob/main/torch/optim/optimizer.py, `profile_hook_step`).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, CPU_OP, GPU
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP
from lumos_df.trace.recording import Attribute, Recording

_CLEARS: Final = "Optimizer.zero_grad#"


class Windows(NamedTuple):
    """Steps of one thread, in order, none in another [k]."""

    ts: NDArray[np.int64]
    """Start, ns on the recording's clock."""
    dur: NDArray[np.int64]
    track: NDArray[np.int32]


NOTHING: Final = Windows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))


def windows(recording: Recording, own: NDArray[np.int64]) -> Windows:
    """Return the steps that the optimizers of one process end, none where their calls may end something else.

    A step begins where the one before ends, the first one where it does as much as the others. It ends with the
    optimizer, with the range around it that holds no call of another step, or with the clearing of gradients behind it,
    if a step does not begin with that. All steps add up as many gradients; where two optimizers take turns, as those of
    a GAN, a step is a turn of both. A first one of fewer, or whose forward pass lacks operators that its backward pass
    has, as of a recording that began in its middle, is none. A single step of a GPU is none either: where the host runs
    ahead, only the next one would tell when its work ends.

    Args:
        recording: a file as read.
        own: the process's rows of its operators.
    """
    operators = recording.operators
    rows = own[np.isin(operators.kind[own], (ANNOTATION, CPU_OP)) & (operators.track[own] >= 0)]
    rows = rows[np.argsort(operators.ts[rows], kind="stable")]
    name, ts = operators.name[rows], operators.ts[rows]
    end, track = ts + operators.dur[rows], operators.track[rows]
    gradient = ts[recording.where(lambda text: text.endswith(GRADIENT))[name]]
    updates = recording.where(lambda text: text.startswith(OPTIMIZER_STEP))[name]
    clears = recording.where(lambda text: text.startswith(_CLEARS))[name]
    if not updates.any():
        return NOTHING
    here = track == track[np.argmax(updates)]
    called = ts[updates & here]
    added = np.diff(np.searchsorted(gradient, end[updates & here]), prepend=0)
    cut = False
    if len(added) > 2 and _turn(added[1:]) == 1:
        lacks = np.diff(np.searchsorted(_without_forward(recording, rows), called), prepend=0)
        cut = bool(added[0] < added[1] or (added[0] == added[1] and lacks[0] > lacks[1:].max()))
    turn = 1 if cut else _turn(added)
    if not turn:
        return NOTHING
    first, last = (np.searchsorted(called, times) for times in (ts, end))
    holds, begins, ends = here & (first < last), first % turn == 0, last % turn == 0
    step, last_step = first // turn, (last - 1) // turn
    steps = last_step.max() + 1
    high = np.zeros(steps, np.int64)
    around_one = holds & ends & (step == last_step)
    np.maximum.at(high, step[around_one], end[around_one])
    if not clears[np.argmax(updates | clears)]:
        behind = here & clears & (first == last) & ends & (first > 0)
        np.maximum.at(high, last_step[behind], end[behind])
    low = np.append(ts[0], high[:-1])
    # A range around several steps, such as an epoch's, holds whole ones.
    several = holds & (step < last_step)
    np.maximum.at(low, step[several & begins], ts[several & begins])
    followed = several & ends & (last < len(called))
    np.maximum.at(low, last_step[followed] + 1, end[followed])
    # The last turn may have been cut, too.
    whole, inside = slice(int(cut), len(called) // turn), here & ~holds
    if not cut:
        low[0] = _first_begins(ts[inside], end[inside], gradient, low[whole])
    low, high = low[whole], high[whole]
    if len(low) == 1 and np.isin(operators.kind[own], GPU).any():
        return NOTHING
    return Windows(low, high - low, np.full(len(low), track[np.argmax(updates)], np.int32))


def _without_forward(recording: Recording, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when operators of backward passes begin of which no forward operator was recorded, in their order.

    Both have the same number of autograd; the backward one says the thread of the other, too.

    Args:
        recording: a file as read.
        rows: some rows of one process.
    """
    event = recording.operators.event[rows]
    events, sequence = recording.attribute(Attribute.SEQUENCE_NUMBER)
    known = (sequence >= 0) & np.isin(events, event)
    events, sequence = events[known], sequence[known]
    threads = recording.attribute(Attribute.FORWARD_THREAD)
    backward = np.isin(events, threads.event[threads.value > 0])
    lacks = events[backward & ~np.isin(sequence, sequence[~backward])]
    return np.sort(recording.operators.ts[rows[np.isin(event, lacks)]])


def _first_begins(
    ts: NDArray[np.int64], end: NDArray[np.int64], gradient: NDArray[np.int64], low: NDArray[np.int64]
) -> int:
    """Return where the first step begins, if it does no more before its first gradient than any other.

    A program may run something else before, such as an evaluation. The first step may do more than the others by as
    much as they differ; where it does more than that, it begins with a row that is in no other.

    Args:
        ts, end: of the thread's rows that hold no call of an optimizer, in their order [k].
        gradient: when each gradient is added up, in their order.
        low: when each step begins [steps].
    """
    first_gradient = np.append(gradient, gradient[-1])[np.searchsorted(gradient, low)]
    count = np.searchsorted(ts, first_gradient) - np.searchsorted(ts, low)
    most = count[1:].max(initial=0)
    differ = most - count[1:].min(initial=most)
    if not most or count[0] - most <= differ:
        return int(low[0])
    earliest = ts[np.searchsorted(ts, first_gradient[0]) - most]
    outer = ts[ts >= np.append(low[0], np.maximum.accumulate(end)[:-1])]
    return int(outer[(low[0] <= outer) & (outer <= earliest)].max(initial=low[0]))


def _turn(added: NDArray[np.int64]) -> int:
    """Return after how many calls of optimizers the same gradients come again, 0 where they do not come twice.

    Args:
        added: gradients added up before each call [calls].
    """
    most = max(len(added) // 2, 1) if added.any() else 0
    return next((turn for turn in range(1, most + 1) if np.array_equal(added[turn:], added[:-turn])), 0)
