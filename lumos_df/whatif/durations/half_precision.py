"""Products of 16-bit numbers on a core: either their operations take the time, or what they move does.

A core that multiplies tiles of such numbers (AMX) does so ten times as fast as float32, and then moving them takes
the time; one that converts them first multiplies longer than that. The step's own products tell which it was.
"""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.structure.labelled_rows import Trace

_HALF: Final = re.compile(r"BFloat16|Half")


def reads_half(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which rows read 16-bit floating-point numbers [k]."""
    # The last is for rows without types.
    words = np.array([bool(_HALF.search(word)) for word in (*trace.types.words, "")])
    return words[trace.types.code[row]]


def seconds(time: NDArray[np.float64], flop: NDArray[np.float64], moved: NDArray[np.float64]) -> tuple[float, float]:
    """Return the seconds of an operation and of a byte that explain some products best, neither below 0.

    Each product counts by how many times as long it takes, and as much as the time that it takes.

    Args:
        time: of each, s [k].
        flop: its operations [k].
        moved: bytes of its operands and its result [k].
    """
    weight = 1 / np.sqrt(time)
    done, wanted = np.stack((flop, moved), axis=1) * weight[:, None], time * weight
    both = np.linalg.lstsq(done, wanted)[0]
    if (both < 0).any():
        alone = done.T @ wanted / (done**2).sum(axis=0)
        best = int(np.argmin(((done * alone - wanted[:, None]) ** 2).sum(axis=0)))
        both = np.where(np.arange(2) == best, alone, 0.0)
    return float(both[0]), float(both[1])
