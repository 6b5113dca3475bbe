"""Which kernels of which ranks are one collective, and how the clocks of their hosts differ.

Members of a collective that ends together on all ranks end at one moment of true time; so their ends tell the offset
and drift of the clocks, and the shortest member is the one that came last and waited for nobody.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.gpu import FAR
from lumos_df.graph.rows import COMMUNICATION, KERNEL, NONE, Rows

TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives whose members end at the same time."""
_SAME: Final = {"send_recv": "all_to_all"}
"""An all-to-all looks like this without arguments, and one rank may have them where another has not."""
_ROUTE: Final = re.compile(r"nccl:(?:send (\d+)->(\d+)|recv (\d+)<-(\d+))$")
"""How torch.distributed annotates a send (rank of the group to rank) and a receive (rank from rank)."""
_RANK_BITS: Final = 24
_ABOVE: Final = 4
"""How far above a kernel that annotation is, at most: around the launching call."""
_SHIFTS: Final = 64
"""How many collectives one rank's recording may begin or end before another's, where no numbers were recorded."""
_ALIKE_NS: Final = 1_000_000
"""Ends that lie further apart, after the clocks are aligned, are not of one collective."""


@dataclass(frozen=True, slots=True)
class Clock:
    """One rank's clock against that of the job's first rank."""

    offset_ns: int
    """Its clock shows this much more, at the start of its trace."""
    drift_ppm: float
    """It runs this much faster."""
    residual_ns: int
    """Median distance of the ends of common collectives, after both are taken off."""
    collectives: int
    """Collectives from which this was estimated; with none, the clocks are taken to agree."""


@dataclass(frozen=True, slots=True)
class Instances:
    """Collectives of a job; k members in all, ordered by instance."""

    instance: NDArray[np.int32]
    """[k]"""
    trace: NDArray[np.int32]
    """[k] place of the member's trace in the job."""
    row: NDArray[np.int32]
    """[k]"""
    transfer: NDArray[np.int64]
    """[instances] ns: the shortest member."""
    clocks: tuple[Clock, ...]
    """One a trace."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Members:
    """The collective kernels of one group on one rank, in the order of their starts."""

    row: NDArray[np.int32]
    word: NDArray[np.int64]
    """The same for collectives that may be one: operation and size."""
    seq: NDArray[np.int64]
    numbered: bool
    end: NDArray[np.int64]
    """ns, Unix time by the rank's clock."""
    begin: NDArray[np.int64]


def match(ranks: list[Rows]) -> Instances:
    """Find the collectives of a job and align its clocks."""
    groups = [_groups(rows) for rows in ranks]
    pairs: list[tuple[int, int, NDArray[np.int64], NDArray[np.int64]]] = []
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    unmatched = [0] * len(ranks)
    many = 0
    for group in sorted({name for own in groups for name in own}):
        having = [trace for trace, own in enumerate(groups) if group in own]
        if len(having) < 2:
            continue
        reference = max(having, key=lambda trace: (len(groups[trace][group].row), -trace))
        against = groups[reference][group]
        found.append(
            (many + np.arange(len(against.row)), np.full(len(against.row), reference), against.row.astype(np.int64))
        )
        for trace in having:
            if trace == reference:
                continue
            own = groups[trace][group]
            mine, theirs = _pair(own, against)
            pairs.append((trace, reference, own.end[mine], against.end[theirs]))
            found.append((many + theirs, np.full(len(mine), trace), own.row[mine].astype(np.int64)))
            unmatched[trace] += len(own.row) - len(mine)
        many += len(against.row)
    none = [np.empty(0, np.int64)] * 3
    instance, of, row = (np.concatenate(column) for column in zip(*found, strict=True)) if found else none
    shared = np.bincount(instance, minlength=many)[instance] > 1
    alone = np.bincount(of[~shared], minlength=len(ranks))
    instance, of, row = instance[shared], of[shared], row[shared]
    order = np.lexsort((of, instance))
    _, instance = np.unique(instance[order], return_inverse=True)
    of, row = of[order], row[order]
    dur = np.empty(len(row), np.int64)
    by_trace = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[by_trace], np.arange(1, len(ranks)))
    for rows, place in zip(ranks, np.split(by_trace, bounds), strict=True):
        dur[place] = rows.dur[row[place]]
    transfer = np.full(int(instance.max(initial=-1)) + 1, FAR, np.int64)
    np.minimum.at(transfer, instance, dur)
    warnings = [
        f"rank {rows.rank}: {missing} of its collectives are not on the other ranks; they last as long as recorded"
        for rows, missing in zip(ranks, (np.array(unmatched) + alone).tolist(), strict=True)
        if missing
    ]
    return Instances(
        instance.astype(np.int32),
        of.astype(np.int32),
        row.astype(np.int32),
        transfer,
        tuple(_clocks(ranks, pairs)),
        tuple(warnings),
    )


