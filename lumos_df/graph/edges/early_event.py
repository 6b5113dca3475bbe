"""Waits for an event that was recorded long before the wait was issued, by calls that the profiler does not show.

The names of the rows before and after the record on its stream tell where it was. Waits that look alike wait for one
such place, and it is where every row that they delay finds the row that had just ended. On a busy stream some
row has always just ended; that it is at the same place by accident is as likely as that place is frequent.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE


def early_events(
    rows: Rows,
    gpu: GpuStreams,
    waiting: NDArray[np.int32],
    late: NDArray[np.bool_],
    group: NDArray[np.int64],
    prompt_ns: int,
) -> NDArray[np.int32]:
    """Return the row that each wait was for, as waits like it tell, or NONE [w].

    Args:
        rows, gpu: the trace.
        waiting: the row that each wait may delay, or NONE [w].
        late: whether that row started later than anything else explains [w].
        group: the same for waits that look alike [w].
        prompt_ns: a row that waited starts at most so long after the end of what it waited for.
    """
    issued = np.full(len(rows), NONE, np.int32)
    issued[gpu.row] = gpu.issued
    places = _places(rows, gpu)
    bounds = list(zip(gpu.bounds[:-1].tolist(), gpu.bounds[1:].tolist(), strict=True))
    groups = int(group.max(initial=NONE)) + 1
    wanted, chance = np.full((len(bounds), groups), NONE, np.int64), np.zeros((len(bounds), groups))
    tried = 0
    for stream, (low, high) in enumerate(bounds):
        asking = np.flatnonzero(late & (rows.stream[waiting] != stream))
        if low == high or not len(asking):
            continue
        on_stream, place = gpu.row[low:high], places[low:high]
        start = rows.ts[waiting[asking]]
        last = np.searchsorted(np.maximum.accumulate(rows.end[on_stream]), start + rows.resolution, side="right") - 1
        ended = on_stream[np.maximum(last, 0)]
        fits = (last >= 0) & (start - rows.end[ended] <= prompt_ns) & (issued[ended] < issued[waiting[asking]])
        wanted[stream], chance[stream] = _usual(
            group[asking], np.where(fits, place[np.maximum(last, 0)], NONE), place, groups
        )
        tried += len(np.unique(group[asking]))
    if not tried:
        return np.full(len(waiting), NONE, np.int32)
    # Of several streams the one that would be found least by accident; whichever was tried might have been.
    best = np.argmin(chance, axis=0)
    clear = chance.min(axis=0) <= np.log(typical_values.ACCIDENT_SHARE / tried)
    stream_of = np.where(clear, best, NONE)[group]
    source = np.full(len(waiting), NONE, np.int32)
    for stream in np.unique(stream_of[stream_of >= 0]).tolist():
        low, high = bounds[stream]
        wait = np.flatnonzero((stream_of == stream) & (waiting >= 0) & (rows.stream[waiting] != stream))
        on_stream = gpu.row[low:high]
        row = _last_at(places[low:high], gpu.issued[low:high], wanted[stream, group[wait]], issued[waiting[wait]])
        has = (row >= 0) & (rows.end[on_stream[np.maximum(row, 0)]] <= rows.ts[waiting[wait]] + rows.resolution)
        source[wait[has]] = on_stream[row[has]]
    return source


def _last_at(
    place: NDArray[np.int64], issued: NDArray[np.int32], wanted: NDArray[np.int64], before: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the last row of a stream that has the place wanted and was issued before some moment, or NONE.

    Args:
        place, issued: of each row of the stream; `issued` never falls.
        wanted, before: the place, and the moment, of each question.
    """
    order = np.argsort(place, kind="stable")
    span = int(max(issued.max(), before.max(initial=0))) + 2
    at = np.searchsorted(place[order] * span + issued[order] + 1, wanted * span + before + 1) - 1
    row = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (place[row] == wanted), row, NONE)


def _places(rows: Rows, gpu: GpuStreams) -> NDArray[np.int64]:
    """Return a number for the names of each row and the next one of its stream [g]."""
    following = np.append(gpu.row[1:], NONE)
    ends = np.diff(rows.stream[gpu.row], append=NONE) != 0
    name_after = np.where(ends, NONE, rows.name[np.maximum(following, 0)])
    return dense(packed(rows.name[gpu.row], name_after))


def _usual(
    group: NDArray[np.int64], nearest: NDArray[np.int64], place: NDArray[np.int64], groups: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the place that all waits of each group find, or NONE, and how likely by accident [groups].

    The first that finds it chooses the place, the others might miss it; as a logarithm.

    Args:
        group: the same for waits that look alike; of those that delayed a row [k].
        nearest: the place that each of these finds, or NONE [k].
        place: of each row of the stream.
        groups: how many there are.
    """
    usual, chance = np.full(groups, NONE, np.int64), np.zeros(groups)
    some = nearest >= 0
    if some.any():
        pairs, count = np.unique(np.stack((group[some], nearest[some])), axis=1, return_counts=True)
        best = np.lexsort((count, pairs[0]))
        best = best[np.flatnonzero(np.diff(pairs[0][best], append=NONE))]
        (of_group, chosen), count = pairs[:, best], count[best]
        frequency = np.bincount(place, minlength=int(chosen.max()) + 1)[chosen] / len(place)
        agree = count == np.bincount(group)[of_group]
        usual[of_group[agree]] = chosen[agree]
        chance[of_group[agree]] = ((count - 1) * np.log(frequency))[agree]
    return usual, chance
