"""Stream to stream: which stream waited for which, by recorded ids or from the order of issue."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls
from lumos_df.graph.edges import EVENT, Edges, edges, join
from lumos_df.graph.gpu import FAR, Work
from lumos_df.graph.host import Atoms
from lumos_df.graph.rows import NONE, SYNC, Rows

_PROMPT_NS: Final = 10_000
"""A row that starts within this time after another one's end, and not after anything else, waited for it."""
_HELD_NS: Final = 25_000
"""The same across streams without a call that says so: barriers of AMD devices take 18 us."""
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
    loop: NDArray[np.int64]
    """The same for waits of one operator that hold back one stream."""
    previous: NDArray[np.int32]
    following: NDArray[np.int32]


def _inferred(rows: Rows, atoms: Atoms, gpu: Work, waits: NDArray[np.int32], gap: NDArray[np.int64]) -> Edges:
    """Guess which row each wait holds back, and for which: that which fits all waits that look alike and explains most.

    A stream mostly waits for what another has been sent last. Where it does not, as many waits as the other stream was
    sent rows before them may take these in turn, as a training loop waits for its buckets. Waits that never held
    anything back are of the streams of which most waits of the same operator are.
    """
    pattern = _patterns(rows, atoms, gpu, waits)
    streams = len(rows.stream_keys)
    explained = _ready(rows, atoms, gpu, gap)
    after = np.stack([gpu.next_issued(stream, waits) for stream in range(streams)])
    before = np.stack([gpu.last_issued(stream, waits) for stream in range(streams)])
    turn = np.stack([_in_turn(gpu, stream, waits, pattern.loop) for stream in range(streams)])
    last, some = _Candidates.of(rows, before, after, pattern.group), _Candidates.of(rows, turn, after, pattern.loop)
    chosen = last.chosen(explained, pattern)
    found = last.edges(chosen)
    rest = found[0] < 0
    found = np.where(rest, some.edges(some.chosen(explained, pattern)), found)
    rest &= found[0] < 0
    found = np.where(rest, last.edges(last.usual(chosen, pattern.loop)), found)
    return edges(found[0].astype(np.int32), found[1].astype(np.int32), EVENT, 0, False)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What each of w waits may mean: p pairs of streams, the one that is waited for and the one that waits.

    A pair fits a wait when the row on the one stream had ended before the row on the other one started.
    """

    rows: Rows
    group: NDArray[np.int64]
    """[w] the same for waits that are judged together."""
    pairs: NDArray[np.int64]
    """[p, 2]"""
    src: NDArray[np.int32]
    """[streams, w] the row that would be waited for, by its stream; NONE: there is none."""
    dst: NDArray[np.int32]
    """[streams, w] the row that would wait, likewise."""
    consistent: NDArray[np.bool_]
    """[p, groups] whether the pair fits nearly all waits of the group."""

    @classmethod
    def of(cls, rows: Rows, src: NDArray[np.int32], dst: NDArray[np.int32], group: NDArray[np.int64]) -> "_Candidates":
        """Return the candidates of waits."""
        streams, groups = len(src), int(group.max(initial=-1)) + 1
        pairs = np.array([(a, b) for a in range(streams) for b in range(streams) if a != b])
        found = cls(rows, group, pairs, src, dst, np.empty((0, groups), np.bool_))
        least = _CONSISTENT * np.bincount(group, minlength=groups)
        fitting = []
        for pair in range(len(pairs)):
            both, slack = found._slack(pair)
            fitting.append(np.bincount(group, ~both | (slack >= -rows.resolution), groups) >= least)
        return replace(found, consistent=np.stack(fitting))

    def _slack(self, pair: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which waits have both rows, and how long after the end of the one the other one started, ns."""
        src, dst = self.src[self.pairs[pair, 0]], self.dst[self.pairs[pair, 1]]
        both = (src >= 0) & (dst >= 0)
        return both, np.where(both, self.rows.ts[np.maximum(dst, 0)] - self.rows.end[np.maximum(src, 0)], 0)

    def chosen(self, explained: NDArray[np.int64], pattern: _Pattern) -> NDArray[np.int64]:
        """Return the pair of each group that explains most of its waits; NONE where none does [groups].

        It explains a wait when the row started promptly and neither launch and stream (`explained`) nor any other
        wait's candidate had held it so long: what ended earlier than another one, ended then by accident.
        """
        rows, (many, groups) = self.rows, self.consistent.shape
        nearest = np.full(len(rows), FAR, np.int64)
        for pair in range(many):
            both, slack = self._slack(pair)
            here = both & (slack >= -rows.resolution) & self.consistent[pair, self.group]
            np.minimum.at(nearest, self.dst[self.pairs[pair, 1]][here], slack[here])
        best = np.zeros(groups)
        choice = np.full(groups, NONE, np.int64)
        for pair, (waited, waiting) in enumerate(self.pairs.tolist()):
            both, slack = self._slack(pair)
            dst = np.maximum(self.dst[waiting], 0)
            tells = both & (slack >= -rows.resolution) & (slack <= np.minimum(_HELD_NS, nearest[dst] + rows.resolution))
            tells &= rows.ts[dst] > explained[dst] + _PROMPT_NS // 2
            usual = both & (pattern.previous == waited) & (pattern.following == waiting)
            weight = np.bincount(self.group, tells + 0.01 * usual, groups)
            better = self.consistent[pair] & (weight > best)
            best[better] = weight[better]
            choice[better] = pair
        return choice

    def usual(self, chosen: NDArray[np.int64], loop: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pair of each group that most waits of its operator mean, if it fits the group; else NONE [groups].

        Args:
            chosen: the pair of each group, NONE where nothing told [groups].
            loop: the same for waits of one operator that hold back one stream [w].
        """
        many, groups = self.consistent.shape
        of = chosen[self.group]
        told = of >= 0
        votes = np.bincount(loop[told] * many + of[told], minlength=(int(loop.max(initial=-1)) + 1) * many)
        votes = votes.reshape(-1, many)
        usual = np.where(votes.any(axis=1), votes.argmax(axis=1), NONE)
        found = np.full(groups, NONE, np.int64)
        found[self.group] = usual[loop]
        return np.where((found >= 0) & self.consistent[found, np.arange(groups)], found, NONE)

    def edges(self, chosen: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the edge (source, target) of each wait by the pair of its group, NONE for none [2, w]."""
        pair = chosen[self.group]
        here = np.arange(len(self.group))
        waited, waiting = self.pairs[np.maximum(pair, 0)].T
        src, dst = self.src[waited, here], self.dst[waiting, here]
        kept = (pair >= 0) & (src >= 0) & (dst >= 0)
        kept &= self.rows.ts[np.maximum(dst, 0)] - self.rows.end[np.maximum(src, 0)] >= -self.rows.resolution
        return np.where(kept, np.stack((src, dst)), NONE).astype(np.int32)


def _in_turn(gpu: Work, stream: int, waits: NDArray[np.int32], loop: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the row of a stream that each wait takes if the waits of a loop take its rows one after another.

    The rows are the last of those that were issued since the loop ran last; where they are too few, NONE.
    """
    low, high = int(gpu.bounds[stream]), int(gpu.bounds[stream + 1])
    order = np.lexsort((waits, loop))
    issued = np.searchsorted(gpu.issued[low:high], waits[order], side="left")
    first = np.diff(loop[order], prepend=-1) != 0
    since = np.diff(issued, prepend=0)
    since[first] = issued[first]
    run = np.flatnonzero(first | (since > 0))
    many = np.diff(np.append(run, len(waits)))
    suits = since[run] >= many
    place = np.repeat(issued[run] - many, many) + np.arange(len(waits)) - np.repeat(run, many)
    found = np.full(len(waits), NONE, np.int32)
    suits = np.repeat(suits, many)
    found[order[suits]] = gpu.row[low + place[suits]]
    return found


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
    _, loop = np.unique(np.stack((around, following)), axis=1, return_inverse=True)
    return _Pattern(group, loop.reshape(-1), previous, following)


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