def _groups(rows: Rows) -> dict[str, _Members]:
    operations = [_SAME.get(name, name) for name in rows.collectives]
    place = np.array([*(TOGETHER.index(name) if name in TOGETHER else NONE for name in operations), NONE])
    operation = place[rows.collective]
    member = np.flatnonzero((rows.kind == KERNEL) & (rows.family == COMMUNICATION) & (operation >= 0))
    found = {}
    for group in np.unique(rows.group[member]).tolist():
        row = member[rows.group[member] == group].astype(np.int32)
        seq = rows.seq[row]
        numbered = bool(rows.seq_recorded[row].all()) and len(np.unique(seq)) == len(seq)
        found[_called(rows, group, row)] = _members(rows, row, operation[row], numbered=numbered)
    return found | _transfers(rows)


def _called(rows: Rows, group: int, row: NDArray[np.int32]) -> str:
    return f"{rows.groups[group] if group != NONE else ''}/{int(rows.group_size[row[0]])}"


def _members(rows: Rows, row: NDArray[np.int32], operation: NDArray[np.int64], *, numbered: bool) -> _Members:
    word = operation * (1 << 48) + np.where(rows.in_bytes[row] == rows.null, 0, rows.in_bytes[row])
    end = rows.end[row] + rows.clock_origin
    return _Members(row, word, rows.seq[row], numbered, end, end - rows.dur[row])


def _transfers(rows: Rows) -> dict[str, _Members]:
    """Return sends and receives by their route: those of one rank of a group to another, be it the sender's or not.

    Ranks number them each for itself, so numbers tell nothing.
    """
    routes = np.array([*(_route(name) for name in rows.names), NONE], np.int64)
    words = np.array([*(name in ("send", "recv") for name in rows.collectives), False])
    row = np.flatnonzero((rows.kind == KERNEL) & (rows.family == COMMUNICATION) & words[rows.collective])
    above, route = rows.parent[row], np.full(len(row), NONE, np.int64)
    parent = np.append(rows.parent, NONE)
    for _ in range(_ABOVE):
        route = np.where(route >= 0, route, routes[np.where(above >= 0, rows.name[above], NONE)])
        above = parent[above]
    found = {}
    key = np.stack((rows.group[row], route))[:, route >= 0]
    row = row[route >= 0].astype(np.int32)
    for group, one in np.unique(key, axis=1).T.tolist():
        own = row[(key[0] == group) & (key[1] == one)]
        name = f"{_called(rows, group, own)} {one >> _RANK_BITS}->{one & (1 << _RANK_BITS) - 1}"
        found[name] = _members(rows, own, np.zeros(len(own), np.int64), numbered=False)
    return found


def _route(name: str) -> int:
    """Return from which rank to which an annotation says that something is sent, or NONE."""
    said = _ROUTE.match(name)
    if not said:
        return NONE
    source, target = said[1] or said[4], said[2] or said[3]
    return int(source) << _RANK_BITS | int(target)


