"""What made a call: the operator around it that a user knows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP


def callers(rows: Rows, call: NDArray[Any]) -> NDArray[np.int64]:
    """Return the operator around each call, of nested ones of PyTorch's own the outermost; else the call itself."""
    operator = rows.kind == CPU_OP
    torch = rows.named(lambda name: name.startswith("aten::")) & operator
    at = rows.nearest(operator, call.astype(np.int32))
    at = np.where(at >= 0, at, call)
    while True:
        above = rows.parent[at]
        rises = (above >= 0) & torch[above] & torch[at]
        if not rises.any():
            return at
        at = np.where(rises, above, at)
