"""What runtime calls do, by name: CUDA's and HIP's are told apart by their prefix only."""

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import CPU_OP, NONE, RUNTIME

OTHER, STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC, RECORD, WAIT, RELEASE, COPY, GRAPH_LAUNCH = range(9)

SYNCHRONISES: Final = (STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC)
"""Calls that do nothing but wait."""

_ROLES: Final = (
    (STREAM_SYNC, r"StreamSynchronize"),
    (DEVICE_SYNC, r"(?:Device|Ctx|Context)Synchronize"),
    (EVENT_SYNC, r"EventSynchronize"),
    (RECORD, r"EventRecord"),
    (WAIT, r"StreamWaitEvent"),
    # Returning memory to the driver waits until no work of the device can use it.
    (RELEASE, r"(?:Free|MemFree(?:_v2)?|FreeHost|HostFree|HostUnregister|ModuleUnload)$"),
    (COPY, r"Mem(?:cpy|set)"),
    (GRAPH_LAUNCH, r"GraphLaunch"),
)
_CALL: Final = re.compile(r"(?:cuda|hip|cu|musa|xpu)(?=[A-Z])")


def role(name: str) -> int:
    """Return the role of a runtime call: one of this module's constants."""
    prefix = _CALL.match(name)
    if not prefix:
        return OTHER
    rest = name[prefix.end() :]
    return next((role for role, pattern in _ROLES if re.match(pattern, rest)), OTHER)


def roles(kind: NDArray[np.int8], name: NDArray[np.int32], names: list[str]) -> NDArray[np.int8]:
    """Return the role of every row, by columns of `Rows`; OTHER on rows that are no runtime calls."""
    by_name = np.array([*(role(text) for text in names), OTHER], np.int8)
    return np.where(kind == RUNTIME, by_name[name], np.int8(OTHER))


def in_one_operator(
    kind: NDArray[np.int8], parent: NDArray[np.int32], call: NDArray[Any], other: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return which pairs of calls lie in one operator, or one of them in an operator that this one calls.

    The clock of calls may be off by as much as an operator needs to begin, so that its first call lies outside.
    """
    around, around_other = parent[call], parent[other]
    above, above_other = (np.where(row >= 0, parent[np.maximum(row, 0)], NONE) for row in (around, around_other))
    is_operator = np.append(kind == CPU_OP, False)
    same = (around == around_other) & is_operator[around]
    nested = (around == above_other) & is_operator[around] | (above == around_other) & is_operator[above]
    within: NDArray[np.bool_] = same | nested
    return within
