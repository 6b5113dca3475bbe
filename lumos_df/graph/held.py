"""Rows of the GPU that were held by a row of another stream, without any call that says so.

An event whose calls the profiler does not show, or a device that another kernel had filled. That a row starts just when
one of another stream ends may be an accident: rows that look alike are judged together, and how often they started
although the other row ran speaks against it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import simulate as loops
from lumos_df.graph.edges import EVENT, Edges, edges, join
from lumos_df.graph.gpu import FAR, FEW, Work
from lumos_df.graph.rows import MEMCPY, NONE, Rows

PROMPT_NS: Final = 10_000
"""A row that starts later than this after all it is known to wait for waited for something else."""
_HELD_NS: Final = 25_000
"""A row that waited for another one starts within this after its end: barriers of AMD devices take 18 us."""
_TAIL: Final = 4
"""A kernel frees the device when its last blocks run: at the earliest in the last quarter of its time."""
_ACCIDENT: Final = 0.05
"""Rows are taken to have been held if by accident they would have started so near the end of another row so seldom."""
_AGAINST: Final = 0.1
"""At most this share of rows that look alike may have started although the other row ran."""
_SHARES: Final = 10_000


_Alike = Callable[[Rows, NDArray[np.int32], NDArray[np.int32]], NDArray[np.int64]]
"""Gives pairs (source, row) that look alike the same number."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows that were ready while a row of another stream ran that may have held them; p entries."""

    source: NDArray[np.int32]
    row: NDArray[np.int32]
    key: NDArray[np.int64]
    """The same for pairs that look alike."""


def held_edges(rows: Rows, gpu: Work, known: Edges, ended: NDArray[np.int64]) -> tuple[Edges, NDArray[np.int32]]:
    """Infer what held rows that started late although launch, stream and events had let them go.

    Args:
        rows, gpu: the trace, and its GPU's work.
        known: the edges to beginnings so far.
        ended: [n] when each node ended as recorded, ns.

    Returns:
        The edges, and the rows that are late all the same.
    """
    ready, none = np.full(len(rows), -FAR), np.empty(0, np.int32)
    found = [edges(none, none, EVENT, 0, False)]
    late = _late(rows, gpu, ready, ended, known)
    for alike in (None, _by_kind, _by_name, _by_stream):
        if not len(late):
            break
        pairs = _after_issued(rows, gpu, late) if alike is None else _while_running(rows, gpu, ready, late, alike)
        found.append(_edges(rows, _judged(rows, ready, pairs)))
        late = _late(rows, gpu, ready, ended, found[-1])
    return join(found), late


