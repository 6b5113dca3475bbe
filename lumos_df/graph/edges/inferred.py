"""Inferred waits: rows of the GPU that waited for a row of another stream without any call that says so.

An event whose calls the profiler does not show, or a device that another kernel had filled. That a row starts just when
one of another stream ends may be an accident: rows that look alike are judged together, and how often they started
although the other row ran speaks against it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import gpu_streams, typical_values
from lumos_df.graph.edges import event
from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate import forward
from lumos_df.schema.codes import EVENT, MEMCPY, NONE

_TAIL_SHARE: Final = 0.25
"""Threshold, share of a kernel. A kernel may free the device for the next one in this last part of its time.
Evidence: blocks end one after another, and the last ones leave room."""
_PARTS: Final = 10_000
"""How fine the share of a kernel before whose end a row starts is told."""

_Alike = Callable[[Rows, NDArray[np.int32], NDArray[np.int32]], NDArray[np.int64]]
"""Gives pairs (source, row) that look alike the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Rows that were ready while a row of another stream ran, for which they may have waited; p entries."""

    source: NDArray[np.int32]
    row: NDArray[np.int32]
    key: NDArray[np.int64]
    """The same for pairs that look alike."""


def inferred_waits(
    rows: Rows, gpu: GpuStreams, known: Edges, ended: NDArray[np.int64]
) -> tuple[Edges, NDArray[np.int32]]:
    """Infer for what rows waited that started late although launch, stream and events had let them go.

    Args:
        rows, gpu: the trace, and its GPU's work.
        known: the edges to beginnings so far.
        ended: [n] when each node ended as recorded, ns.

    Returns:
        The edges, and the rows that are late all the same.
    """
    ready, none = np.full(len(rows), -FAR), np.empty(0, np.int32)
    waits = [edges(none, none, EVENT, 0, False)]
    late = _late(rows, gpu, ready, ended, known)
    candidates = (
        partial(_after_issued, rows, gpu),
        *(partial(_while_running, rows, gpu, ready, alike=alike) for alike in (_by_kind, _by_name, _by_stream)),
    )
    for pairs in candidates:
        if not len(late):
            break
        waits.append(_edges(rows, _judged(rows, ready, pairs(late))))
        late = _late(rows, gpu, ready, ended, waits[-1])
    return join(waits), late


def _by_kind(rows: Rows, source: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell kernels that delay all kernels; copies find room where kernels do not."""
    return packed(rows.name[source], rows.kind[row] == MEMCPY)


def _by_name(rows: Rows, source: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell kernels by name on both sides: small kernels find room where large ones do not."""
    return packed(rows.name[source], rows.name[row])


def _by_stream(rows: Rows, source: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell kernels so large that whatever a stream runs delays them."""
    return packed(rows.stream[source], rows.name[row])


def _late(
    rows: Rows, gpu: GpuStreams, ready: NDArray[np.int64], ended: NDArray[np.int64], more: Edges
) -> NDArray[np.int32]:
    """Raise `ready`, when the edges so far would have let each row start, by more edges; return the rows that are late.

    Args:
        rows, gpu: the trace, and its GPU's work.
        ready: [n] ns; written to.
        ended: [n] ns, as recorded.
        more: edges to beginnings.
    """
    forward.release(more.src, more.dst, more.binds, more.lag, rows.ts, ended, ready)
    return gpu.row[rows.ts[gpu.row] - ready[gpu.row] > gpu_streams.LATE_NS]


def _after_issued(rows: Rows, gpu: GpuStreams, late: NDArray[np.int32]) -> _Pairs:
    """Pair rows that look like late ones with the last row issued before them on each other stream: an event.

    Rows look alike that have one name, come after one name, and are of one operator.
    """
    parent = rows.parent[gpu.row]
    operator = np.where(parent >= 0, rows.parent[np.maximum(parent, 0)], NONE)
    name, name_before, operator_name = (
        np.where(row >= 0, rows.name[np.maximum(row, 0)], NONE) for row in (gpu.row, gpu.before, operator)
    )
    likeness = packed(name, name_before, operator_name)
    member = np.isin(likeness, likeness[np.isin(gpu.row, late)]) & (gpu.issued >= 0)
    row, issued, likeness = gpu.row[member], gpu.issued[member], likeness[member]
    parts = []
    for stream in range(len(rows.stream_keys)):
        source = gpu.last_issued(stream, issued)
        kept = (source >= 0) & (rows.stream[row] != stream)
        parts.append((source[kept], row[kept], likeness[kept]))
    source, row, likeness = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Pairs(source=source, row=row, key=packed(likeness, rows.stream[source]))


def _while_running(
    rows: Rows, gpu: GpuStreams, ready: NDArray[np.int64], late: NDArray[np.int32], *, alike: _Alike
) -> _Pairs:
    """Pair rows with the row that ran on each other stream when they were ready: a device that was full.

    Streams that ran nothing when any of the late rows was ready are left out.
    """
    none = np.empty(0, np.int32)
    parts = [(none, none)]
    for stream, (low, high) in enumerate(zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True)):
        on_stream = gpu.row[low:high]
        if (_running(rows, on_stream, ready[late[rows.stream[late] != stream]]) < 0).all():
            continue
        row = gpu.row[(rows.stream[gpu.row] != stream) & (ready[gpu.row] > -FAR)]
        source = _running(rows, on_stream, ready[row])
        kept = (source >= 0) & (rows.ts[source] < rows.ts[row])
        parts.append((source[kept], row[kept]))
    source, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Pairs(source=source, row=row, key=alike(rows, source, row))


