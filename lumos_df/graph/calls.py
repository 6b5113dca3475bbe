"""What runtime calls do, by name: CUDA's and HIP's are told apart by their prefix only."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import RUNTIME

OTHER, STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC, RECORD, WAIT, RELEASE, COPY = range(8)

_ROLES: Final = (
    (STREAM_SYNC, r"StreamSynchronize"),
    (DEVICE_SYNC, r"(?:Device|Ctx|Context)Synchronize"),
    (EVENT_SYNC, r"EventSynchronize"),
    (RECORD, r"EventRecord"),
    (WAIT, r"StreamWaitEvent"),
    # Returning memory to the driver waits until no work of the device can use it.
    (RELEASE, r"(?:Free|MemFree(?:_v2)?|FreeHost|HostFree|HostUnregister|ModuleUnload)$"),
    (COPY, r"Mem(?:cpy|set)"),
)
_CALL: Final = re.compile(r"(?:cuda|hip|cu|musa|xpu)(?=[A-Z])")


def role(name: str) -> int:
    """Return the role of a runtime call: one of this module's constants."""
    prefix = _CALL.match(name)
    if not prefix:
        return OTHER
    rest = name[prefix.end() :]
    return next((role for role, pattern in _ROLES if re.match(pattern, rest)), OTHER)


def roles(rows: Rows) -> NDArray[np.int8]:
    """Return the role of every row; OTHER on rows that are no runtime calls."""
    by_name = np.array([*(role(name) for name in rows.names), OTHER], np.int8)
    return np.where(rows.kind == RUNTIME, by_name[rows.name], np.int8(OTHER))
