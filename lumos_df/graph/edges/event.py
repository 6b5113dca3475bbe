"""Event edges: which stream waited for which, by recorded ids or from the order of issue."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls, gpu_streams
from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.edges.early_collective import early_collectives
from lumos_df.graph.edges.early_event import early_events
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.host import Atoms
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.same_rows import ordinals
from lumos_df.graph.simulate.event_candidates import candidates, clearest, fitting
from lumos_df.graph.simulate.forward import forward_star
from lumos_df.graph.simulate.threads import reached
from lumos_df.schema.codes import EVENT, NONE, SYNC

REACTION_NS: Final = 25_000
"""Threshold, ns. A row that waited for one of another stream starts at most so long after its end.
Evidence: barriers of AMD devices take 18 us."""


def event_edges(rows: Rows, atoms: Atoms, gpu: GpuStreams, role: NDArray[np.int8], gap: NDArray[np.int64]) -> Edges:
    """Return the edges of every wait of a stream for an event.

    Args:
        rows, atoms, gpu: the trace.
        role: what every row does as a call, of `calls` [n].
        gap: ns between the row before on the stream and each GPU row, if that was queued [g].
    """
    waits = np.flatnonzero(role[atoms.row] == calls.WAIT).astype(np.int32)
    if not len(waits) or len(rows.stream_keys) < 2:
        return edges(np.empty(0, np.int32), np.empty(0, np.int32), EVENT, 0, True)
    recorded, known = _recorded(rows, atoms, gpu, waits)
    return _distinct(join([recorded, _inferred(rows, atoms, gpu, waits[~known], role, gap)]))


def _recorded(rows: Rows, atoms: Atoms, gpu: GpuStreams, waits: NDArray[np.int32]) -> tuple[Edges, NDArray[np.bool_]]:
    """Return the edges of the waits that a `cuda_sync` row describes, and which those are."""
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
    at = np.minimum(np.searchsorted(values, rows.wait_correlation[described]), len(values) - 1)
    hit = values[at] == rows.wait_correlation[described]
    record = np.where(hit, by_correlation[at], NONE)
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


def _inferred(
    rows: Rows,
    atoms: Atoms,
    gpu: GpuStreams,
    waits: NDArray[np.int32],
    role: NDArray[np.int8],
    gap: NDArray[np.int64],
) -> Edges:
    """Guess which row each wait delays, and for which: that which fits all waits that look alike and explains most.

    A stream mostly waits for what another has been sent last. Where it does not, as many waits as the other stream was
    sent rows before them may take these in turn, as a training loop waits for its buckets. Waits that never delayed
    anything are of the streams of which most waits of the same operator are; those that are left are for collectives
    that nothing else waits for. What is late even so waited for an event that had been recorded long before.
    """
    pattern = _patterns(rows, atoms, gpu, waits)
    streams = range(len(rows.stream_keys))
    explained = _ready(rows, atoms, gpu, gap)
    after = np.stack([gpu.next_issued(stream, waits) for stream in streams])
    before = np.stack([gpu.last_issued(stream, waits) for stream in streams])
    turn = np.stack([_in_turn(gpu, stream, waits, pattern.loop) for stream in streams])
    sent_last = _Candidates.of(rows, before, after, pattern.group, pattern)
    in_turn = _Candidates.of(rows, turn, after, pattern.loop, pattern)
    chosen = sent_last.chosen(explained, pattern)
    ends = sent_last.edges(chosen)
    unknown = ends[0] < 0
    ends = np.where(unknown, in_turn.edges(in_turn.chosen(explained, pattern)), ends)
    unknown &= ends[0] < 0
    src, dst = np.where(unknown, sent_last.edges(sent_last.usual(chosen, pattern.loop)), ends).astype(np.int32)
    has = dst >= 0
    np.maximum.at(explained, dst[has], rows.end[src[has]])
    following = np.where(pattern.following >= 0, after[pattern.following, np.arange(len(waits))], NONE)
    late = (following >= 0) & (rows.ts[following] > explained[following] + gpu_streams.LATE_NS)
    early = early_events(rows, gpu, following, late, pattern.group, REACTION_NS)
    ahead = early_collectives(rows, atoms, gpu, waits, role, (src, dst), pattern.run, pattern.group)
    return join([edges(src, dst, EVENT, 0, False), edges(early, following, EVENT, 0, False), ahead])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patterns:
    """Waits that look alike: same operator around, same streams issued to before and after, same place in a run.

    A value for each of w waits.
    """

    group: NDArray[np.int64]
    """The same for waits that look alike."""
    loop: NDArray[np.int64]
    """The same for waits of one operator that delay one stream."""
    run: NDArray[np.int64]
    """The same for waits of one thread with no launch between them."""
    previous: NDArray[np.int64]
    """Stream that its thread issued to before, or NONE."""
    following: NDArray[np.int64]
    """Stream that its thread issues to next, or NONE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """What each of w waits may mean: a pair of streams, the one that is waited for and the one that waits.

    A pair fits a wait when the row on the one stream had ended before the row on the other one started. The pair (a, b)
    of s streams is the number a * s + b.
    """

    rows: Rows
    group: NDArray[np.int64]
    """[w] the same for waits that are judged together."""
    src: NDArray[np.int32]
    """[s, w] the row that would be waited for, by its stream; NONE: there is none."""
    dst: NDArray[np.int32]
    """[s, w] the row that would wait, likewise."""
    order: NDArray[np.int64]
    """[w] waits by their groups."""
    bounds: NDArray[np.int64]
    """[groups + 1] where each group begins in `order`."""
    pair: NDArray[np.int64]
    """[c] candidates: pairs that fit all waits of a group, for waits that they may explain; by group, pair, wait."""
    first: NDArray[np.int64]
    """[groups + 1] where the candidates of each group begin."""
    target: NDArray[np.int32]
    """[c] the row that would wait."""
    tells: NDArray[np.bool_]
    """[c] whether that started promptly, and after no other candidate that had ended later."""
    nearby: NDArray[np.bool_]
    """[c] whether the pair are the streams that the thread issued to before and after the wait."""

    @classmethod
    def of(
        cls,
        rows: Rows,
        src: NDArray[np.int32],
        dst: NDArray[np.int32],
        group: NDArray[np.int64],
        pattern: _Patterns,
    ) -> "_Candidates":
        """Return the candidates of waits."""
        groups = np.arange(int(group.max(initial=-1)) + 2)
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], groups)
        around = (pattern.previous, pattern.following, rows.ts, rows.end)
        wait, pair, slack, usual = candidates(src, dst, order, bounds, *around, rows.resolution, REACTION_NS)
        target = dst[pair % len(dst), wait]
        nearest = np.full(len(rows), FAR, np.int64)
        np.minimum.at(nearest, target, slack)
        tells = slack <= np.minimum(REACTION_NS, nearest[target] + rows.resolution)
        by_group = np.lexsort((wait, pair, group[wait]))
        by_group = by_group[(tells | usual)[by_group]]
        return cls(
            rows=rows,
            group=group,
            src=src,
            dst=dst,
            order=order,
            bounds=bounds,
            pair=pair[by_group],
            first=np.searchsorted(group[wait[by_group]], groups),
            target=target[by_group],
            tells=tells[by_group],
            nearby=usual[by_group],
        )

    def chosen(self, explained: NDArray[np.int64], pattern: _Patterns) -> NDArray[np.int64]:
        """Return the pair of each group that explains most of its waits; NONE where none does [groups].

        It explains a wait when the row started promptly and neither launch and stream (`explained`) nor any other
        wait's candidate had delayed it so long: what ended earlier than another one, ended then by accident. Waits of
        one run are chosen one after another, the clearest first: what a chosen pair explains, no other one explains.
        """
        groups = len(self.bounds) - 1
        explained = explained.copy()
        start = self.rows.ts[self.target]
        loop = np.zeros(groups, np.int64)
        loop[self.group] = pattern.loop
        choice = np.full(groups, NONE, np.int64)
        open_ = np.ones(groups, np.bool_)
        told = (self.first, self.pair, start, self.target, self.tells, self.nearby)
        while open_.any():
            pair, weight = clearest(*told, open_, explained, gpu_streams.LATE_NS, 1 / (len(self.group) + 1))
            # Of each loop the clearest group.
            order = np.lexsort((weight, loop))
            first = order[np.flatnonzero(np.diff(loop[order], append=NONE))]
            first = first[weight[first] > 0]
            if not len(first):
                break
            choice[first] = pair[first]
            open_[first] = False
            self._explain(explained, choice, first)
        return choice

    def _explain(self, explained: NDArray[np.int64], choice: NDArray[np.int64], groups: NDArray[np.int64]) -> None:
        """Raise to its start what the pairs of some groups explain [rows]."""
        decided = np.zeros(len(choice), np.bool_)
        decided[groups] = True
        src, dst = self.edges(np.where(decided, choice, NONE))
        src, dst = src[src >= 0], dst[src >= 0]
        start, end = self.rows.ts[dst], self.rows.end[src]
        np.maximum.at(explained, dst, np.where(start - end <= REACTION_NS, start, end))

    def usual(self, chosen: NDArray[np.int64], loop: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pair of each group that most waits of its operator mean, if it fits the group; else NONE [groups].

        Args:
            chosen: the pair of each group, NONE where nothing told [groups].
            loop: the same for waits of one operator that delay one stream [w].
        """
        pairs = len(self.src) ** 2
        pair = chosen[self.group]
        told = pair >= 0
        voted, votes = np.unique(loop[told] * pairs + pair[told], return_counts=True)
        order = np.lexsort((-voted, votes, voted // pairs))
        most = voted[order[np.flatnonzero(np.diff(voted[order] // pairs, append=NONE))]]
        of_loop = np.full(int(loop.max(initial=-1)) + 1, NONE, np.int64)
        of_loop[most // pairs] = most % pairs
        of_group = np.full(len(self.bounds) - 1, NONE, np.int64)
        of_group[self.group] = of_loop[loop]
        rows = self.rows
        fits: NDArray[np.int64] = fitting(
            of_group, self.src, self.dst, self.order, self.bounds, rows.ts, rows.end, rows.resolution
        )
        return fits

    def edges(self, chosen: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the edge (source, target) of each wait by the pair of its group, NONE for none [2, w]."""
        pair = chosen[self.group]
        wait = np.arange(len(self.group))
        waited, waiting = np.divmod(np.maximum(pair, 0), len(self.src))
        src, dst = self.src[waited, wait], self.dst[waiting, wait]
        kept = (pair >= 0) & (src >= 0) & (dst >= 0)
        kept &= self.rows.ts[np.maximum(dst, 0)] - self.rows.end[np.maximum(src, 0)] >= -self.rows.resolution
        return np.where(kept, np.stack((src, dst)), NONE).astype(np.int32)


def _in_turn(gpu: GpuStreams, stream: int, waits: NDArray[np.int32], loop: NDArray[np.int64]) -> NDArray[np.int32]:
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
    length = np.diff(np.append(run, len(waits)))
    suits = np.repeat(since[run] >= length, length)
    place = np.repeat(issued[run] - length, length) + np.arange(len(waits)) - np.repeat(run, length)
    row = np.full(len(waits), NONE, np.int32)
    row[order[suits]] = gpu.row[low + place[suits]]
    return row


def _patterns(rows: Rows, atoms: Atoms, gpu: GpuStreams, waits: NDArray[np.int32]) -> _Patterns:
    """Return what is around each wait."""
    stream_of = np.full(len(atoms.row), NONE, np.int32)
    stream_of[gpu.call[gpu.launched]] = rows.stream[gpu.row[gpu.launched]]
    launches = np.flatnonzero(stream_of >= 0)
    bounds, order = forward_star(atoms.thread[launches], len(atoms.bounds) - 1)
    launches = launches[order]
    thread = atoms.thread[waits]
    place = reached(thread, waits.astype(np.int64), bounds, launches)
    stream = np.append(stream_of[launches], NONE)
    previous = np.where(place > bounds[thread], stream[place - 1], NONE)
    following = np.where(place < bounds[thread + 1], stream[place], NONE)
    run = packed(thread, place)
    in_run = np.where(bounds[thread] < bounds[thread + 1], ordinals(run), 0)
    parent = rows.parent[atoms.row[waits]]
    operator = np.where(parent >= 0, rows.name[np.maximum(parent, 0)], NONE)
    _, group = np.unique(np.stack((operator, previous, following, in_run)), axis=1, return_inverse=True)
    _, loop = np.unique(np.stack((operator, following)), axis=1, return_inverse=True)
    return _Patterns(group=group.reshape(-1), loop=loop.reshape(-1), run=run, previous=previous, following=following)


def _ready(rows: Rows, atoms: Atoms, gpu: GpuStreams, gap: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when launch and stream alone would have let each GPU row start, ns; [n]."""
    ready = np.full(len(rows), FAR, np.int64)
    front = np.where(gpu.before >= 0, rows.end[np.maximum(gpu.before, 0)] + gap, -FAR)
    ready[gpu.row] = np.maximum(front, gpu.of_call(atoms.ts + atoms.dur, -FAR))
    return ready


def _distinct(parts: Edges) -> Edges:
    """Return the edges without those between the same two rows as an earlier one."""
    _, first = np.unique(packed(parts.src, parts.dst), return_index=True)
    keep = np.zeros(len(parts), np.bool_)
    keep[first] = True
    return parts.where(keep)
