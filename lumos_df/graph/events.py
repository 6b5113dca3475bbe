"""Stream to stream: which stream waited for which, by recorded ids or from the order of issue."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls
from lumos_df.graph.edges import EVENT, START_START, Edges, edges, join
from lumos_df.graph.gpu import FAR, Work, by_class
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import NONE, SYNC, Rows

_PROMPT_NS: Final = 10_000
"""A row that starts within this time after another one's end, and not after anything else, waited for it."""
_HELD_NS: Final = 25_000
"""The same across streams without a call that says so: barriers of AMD devices take 18 us."""
_SHARES: Final = 10_000
_CONSISTENT: Final = 0.98


def event_edges(rows: Rows, atoms: Atoms, gpu: Work, role: NDArray[np.int8], gap: NDArray[np.int64]) -> Edges:
    """Return the edges of every wait of a stream for an event."""
    waits = np.flatnonzero(role[atoms.row] == calls.WAIT).astype(np.int32)
    if not len(waits) or len(rows.stream_keys) < 2:
        return edges(np.empty(0, np.int32), np.empty(0, np.int32), EVENT, 0, True)
    stated, known = _recorded(rows, atoms, gpu, waits)
    rest = _inferred(rows, atoms, gpu, waits[~known], gap)
    return _distinct(join([stated, rest]))


def _recorded(rows: Rows, atoms: Atoms, gpu: Work, waits: NDArray[np.int32]) -> tuple[Edges, NDArray[np.bool_]]:
    """Edges of the waits that a `cuda_sync` row describes, and which those are."""
    known = np.zeros(len(waits), np.bool_)
    described = np.flatnonzero(
        (rows.kind == SYNC)
        & (rows.wait_correlation != rows.null)
        & (rows.wait_correlation > 0)
        & (rows.stream >= 0)
        & (rows.parent >= 0)
    )
    place = np.full(len(atoms.row), NONE, np.int64)
    place[waits] = np.arange(len(waits))
    by_correlation = np.argsort(rows.correlation[atoms.row], kind="stable")
    values = rows.correlation[atoms.row][by_correlation]
    at = np.searchsorted(values, rows.wait_correlation[described])
    hit = values[np.minimum(at, len(values) - 1)] == rows.wait_correlation[described]
    record = np.where(hit, by_correlation[np.minimum(at, len(values) - 1)], NONE)
    wait = atoms.of_row[rows.parent[described]]
    fits = (record >= 0) & (wait >= 0) & (place[np.maximum(wait, 0)] >= 0)
    described, record, wait = described[fits], record[fits].astype(np.int32), wait[fits]
    known[place[wait]] = True
    src = np.full(len(wait), NONE, np.int32)
    dst = np.full(len(wait), NONE, np.int32)
    for stream, (_, number) in enumerate(rows.stream_keys.tolist()):
        waited = rows.wait_stream[described] == number
        src[waited] = gpu.last_issued(stream, record[waited])
        waiting = rows.stream[described] == stream
        dst[waiting] = gpu.next_issued(stream, wait[waiting])
    return edges(src, dst, EVENT, 0, True), known


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Waits that look alike: same operator around, same streams issued to before and after, same place in a run."""

    group: NDArray[np.int64]
    groups: int
    previous: NDArray[np.int32]
    following: NDArray[np.int32]


def _inferred(rows: Rows, atoms: Atoms, gpu: Work, waits: NDArray[np.int32], gap: NDArray[np.int64]) -> Edges:
    """Guess for each pattern of waits the pair of streams that fits all of them and explains most.

    A pair fits a wait when the last row issued before on the one stream had ended before the first row issued after on
    the other one started; it explains the wait when that row started promptly and nothing else had held it so long.
    """
    pattern = _patterns(rows, atoms, gpu, waits)
    streams = len(rows.stream_keys)
    explained = _ready(rows, atoms, gpu, gap)
    before = np.stack([gpu.last_issued(stream, waits) for stream in range(streams)])
    after = np.stack([gpu.next_issued(stream, waits) for stream in range(streams)])
    size = np.bincount(pattern.group, minlength=pattern.groups)
    best = np.zeros(pattern.groups)
    choice = np.full(pattern.groups, NONE, np.int64)
    for waited in range(streams):
        for waiting in range(streams):
            if waited == waiting:
                continue
            src, dst = before[waited], after[waiting]
            both = (src >= 0) & (dst >= 0)
            slack = np.where(both, rows.ts[np.maximum(dst, 0)] - rows.end[np.maximum(src, 0)], 0)
            fits = ~both | (slack >= -rows.resolution)
            late = rows.ts[np.maximum(dst, 0)] > explained[np.maximum(dst, 0)] + _PROMPT_NS // 2
            tells = both & fits & (slack <= _PROMPT_NS) & late
            usual = both & (pattern.previous == waited) & (pattern.following == waiting)
            weight = np.bincount(pattern.group, tells + 0.01 * usual, pattern.groups)
            consistent = np.bincount(pattern.group, fits, pattern.groups) >= _CONSISTENT * size
            better = consistent & (weight > best)
            best[better] = weight[better]
            choice[better] = waited * streams + waiting
    chosen = choice[pattern.group]
    here = np.arange(len(waits))
    src = np.where(chosen >= 0, before[np.maximum(chosen, 0) // streams, here], NONE)
    dst = np.where(chosen >= 0, after[np.maximum(chosen, 0) % streams, here], NONE)
    both = (src >= 0) & (dst >= 0)
    kept = both & (rows.ts[np.maximum(dst, 0)] - rows.end[np.maximum(src, 0)] >= -rows.resolution)
    return edges(np.where(kept, src, NONE), dst, EVENT, 0, False)


def _patterns(rows: Rows, atoms: Atoms, gpu: Work, waits: NDArray[np.int32]) -> _Pattern:
    stream_of = np.full(len(atoms.row), NONE, np.int32)
    stream_of[gpu.call[gpu.launched]] = rows.stream[gpu.row[gpu.launched]]
    previous = np.full(len(waits), NONE, np.int32)
    following = np.full(len(waits), NONE, np.int32)
    run = np.zeros(len(waits), np.int64)
    for thread in np.unique(atoms.thread[waits]).tolist():
        own = np.flatnonzero(atoms.thread[waits] == thread)
        launches = np.flatnonzero((atoms.thread == thread) & (stream_of >= 0))
        if not len(launches):
            continue
        place = np.searchsorted(launches, waits[own])
        previous[own] = np.where(place > 0, stream_of[launches[np.maximum(place - 1, 0)]], NONE)
        following[own] = np.where(
            place < len(launches), stream_of[launches[np.minimum(place, len(launches) - 1)]], NONE
        )
        first = np.flatnonzero(np.diff(place, prepend=-1))
        run[own] = np.arange(len(own)) - np.repeat(first, np.diff(np.append(first, len(own))))
    parent = rows.parent[atoms.row[waits]]
    around = np.where(parent >= 0, rows.name[np.maximum(parent, 0)], NONE)
    _, group = np.unique(np.stack((around, previous, following, run)), axis=1, return_inverse=True)
    group = group.reshape(-1)
    return _Pattern(group, int(group.max(initial=-1)) + 1, previous, following)


def _ready(rows: Rows, atoms: Atoms, gpu: Work, gap: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when launch and stream alone would have let each GPU row start, ns; [n]."""
    ready = np.full(len(rows), FAR, np.int64)
    front = np.where(gpu.before >= 0, rows.end[np.maximum(gpu.before, 0)] + gap, -FAR)
    ready[gpu.row] = np.maximum(front, gpu.of_call(atoms.ts + atoms.dur, -FAR))
    return ready


