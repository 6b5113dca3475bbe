"""How the clock of a trace's GPU rows differs from that of its host rows, by what cannot be: work before its launch."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls
from lumos_df.graph.name_mask import name_mask
from lumos_df.schema.codes import GPU, MEMCPY, NONE, RUNTIME, SYNC

_LARGEST_NS: Final = 1_000_000
"""Threshold, ns. Rows that ask for a larger shift are no sign of a clock. Evidence: profilers align both clocks when a
recording begins; recorded ones are tens of us apart."""


def to_pageable(names: list[str]) -> NDArray[np.bool_]:
    """Return which names are of copies from the GPU to pageable memory, and False at the end for no name [names + 1].

    The call of such a copy returns when the copy is complete (CUDA Runtime API, "API synchronization behavior").
    """
    return name_mask(names, lambda name: "DtoH" in name and "Pageable" in name)


def gpu_clock(  # noqa: PLR0913  # columns of one table
    kind: NDArray[np.int8],
    name: NDArray[np.int32],
    names: list[str],
    parent: NDArray[np.int32],
    thread: NDArray[np.int32],
    stream: NDArray[np.int32],
    ts: NDArray[np.int64],
    dur: NDArray[np.int64],
    *,
    one_device: bool,
) -> tuple[int, int]:
    """Return what to add to the times of GPU rows to get the host's, and by how much that may be off, ns.

    Nothing is added while no row begins before its launch call, and none ends after a call that waited for it. Else it
    is the least that sets this right; where nothing does, as the clocks drift, the middle between both bounds, which is
    off by half their distance.

    Args: columns of n rows, as `Rows` describes them. `one_device`: whether all GPU rows are of one device, for all of
    which a synchronisation of the device waits.
    """
    end = ts + dur
    role = calls.roles(kind, name, names)
    row = np.flatnonzero(np.isin(kind, GPU))
    has = parent[row] >= 0
    launched = row[has][kind[parent[row[has]]] == RUNTIME]
    call = parent[launched]
    if not len(call):
        return 0, 0
    waits = _waiting_call(role, kind, parent, thread)[call]
    # A synchronisation of which the trace says that it was for another stream did not wait for this copy.
    stated = np.full(len(kind), NONE, np.int32)
    described = np.flatnonzero((kind == SYNC) & (parent >= 0))
    stated[parent[described]] = stream[described]
    other_stream = (stated[waits] >= 0) & (stated[waits] != stream[launched])
    waits = np.where(other_stream, NONE, waits)
    waits = np.where((waits < 0) & to_pageable(names)[name[launched]], call, waits)
    copies = (kind[launched] == MEMCPY) & (waits >= 0)
    early = ts[call] - ts[launched]
    over = np.append((end[waits] - end[launched])[copies], _after_all(role, row, parent, ts, end) if one_device else [])
    early = early[early <= _LARGEST_NS]
    # One row that is said to be of a call which it is not of shows no clock.
    least = int(early.max(initial=-_LARGEST_NS)) if np.count_nonzero(early > 0) > 1 else -_LARGEST_NS
    most = int(over[over >= -_LARGEST_NS].min(initial=_LARGEST_NS))
    if least > most:
        return (least + most) // 2, (least - most + 1) // 2
    return min(max(least, 0), most), 0


def _waiting_call(
    role: NDArray[np.int8], kind: NDArray[np.int8], parent: NDArray[np.int32], thread: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the synchronisation of a stream that each call's thread calls next, in the same operator, or NONE [n]."""
    waits = np.full(len(kind), NONE, np.int64)
    call = np.flatnonzero(kind == RUNTIME)
    call = call[np.argsort(thread[call], kind="stable")]
    before, after = call[:-1], call[1:]
    follows = (thread[before] == thread[after]) & (role[after] == calls.STREAM_SYNC)
    follows &= calls.in_one_operator(kind, parent, before, after)
    waits[before[follows]] = after[follows]
    return waits


def _after_all(
    role: NDArray[np.int8],
    row: NDArray[np.int64],
    parent: NDArray[np.int32],
    ts: NDArray[np.int64],
    end: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how long after all GPU rows that were issued before it each synchronisation of the device ended, ns.

    A row without a launch call was issued before one that had not ended when the row began.
    """
    sync = np.flatnonzero(role == calls.DEVICE_SYNC)
    by_call = parent[row] >= 0
    first = ts.min(initial=0)
    latest = np.maximum(
        _latest_before(ts[parent[row[by_call]]], end[row[by_call]], ts[sync], first),
        _latest_before(ts[row[~by_call]], end[row[~by_call]], end[sync], first),
    )
    return end[sync] - latest


def _latest_before(
    issued: NDArray[np.int64], ended: NDArray[np.int64], moment: NDArray[np.int64], first: np.int64
) -> NDArray[np.int64]:
    """Return the latest end of what was issued before each moment, ns; `first` where nothing was."""
    order = np.argsort(issued, kind="stable")
    latest = np.append(first, np.maximum.accumulate(ended[order]))
    return latest[np.searchsorted(issued[order], moment)]