def _pair(own: _Members, against: _Members) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of one rank's collectives are which of another's, as places in both."""
    if own.numbered and against.numbered:
        _, mine, theirs = np.intersect1d(own.seq, against.seq, return_indices=True)
        same = own.word[mine] == against.word[theirs]
        return mine[same].astype(np.int64), theirs[same].astype(np.int64)
    offset = _rough_offset(own, against)
    if offset is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return _by_time(own, against, offset)


def _rough_offset(own: _Members, against: _Members) -> int | None:
    """Try where one sequence may lie beside the other and return the difference of the ends where they fit best."""
    best: tuple[float, float, int] | None = None
    offset = 0
    for shift in range(-_SHIFTS, _SHIFTS + 1):
        low, high = max(0, -shift), min(len(own.row), len(against.row) - shift)
        if high <= low:
            continue
        same = own.word[low:high] == against.word[low + shift : high + shift]
        if 2 * np.count_nonzero(same) < min(len(own.row), len(against.row)):
            continue
        apart = own.end[low:high][same] - against.end[low + shift : high + shift][same]
        middle = float(np.median(apart))
        spread = float(np.median(np.abs(apart - middle)))
        # Sequences that repeat fit in several places: there the ends keep their distance best, and clocks differ least.
        score = (round(spread / 20_000), abs(middle), shift)
        if best is None or score < (best[0], best[1], best[2]):
            best = (score[0], score[1], shift)
            offset = round(middle)
    return None if best is None else offset


def _by_time(own: _Members, against: _Members, offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair what ends at about the same time and may be the same; each side at most once."""
    order = np.argsort(against.end, kind="stable")
    ends = against.end[order]
    at = own.end - offset
    right = np.searchsorted(ends, at)
    apart = np.full(len(at), FAR, np.int64)
    theirs = np.full(len(at), NONE, np.int64)
    for candidate in (right - 1, right):
        place = np.clip(candidate, 0, len(ends) - 1)
        distance = np.abs(ends[place] - at)
        better = (
            (distance < apart) & (own.word == against.word[order[place]]) & (candidate >= 0) & (candidate < len(ends))
        )
        apart[better] = distance[better]
        theirs[better] = order[place[better]]
    mine = np.flatnonzero((theirs >= 0) & (apart <= _ALIKE_NS))
    mine = mine[np.argsort(apart[mine], kind="stable")]
    _, first = np.unique(theirs[mine], return_index=True)
    mine = np.sort(mine[first])
    return mine, theirs[mine]


def _clocks(ranks: list[Rows], pairs: list[tuple[int, int, NDArray[np.int64], NDArray[np.int64]]]) -> list[Clock]:
    """Estimate each rank's clock against the first rank's, over as many other ranks as it takes."""
    known: dict[int, Clock] = {0: Clock(0, 0.0, 0, 0)}
    ends: list[list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = [[] for _ in ranks]
    for a, b, end_a, end_b in pairs:
        ends[a].append((b, end_a, end_b))
        ends[b].append((a, end_b, end_a))
    while True:
        step = {}
        for trace in range(len(ranks)):
            if trace in known:
                continue
            own, other = [], []
            for to, mine, theirs in ends[trace]:
                if to in known:
                    own.append(mine)
                    other.append(theirs - known[to].offset_ns)
            if any(len(some) for some in own):
                start = int(ranks[trace].ts.min()) + ranks[trace].clock_origin
                step[trace] = _fit(np.concatenate(own), np.concatenate(other), start)
        if not step:
            break
        known |= step
    return [known.get(trace, Clock(0, 0.0, 0, 0)) for trace in range(len(ranks))]


def _fit(own: NDArray[np.int64], other: NDArray[np.int64], start: int) -> Clock:
    apart = own - other
    middle = int(np.median(apart))
    off = np.abs(apart - middle)
    near = off <= 4 * max(int(np.median(off)), 1_000)
    at = (own[near] - start).astype(np.float64)
    value = (apart[near] - middle).astype(np.float64)
    slope, base = 0.0, 0.0
    if len(at) >= 8 and np.ptp(at) > 0:
        slope, base = np.polyfit(at, value, 1)
    residual = np.median(np.abs(value - slope * at - base)) if len(at) else 0.0
    return Clock(middle + round(base), slope * 1e6, round(float(residual)), len(own))