def _distinct(found: Edges) -> Edges:
    _, first = np.unique(found.src.astype(np.int64) << 32 | found.dst, return_index=True)
    keep = np.zeros(len(found), np.bool_)
    keep[first] = True
    return found.where(keep)


def unseen_edges(rows: Rows, atoms: Atoms, gpu: Work, known: Edges) -> tuple[Edges, NDArray[np.int32]]:
    """Infer what held a row that started late although launch, stream and events had let it go.

    It is taken to have waited for the row of another stream that ended just then: an event of which the trace has no
    call, or a device that the other row had filled. A kernel frees the device when its last
    blocks have begun, so its end may come after the start of the row that waited.

    Returns:
        The edges, and the late rows for which nothing was found.
    """
    nothing = edges(np.empty(0, np.int32), np.empty(0, np.int32), EVENT, 0, False)
    ready = np.full(len(rows), -FAR, np.int64)
    end = rows.ts.copy()
    end[atoms.row] = atoms.ts + atoms.dur
    end[gpu.row] = rows.end[gpu.row]
    moment = np.where(known.binds == START_START, rows.ts[known.src], end[known.src]) + known.lag
    np.maximum.at(ready, known.dst, moment)
    late = gpu.row[rows.ts[gpu.row] - ready[gpu.row] > _PROMPT_NS]
    if not len(late):
        return nothing, late
    source = np.full(len(late), NONE, np.int32)
    nearest = np.full(len(late), FAR, np.int64)
    for stream, (low, high) in enumerate(zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True)):
        own = gpu.row[low:high][np.argsort(rows.end[gpu.row[low:high]], kind="stable")]
        if not len(own):
            continue
        place = np.searchsorted(rows.end[own], rows.ts[late], side="right")
        for at, inside in ((place - 1, place > 0), (place, place < len(own))):
            x = own[np.clip(at, 0, len(own) - 1)]
            apart = rows.ts[late] - rows.end[x]
            # A row that ends later held this one if it ran when this one was ready, or nearly ends.
            held = (rows.ts[x] <= ready[late]) | (-apart <= rows.dur[x] // 6)
            fits = inside & (rows.stream[late] != stream) & (apart <= _HELD_NS) & held & (rows.ts[x] < rows.ts[late])
            better = fits & (np.abs(apart) < nearest)
            source[better] = x[better]
            nearest[better] = np.abs(apart)[better]
    held = source >= 0
    unknown = late[~held]
    source, late = source[held], late[held]
    apart = rows.ts[late] - rows.end[source]
    # How early a kernel frees the device is a share of its duration, the same for two kernels' names.
    early = apart < 0
    pair = (rows.name[late].astype(np.int64) << 32 | rows.name[source]) * 2 + early
    tail = by_class(apart * _SHARES // np.maximum(rows.dur[source], 1), pair, early.astype(np.int32))
    lag = np.where(early, tail * rows.dur[source] // _SHARES, by_class(apart, pair, early.astype(np.int32)))
    return edges(source, late, EVENT, lag, False), unknown