def _by_kind(rows: Rows, source: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell kernels that hold up all kernels; copies find room where kernels do not."""
    key: NDArray[np.int64] = rows.name[source].astype(np.int64) * 2 + (rows.kind[row] == MEMCPY)
    return key


def _by_name(rows: Rows, source: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell kernels by name on both sides: small kernels find room where large ones do not."""
    key: NDArray[np.int64] = rows.name[source].astype(np.int64) * len(rows.names) + rows.name[row]
    return key


def _by_stream(rows: Rows, source: NDArray[np.int32], row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell kernels so large that whatever a stream runs holds them up."""
    key: NDArray[np.int64] = rows.stream[source].astype(np.int64) * len(rows.names) + rows.name[row]
    return key


def _late(rows: Rows, gpu: Work, ready: NDArray[np.int64], ended: NDArray[np.int64], more: Edges) -> NDArray[np.int32]:
    """Raise `ready`, when the edges so far would have let each row start, by more edges; return the rows that are late.

    Args:
        ready: [n] ns; written to.
        ended: [n] ns, as recorded.
        more: edges to beginnings.
    """
    loops.release(more.src, more.dst, more.binds, more.lag, rows.ts, ended, ready)
    return gpu.row[rows.ts[gpu.row] - ready[gpu.row] > PROMPT_NS]


def _alike(rows: Rows, gpu: Work) -> NDArray[np.int64]:
    """Return a number for each GPU row that is the same for rows of one name, after one name, of one operator."""
    parent = rows.parent[gpu.row]
    around = np.where(parent >= 0, rows.parent[np.maximum(parent, 0)], NONE)
    many = len(rows.names) + 1
    number = rows.name[gpu.row].astype(np.int64)
    for other in (gpu.before, around):
        number = number * many + np.where(other >= 0, rows.name[np.maximum(other, 0)] + 1, 0)
    return number


def _after_issued(rows: Rows, gpu: Work, late: NDArray[np.int32]) -> _Pairs:
    """Pair rows that look like late ones with the last row issued before them on each other stream: an event."""
    like = _alike(rows, gpu)
    member = np.isin(like, like[np.isin(gpu.row, late)]) & (gpu.issued >= 0)
    row, issued, like = gpu.row[member], gpu.issued[member], like[member]
    parts = []
    for stream in range(len(rows.stream_keys)):
        source = gpu.last_issued(stream, issued)
        kept = (source >= 0) & (rows.stream[row] != stream)
        parts.append((source[kept], row[kept], like[kept] * len(rows.stream_keys) + stream))
    return _Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _while_running(rows: Rows, gpu: Work, ready: NDArray[np.int64], late: NDArray[np.int32], alike: _Alike) -> _Pairs:
    """Pair rows with the row that ran on each other stream when they were ready: a device that was full.

    Streams that ran nothing when any of the late rows was ready are left out.
    """
    none = np.empty(0, np.int32)
    parts = [(none, none, none.astype(np.int64))]
    for stream, (low, high) in enumerate(zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True)):
        own = gpu.row[low:high]
        if (_running(rows, own, ready[late[rows.stream[late] != stream]]) < 0).all():
            continue
        row = gpu.row[(rows.stream[gpu.row] != stream) & (ready[gpu.row] > -FAR)]
        source = _running(rows, own, ready[row])
        kept = (source >= 0) & (rows.ts[source] < rows.ts[row])
        source, row = source[kept], row[kept]
        parts.append((source, row, alike(rows, source, row)))
    return _Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _running(rows: Rows, own: NDArray[np.int32], moments: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return which of a stream's rows ran at each moment or began just then, and ran on for some time, or NONE."""
    if not len(own):
        return np.full(len(moments), NONE, np.int32)
    place = np.searchsorted(rows.ts[own], moments + PROMPT_NS, side="right") - 1
    found = own[np.maximum(place, 0)]
    return np.where((place >= 0) & (rows.end[found] > moments + 2 * PROMPT_NS), found, NONE).astype(np.int32)


def _where(pairs: _Pairs, keep: NDArray[np.bool_]) -> _Pairs:
    return _Pairs(pairs.source[keep], pairs.row[keep], pairs.key[keep])


def _judged(rows: Rows, ready: NDArray[np.int64], pairs: _Pairs) -> _Pairs:
    """Return the pairs of which those that look alike say that the row waited for its source."""
    end, start = rows.end[pairs.source], rows.ts[pairs.row]
    over = start - ready[pairs.row]
    apart = np.abs(start - end)
    early = np.where(rows.kind[pairs.source] == MEMCPY, 0, rows.dur[pairs.source] // _TAIL)
    fits = start >= end - early
    tells = end > ready[pairs.row] + PROMPT_NS
    held = tells & fits & (start <= end + _HELD_NS) & (over > PROMPT_NS)
    _, key = np.unique(pairs.key, return_inverse=True)
    key = key.reshape(-1)
    # A start that has nothing to do with the end lies anywhere between when the row was ready and that end.
    accident = np.clip(
        np.maximum(apart, rows.resolution) / np.maximum(np.maximum(over, end - ready[pairs.row]), 1), 0, 1
    )
    chance = np.bincount(key, np.where(held, np.log(np.where(held, accident, 1.0)), 0.0))
    against = np.bincount(key, tells & ~fits)
    enough = (chance <= np.log(_ACCIDENT)) & (against <= _AGAINST * (against + np.bincount(key, held)))
    return _where(pairs, enough[key] & fits)


def _edges(rows: Rows, pairs: _Pairs) -> Edges:
    """Return the edges; how long after the end, or how early before it, is one constant each for the trace."""
    apart = rows.ts[pairs.row] - rows.end[pairs.source]
    early = apart < 0
    after = (apart >= 0) & (apart <= _HELD_NS)
    tail = _typical(apart[early] * _SHARES // np.maximum(rows.dur[pairs.source[early]], 1))
    lag = np.where(early, tail * rows.dur[pairs.source] // _SHARES, _typical(apart[after]))
    return edges(pairs.source, pairs.row, EVENT, lag, False)


def _typical(values: NDArray[np.int64]) -> int:
    return int(np.median(values)) if len(values) >= FEW else 0