def _running(rows: Rows, on_stream: NDArray[np.int32], moments: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return which of a stream's rows ran at each moment or began just then, and ran on for some time, or NONE."""
    if not len(on_stream):
        return np.full(len(moments), NONE, np.int32)
    place = np.searchsorted(rows.ts[on_stream], moments + gpu_streams.LATE_NS, side="right") - 1
    row = on_stream[np.maximum(place, 0)]
    return np.where((place >= 0) & (rows.end[row] > moments + 2 * gpu_streams.LATE_NS), row, NONE).astype(np.int32)


def _judged(rows: Rows, ready: NDArray[np.int64], pairs: _Pairs) -> _Pairs:
    """Return the pairs of which those that look alike say that the row waited for its source."""
    end, start = rows.end[pairs.source], rows.ts[pairs.row]
    late_by = start - ready[pairs.row]
    tail = (rows.dur[pairs.source] * _TAIL_SHARE).astype(np.int64)
    fits = start >= end - np.where(rows.kind[pairs.source] == MEMCPY, 0, tail)
    tells = end > ready[pairs.row] + gpu_streams.LATE_NS
    waited = tells & fits & (start <= end + event.REACTION_NS) & (late_by > gpu_streams.LATE_NS)
    _, likeness = np.unique(pairs.key, return_inverse=True)
    likeness = likeness.reshape(-1)
    # A start that has nothing to do with the end lies anywhere between when the row was ready and that end.
    apart = np.maximum(np.abs(start - end), rows.resolution)
    accident = np.clip(apart / np.maximum(np.maximum(late_by, end - ready[pairs.row]), 1), 0, 1)
    chance = np.bincount(likeness, np.where(waited, np.log(np.where(waited, accident, 1.0)), 0.0))
    against = np.bincount(likeness, tells & ~fits)
    keep = ((chance <= np.log(typical_values.ACCIDENT_SHARE)) & (against == 0))[likeness] & fits
    return _Pairs(source=pairs.source[keep], row=pairs.row[keep], key=pairs.key[keep])


def _edges(rows: Rows, pairs: _Pairs) -> Edges:
    """Return the edges; how long after the end is one constant for the trace.

    How early before it is a share of the source: kernels of one name let others in when as many of their blocks are
    left. Of names with few such rows it is the trace's.
    """
    apart = rows.ts[pairs.row] - rows.end[pairs.source]
    early = apart < 0
    after = (apart >= 0) & (apart <= event.REACTION_NS)
    source = pairs.source[early]
    left = apart[early] * _PARTS // np.maximum(rows.dur[source], 1)
    of_name, known = typical_values.medians(left, rows.name[source])
    lag = np.full(len(apart), _typical(apart[after]))
    lag[early] = np.where(known, of_name, _typical(left)) * rows.dur[source] // _PARTS
    return edges(pairs.source, pairs.row, EVENT, lag, False)


def _typical(values: NDArray[np.int64]) -> int:
    return int(np.median(values)) if len(values) >= typical_values.FEW else 0
