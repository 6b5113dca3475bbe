"""The kernels of the compute stream in order, as symbols, and where one pass of a micro-batch must end."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import (
    ATTENTION,
    COMMUNICATION,
    COMMUNICATION_PHASE,
    CONVOLUTION,
    GEMM,
    KERNEL,
    NONE,
    NORMALIZATION,
    OPTIMIZER,
    OTHER_PHASE,
    RUNTIME,
    SOFTMAX,
)
from lumos_df.schema.collective_kinds import POINT_TO_POINT
from lumos_df.structure.labelled_rows import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeKernels:
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


def compute_kernels(trace: Trace) -> ComputeKernels:
    """Return the kernels of the stream that does the model's work."""
    rows = trace.rows
    computes = (rows.stream == compute_stream(rows)) & _computes(rows) & (trace.phase != COMMUNICATION_PHASE)
    row = np.flatnonzero(computes).astype(np.int32)
    row = row[np.argsort(rows.ts[row], kind="stable")]
    known = rows.parent[row] >= 0
    phase = _next_known(trace.phase[row], known)
    optimizer = phase == OPTIMIZER
    return ComputeKernels(
        row=row,
        phase=phase,
        known=known & (phase != OTHER_PHASE),
        step=rows.step[row],
        era=np.cumsum(optimizer & ~np.append(False, optimizer[:-1])).astype(np.int32),
        exact=_symbols(rows.name[row], trace.grid.code[row], trace.block.code[row]),
        loose=_symbols(rows.name[row]),
        weight=_weights()[rows.family[row]],
        norm=rows.family[row] == NORMALIZATION,
        transfers=_transfers_before(trace, row),
    )


def compute_stream(rows: Rows) -> int:
    """Return the stream that does the model's work, NONE where no kernel computes.

    Most matrix products decide; where there are none, most kernels.
    """
    computes = _computes(rows)
    if not computes.any():
        return NONE
    work = np.bincount(rows.stream[computes], 1 + _weights()[rows.family[computes]] * len(rows))
    return int(np.argmax(work))


def _computes(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are kernels of a stream that do not communicate [n]."""
    computes: NDArray[np.bool_] = (rows.kind == KERNEL) & (rows.family != COMMUNICATION) & (rows.stream >= 0)
    return computes


def _weights() -> NDArray[np.int64]:
    """Return how much a kernel counts where periods are compared, by family; nothing for none at the end."""
    weights = np.zeros(len(FAMILIES) + 1, np.int64)
    weights[[GEMM, CONVOLUTION, ATTENTION, SOFTMAX]] = 1
    return weights


def issued(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return when the GPU rows were issued by the host, ns; where no call is known, when they started."""
    rows = trace.rows
    call = rows.parent[row]
    launched = (call >= 0) & (rows.kind[np.maximum(call, 0)] == RUNTIME)
    return np.where(launched, rows.ts[np.maximum(call, 0)], rows.ts[row])


def is_collective(trace: Trace, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which rows are kernels of collectives of some names."""
    rows = trace.rows
    named = np.array([*(name in names for name in rows.collectives), False])
    collective: NDArray[np.bool_] = (rows.kind == KERNEL) & named[rows.collective]
    return collective


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


def _symbols(*columns: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return numbers from 0 of the distinct rows of some columns of codes."""
    return dense(packed(*columns)).astype(np.int32)
