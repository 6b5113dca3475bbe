"""The kernels of the compute stream in order, as symbols, and where one pass of a micro-batch must end."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import COMMUNICATION, KERNEL, NONE, RUNTIME
from lumos_df.schema import FAMILIES
from lumos_df.structure.rows import COMMUNICATION_PHASE, OPTIMIZER, OTHER, Trace

GEMM: Final = FAMILIES.index("gemm")
NORM: Final = FAMILIES.index("normalization")
_WEIGHT: Final = {"attention": 4, "softmax": 4, "gemm": 1, "convolution": 1}
"""How much a kernel counts where periods are compared: attention is once in a layer, matrix products often."""
POINT_TO_POINT: Final = ("send", "recv", "send_recv")


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of the compute stream, by start [k]."""

    row: NDArray[np.int32]
    """Their rows."""
    phase: NDArray[np.int8]
    """As recorded; of a kernel without a launch that of the next one that has it."""
    known: NDArray[np.bool_]
    """Whether the phase was recorded for the kernel itself."""
    step: NDArray[np.int32]
    era: NDArray[np.int32]
    """Optimizer steps before it."""
    exact: NDArray[np.int32]
    """Symbol: name, grid and block."""
    loose: NDArray[np.int32]
    """Symbol: name alone, for shapes that change from layer to layer."""
    weight: NDArray[np.int64]
    """How much each counts where periods are compared."""
    norm: NDArray[np.bool_]
    """Whether it is of a normalization."""
    transfers: NDArray[np.int32]
    """Sends and receives issued before it."""

    def __len__(self) -> int:
        """Return k."""
        return len(self.row)


def compute_kernels(trace: Trace) -> Kernels:
    """Return the kernels of the stream that does the model's work."""
    rows = trace.rows
    weights = np.array([*(_WEIGHT.get(family, 0) for family in FAMILIES), 0], np.int64)
    mine = (rows.kind == KERNEL) & (rows.family != COMMUNICATION) & (rows.stream >= 0)
    if mine.any():
        # Most matrix products decide; where there are none, most kernels.
        many = np.bincount(rows.stream[mine], 1 + weights[rows.family[mine]] * len(rows))
        mine &= rows.stream == np.argmax(many)
    mine &= trace.phase != COMMUNICATION_PHASE
    row = np.flatnonzero(mine).astype(np.int32)
    row = row[np.argsort(rows.ts[row], kind="stable")]
    known = rows.parent[row] >= 0
    phase = _next_known(trace.phase[row], known)
    step = rows.step[row]
    optimizer = phase == OPTIMIZER
    return Kernels(
        row,
        phase,
        known & (phase != OTHER),
        step,
        np.cumsum(optimizer & ~np.append(False, optimizer[:-1])).astype(np.int32),
        _dense(rows.name[row], trace.grid.code[row], trace.block.code[row]),
        _dense(rows.name[row]),
        weights[rows.family[row]],
        rows.family[row] == NORM,
        _transfers_before(trace, row),
    )


def issued(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return when the GPU rows were issued by the host, ns; where no call is known, when they started."""
    rows = trace.rows
    call = rows.parent[row]
    launched = (call >= 0) & (rows.kind[np.maximum(call, 0)] == RUNTIME)
    return np.where(launched, rows.ts[np.maximum(call, 0)], rows.ts[row])


def is_collective(trace: Trace, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which rows are kernels of collectives of some names."""
    rows = trace.rows
    word = np.array([*(name in names for name in rows.collectives), False])
    found: NDArray[np.bool_] = (rows.kind == KERNEL) & word[rows.collective]
    return found


def _transfers_before(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int32]:
    moments = np.sort(issued(trace, np.flatnonzero(is_collective(trace, POINT_TO_POINT)).astype(np.int32)))
    return np.searchsorted(moments, issued(trace, row)).astype(np.int32)


def _next_known(phase: NDArray[np.int8], known: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Return the phases with those that are not known taken from the next that is, else from the one before."""
    places = np.flatnonzero(known)
    if not len(places):
        return phase
    after = np.minimum(np.searchsorted(places, np.arange(len(phase))), len(places) - 1)
    return np.where(known, phase, phase[places[after]]).astype(np.int8)


def _dense(*columns: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return numbers from 0 of distinct rows of some columns of codes."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        number = number * (int(column.max(initial=NONE)) + 2) + column + 1
        high = int(number.max(initial=0))
        if high < 8 * len(number) + (1 << 16):
            # A table instead of sorting, where it is not much larger than the column.
            used = np.zeros(high + 1, np.bool_)
            used[number] = True
            number = (np.cumsum(used) - 1)[number]
        else:
            number = np.unique(number, return_inverse=True)[1].astype(np.int64)
    return number.astype(np.int32)
