"""Steps of a job that ran without a GPU and without marks, told by the calls of its optimizer.

`torch.optim` puts a range of its own, `Optimizer.step#NAME.step`, around every call, with or without a schedule of the
profiler (https://github.com/pytorch/pytorch/blob/main/torch/optim/optimizer.py, `profile_hook_step`).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, CPU_OP, GPU
from lumos_df.trace.recording import Recording

_UPDATES: Final = "Optimizer.step#"
_CLEARS: Final = "Optimizer.zero_grad#"
_GRADIENT: Final = "AccumulateGrad"
"""Ends the name of what adds up the gradient of one parameter."""


class Windows(NamedTuple):
    """Steps of one thread, in order, none in another [k]."""

    ts: NDArray[np.int64]
    """Start, ns on the recording's clock."""
    dur: NDArray[np.int64]
    track: NDArray[np.int32]


NOTHING: Final = Windows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))


def windows(recording: Recording, own: NDArray[np.int64]) -> Windows:
    """Return the steps that the optimizer of one process ends, none where its calls may end something else.

    A step begins where the one before ends. It ends with the optimizer, with the range around it that holds no other
    call, or with the clearing of gradients behind it, if a step does not begin with that. All steps add up as many
    gradients: two optimizers that take turns, as those of a GAN, do not.

    Args:
        recording: a file as read.
        own: the process's rows of its operators.
    """
    operators = recording.operators
    if np.isin(operators.kind[own], GPU).any():
        return NOTHING
    rows = own[np.isin(operators.kind[own], (ANNOTATION, CPU_OP)) & (operators.track[own] >= 0)]
    rows = rows[np.argsort(operators.ts[rows], kind="stable")]
    name, ts = operators.name[rows], operators.ts[rows]
    end, track = ts + operators.dur[rows], operators.track[rows]
    gradient = ts[recording.where(lambda text: text.endswith(_GRADIENT))[name]]
    updates = recording.where(lambda text: text.startswith(_UPDATES))[name]
    clears = recording.where(lambda text: text.startswith(_CLEARS))[name]
    if not updates.any():
        return NOTHING
    here = track == track[np.argmax(updates)]
    called = ts[updates & here]
    first, last = (np.searchsorted(called, times) for times in (ts, end))
    around_one = here & (last - first == 1)
    high = np.zeros(len(called), np.int64)
    np.maximum.at(high, first[around_one], end[around_one])
    if not clears[np.argmax(updates | clears)]:
        behind = here & clears & (first > 0) & (first == last)
        np.maximum.at(high, first[behind] - 1, end[behind])
    low = np.append(np.minimum(ts[0], ts[np.argmax(around_one)]), high[:-1])
    # A range around several steps, such as an epoch's, holds whole ones.
    several = here & (last - first > 1)
    np.maximum.at(low, first[several], ts[several])
    followed = several & (last < len(called))
    np.maximum.at(low, last[followed], end[followed])
    added = np.searchsorted(gradient, high) - np.searchsorted(gradient, low)
    if not added[0] or (added != added[0]).any():
        return NOTHING
    return Windows(low, high - low, np.full(len(low), track[np.argmax(updates)], np.int32))
