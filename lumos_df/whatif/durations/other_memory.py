"""What kernels that move tensors take on another GPU: only what waits for the memory follows the memory.

Besides, a kernel issues its loads and computes, on its multiprocessors. The squares of both add up, as for other sizes
(`kernel_times.in_waves`): how far a kernel stays below the memory's rate tells what holds it up besides. What fits into
the second-level cache was mostly written by the kernel before, and never comes from the memory.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.whatif.job.recorded_gpu import Machine

_CACHED_BYTES: Final = 25e6
"""Threshold, bytes. So many of those that a kernel moves are in the cache. Evidence: half of the second-level cache of
an H100 or H200, the half that a multiprocessor reaches directly. Kernels that move 4 to 40 MB take 0.93 times as long
on the H200 as on the H100, those that move over 200 MB at the memory's rate 0.74 to 0.80 times; its rates make it 0.70.
With none in the cache kernels are as far off, 10 %, but the sum of all is 8 % too short, with these 1 %."""
_UNTOLD_SHARE: Final = 0.85
"""Threshold, share of the memory's rate. What kernels reach whose bytes no trace tells. Evidence: updates of full lists
of parameters take 0.79 times as long on an H200 as on an H100, from which it was chosen; in 16 and 32 bits they reach
0.80 and 0.95 of it on the one, 0.70 and 0.88 on the other."""


def moved_besides(moved: NDArray[np.float64], machine: Machine) -> NDArray[np.float64]:
    """Return the part of what moving tensors takes, s, in which their bytes come from no cache [k]."""
    return np.maximum(moved - _CACHED_BYTES / machine.memory_rate, 0.0)


def other_time(
    time: NDArray[np.float64], memory: NDArray[np.float64], more: NDArray[np.float64], work: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what kernels take on another GPU, s [k].

    Args:
        time: what they took.
        memory: what the memory took to move their bytes, s; no more than `time` of it is believed.
        more: by how much that grows.
        work: by how much what holds them up besides grows.
    """
    memory = np.minimum(memory, time)
    after: NDArray[np.float64] = np.hypot(np.sqrt(time**2 - memory**2) * work, memory * more)
    return after


def untold_ratio(old: Machine, new: Machine) -> float:
    """Return how many times as long kernels take that tell nothing of their bytes."""
    besides = (1 - _UNTOLD_SHARE**2) ** 0.5 * old.sms / new.sms
    return float(np.hypot(besides, _UNTOLD_SHARE * old.memory_rate / new.memory_rate))


def convolution_ratio(old: Machine, new: Machine) -> float:
    """Return how many times as long convolutions take: they follow the memory, where the peak grows as much.

    They reach a small part of what newer GPUs multiply.
    """
    was, will = (float(each.row["peak_flops"][each.precision]) for each in (old, new))
    return max(old.memory_rate / new.memory_rate, was / will)
