"""Which kernels of which ranks are one collective, and how the clocks of their hosts differ.

Members of a collective that ends together on all ranks end at one moment of true time; so their ends tell the offset
and drift of the clocks, and the shortest member is the one that came last and waited for nobody.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.units import format_count
from lumos_df.graph import gpu_streams, typical_values
from lumos_df.graph.rows import FAR, Rows
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE
from lumos_df.schema.collective_kinds import TOGETHER

_SAME: Final = {"send_recv": "all_to_all"}
"""An all-to-all looks like this without arguments, and one rank may have them where another has not."""
_ROUTE: Final = re.compile(r"nccl:(?:send ([0-9]{1,9})->([0-9]{1,9})|recv ([0-9]{1,9})<-([0-9]{1,9}))$")
"""How torch.distributed annotates a send (rank of the group to rank) and a receive (rank from rank)."""
_SHIFTS: Final = 64
"""Threshold, collectives. One rank's recording may begin or end so many before another's, without recorded numbers."""
_COMMON_SHARE: Final = 0.5
"""Threshold, share of the shorter sequence. So much of it must be alike where two unnumbered sequences overlap."""
_ALIKE_NS: Final = 1_000_000
"""Threshold, ns. Ends that lie further apart, after the clocks are aligned, are not of one collective."""


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """One rank's clock against that of the job's first rank."""

    offset_ns: int
    """Its clock shows this much more, at the start of its trace."""
    drift_ppm: float
    """It runs this much faster."""
    residual_ns: int
    """Median distance of the ends of common collectives, after both are taken off."""
    collectives: int
    """Collectives from which this was estimated; with none, the clocks are taken to agree."""

    def ahead(self, since_start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how much more it shows, ns, at moments by itself since its trace began, ns."""
        return self.offset_ns + np.round(self.drift_ppm * 1e-6 * since_start).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    clocks: tuple[ClockSkew, ...]
    """One a trace."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Members:
    """The collective kernels of one group on one rank, in the order of their starts."""

    row: NDArray[np.int32]
    operation: NDArray[np.int64]
    """Place in TOGETHER; 0 for sends and receives."""
    in_bytes: NDArray[np.int64]
    """Bytes that the rank gives to it, 0 where they are not known."""
    step: NDArray[np.int32]
    seq: NDArray[np.int64]
    numbered: bool
    end: NDArray[np.int64]
    """ns, Unix time by the rank's clock."""

    def by(self, clock: ClockSkew, start: int) -> Self:
        """Return them by another clock, of which the rank's is ahead since its trace began, at `start`, ns."""
        return replace(self, end=self.end - clock.ahead(self.end - start))

    def may_be(
        self, place: NDArray[np.int64] | slice, other: "_Members", other_place: NDArray[np.int64] | slice
    ) -> NDArray[np.bool_]:
        """Return which collectives at some places may be those at places of another rank: operation and size agree."""
        alike: NDArray[np.bool_] = (self.operation[place] == other.operation[other_place]) & (
            self.in_bytes[place] == other.in_bytes[other_place]
        )
        return alike


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommonEnds:
    """Ends of collectives that two ranks have in common, ns, Unix time by the clock of each."""

    trace: int
    other: int
    end: NDArray[np.int64]
    other_end: NDArray[np.int64]


def match(ranks: list[Rows]) -> Instances:
    """Find the collectives of a job and align its clocks."""
    groups = [_groups(rows) for rows in ranks]
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    common: list[_CommonEnds] = []
    pairs: list[tuple[int, int, int, str]] = []
    unmatched = np.zeros(len(ranks), np.int64)
    count = 0
    for group in sorted({name for of_rank in groups for name in of_rank}):
        traces = [trace for trace, of_rank in enumerate(groups) if group in of_rank]
        if len(traces) < 2:
            continue
        reference = max(traces, key=lambda trace: (len(groups[trace][group].row), -trace))
        size = len(groups[reference][group].row)
        parts.append((count + np.arange(size), np.full(size, reference), groups[reference][group].row.astype(np.int64)))
        pairs += [(count, trace, reference, group) for trace in traces if trace != reference]
        count += size
    # What numbers tell of the clocks says where sequences without numbers may lie.
    for by_number in (True, False):
        clocks = None if by_number else _clocks(ranks, common)
        for first, trace, reference, group in pairs:
            members, against = groups[trace][group], groups[reference][group]
            if (members.numbered and against.numbered) != by_number:
                continue
            if clocks:
                mine, theirs = _pair_in_time(
                    members.by(clocks[trace], ranks[trace].begun), against.by(clocks[reference], ranks[reference].begun)
                )
            else:
                mine, theirs = _pair_by_number(members, against)
            ends = _CommonEnds(trace=trace, other=reference, end=members.end[mine], other_end=against.end[theirs])
            common.append(ends)
            parts.append((first + theirs, np.full(len(mine), trace), members.row[mine].astype(np.int64)))
            unmatched[trace] += len(members.row) - len(mine)
    none = [np.empty(0, np.int64)] * 3
    instance, trace_of, row = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else none
    shared = np.bincount(instance, minlength=count)[instance] > 1
    unmatched += np.bincount(trace_of[~shared], minlength=len(ranks))
    instance, trace_of, row = instance[shared], trace_of[shared], row[shared]
    order = np.lexsort((trace_of, instance))
    _, instance = np.unique(instance[order], return_inverse=True)
    trace_of, row = trace_of[order], row[order]
    dur, step = _of_members(ranks, trace_of, row)
    transfer = np.full(int(instance.max(initial=-1)) + 1, FAR, np.int64)
    np.minimum.at(transfer, instance, dur)
    return Instances(
        instance=instance.astype(np.int32),
        trace=trace_of.astype(np.int32),
        row=row.astype(np.int32),
        transfer=transfer,
        clocks=tuple(_clocks(ranks, common)),
        warnings=(
            *(
                f"rank {rows.rank}: {format_count(missing, 'collective')} that no other rank has: as long as recorded"
                for rows, missing in zip(ranks, unmatched.tolist(), strict=True)
                if missing
            ),
            *_numbered_otherwise(ranks, instance, trace_of, step),
        ),
    )


def _of_members(
    ranks: list[Rows], trace_of: NDArray[np.int64], row: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the duration, ns, and the step of each member of a collective [k]."""
    dur, step = np.empty((2, len(row)), np.int64)
    by_trace = np.argsort(trace_of, kind="stable")
    bounds = np.searchsorted(trace_of[by_trace], np.arange(1, len(ranks)))
    for rows, place in zip(ranks, np.split(by_trace, bounds), strict=True):
        dur[place], step[place] = rows.dur[row[place]], rows.step[row[place]]
    return dur, step


def _numbered_otherwise(
    ranks: list[Rows], instance: NDArray[np.int64], trace_of: NDArray[np.int64], step: NDArray[np.int64]
) -> list[str]:
    """Tell of ranks most of whose collectives are in a step of another number than on the first rank that has them.

    Steps without marks are counted from the first that a recording has whole, and not all begin with the same one.
    """
    first = np.unique(instance, return_index=True)[1][instance]
    known = np.flatnonzero((step >= 0) & (step[first] >= 0) & (trace_of != trace_of[first]))
    more, trace, other = (step - step[first])[known], trace_of[known], trace_of[first][known]
    odd = 2 * np.bincount(trace, more != 0, len(ranks)) > np.bincount(trace, minlength=len(ranks))
    told = []
    for place in np.flatnonzero(odd).tolist():
        shift, beside = round(float(np.median(more[trace == place]))), ranks[int(other[trace == place][0])].rank
        numbers = f"its steps have other numbers than rank {beside}'s, most by {abs(shift)}"
        told.append(f"rank {ranks[place].rank}: {numbers}: what is said of one step is of several")
    return told


def _groups(rows: Rows) -> dict[str, _Members]:
    """Return the collectives of each process group, and the sends and receives of each route."""
    operations = [_SAME.get(name, name) for name in rows.collectives]
    place = np.array([*(TOGETHER.index(name) if name in TOGETHER else NONE for name in operations), NONE])
    operation = place[rows.collective]
    member = np.flatnonzero((rows.kind == KERNEL) & (rows.family == COMMUNICATION) & (operation >= 0))
    groups = {}
    for group in np.unique(rows.group[member]).tolist():
        row = member[rows.group[member] == group].astype(np.int32)
        seq = rows.seq[row]
        numbered = bool(rows.seq_recorded[row].all()) and len(np.unique(seq)) == len(seq)
        groups[_group_name(rows, group, row)] = _members(rows, row, operation[row], numbered=numbered)
    return groups | _routes(rows)


def _group_name(rows: Rows, group: int, row: NDArray[np.int32]) -> str:
    return f"{rows.groups[group] if group != NONE else ''}/{int(rows.group_size[row[0]])}"


def _members(rows: Rows, row: NDArray[np.int32], operation: NDArray[np.int64], *, numbered: bool) -> _Members:
    return _Members(
        row=row,
        operation=operation,
        in_bytes=np.where(rows.in_bytes[row] == rows.null, 0, rows.in_bytes[row]),
        step=rows.step[row],
        seq=rows.seq[row],
        numbered=numbered,
        end=rows.end[row] + rows.clock_origin,
    )


def _routes(rows: Rows) -> dict[str, _Members]:
    """Return sends and receives by their route: those of one rank of a group to another, be it the sender's or not.

    Ranks number them each for itself, so numbers tell nothing.
    """
    stated = [_route(name) for name in rows.names]
    routes = sorted({route for route in stated if route})
    number_of = {route: number for number, route in enumerate(routes)}
    route_of_name = np.array([*(number_of[route] if route else NONE for route in stated), NONE], np.int64)
    passes = rows.of_collective(("send", "recv"))
    row = np.flatnonzero((rows.kind == KERNEL) & (rows.family == COMMUNICATION) & passes)
    above, route = rows.parent[row], np.full(len(row), NONE, np.int64)
    parent = np.append(rows.parent, NONE)
    while (above >= 0).any():
        route = np.where(route >= 0, route, route_of_name[np.where(above >= 0, rows.name[above], NONE)])
        above = parent[above]
    members = {}
    row, route = row[route >= 0].astype(np.int32), route[route >= 0]
    for group, number in np.unique(np.stack((rows.group[row], route)), axis=1).T.tolist():
        alike = row[(rows.group[row] == group) & (route == number)]
        source, target = routes[number]
        name = f"{_group_name(rows, group, alike)} {source}->{target}"
        members[name] = _members(rows, alike, np.zeros(len(alike), np.int64), numbered=False)
    return members


def _route(name: str) -> tuple[int, int] | None:
    """Return from which rank to which an annotation says that something is sent."""
    stated = _ROUTE.match(name)
    return (int(stated[1] or stated[4]), int(stated[2] or stated[3])) if stated else None


def _pair_by_number(members: _Members, against: _Members) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of one rank's collectives are which of another's, as places in both."""
    _, mine, theirs = np.intersect1d(members.seq, against.seq, return_indices=True)
    alike = members.may_be(mine, against, theirs)
    return mine[alike].astype(np.int64), theirs[alike].astype(np.int64)


def _pair_in_time(members: _Members, against: _Members) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same where not both were numbered."""
    ahead = _roughly_ahead(members, against)
    if ahead is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return _by_time(members, against, ahead)


def _roughly_ahead(members: _Members, against: _Members) -> NDArray[np.int64] | None:
    """Try where one sequence may lie beside the other and return how much later it ends where they fit best, ns [k]."""
    best: tuple[float, float, float, int] | None = None
    ahead: NDArray[np.int64] | None = None
    for shift in range(-_SHIFTS, _SHIFTS + 1):
        low, high = max(0, -shift), min(len(members.row), len(against.row) - shift)
        if high <= low:
            continue
        alike = members.may_be(slice(low, high), against, slice(low + shift, high + shift))
        if np.count_nonzero(alike) < _COMMON_SHARE * min(len(members.row), len(against.row)):
            continue
        end = members.end[low:high][alike]
        apart = end - against.end[low + shift : high + shift][alike]
        # Clocks that drift seem to agree better the fewer ends lie side by side: a drift is taken off where it shows.
        levels = (_level(end, apart, drift) for drift in (0.0, _drift(end, apart)))
        spread, middle, drift = min(levels, key=lambda level: level[0])
        in_other_step = members.step[low:high] != against.step[low + shift : high + shift]
        # Sequences that repeat fit in several places: there the ends keep their distance best (as well as nothing is
        # late), the steps have the same numbers, and clocks differ least.
        score = (spread, float(in_other_step[alike].mean()), abs(middle), shift)
        if best is None or score < best:
            best = score
            ahead = np.round(middle + drift * (members.end - end[0])).astype(np.int64)
    return ahead


def _level(end: NDArray[np.int64], apart: NDArray[np.int64], drift: float) -> tuple[int, float, float]:
    """Return how badly ends keep their distance, in `LATE_NS`; that distance at the first end, ns; the drift."""
    level = apart - drift * (end - end[0])
    middle = float(np.median(level))
    return round(float(np.median(np.abs(level - middle))) / gpu_streams.LATE_NS), middle, drift


def _drift(end: NDArray[np.int64], apart: NDArray[np.int64]) -> float:
    """Return by how much ends that lie some ns apart move apart in time.

    It is the median over pairs that lie far from each other: one rank may lack some of the collectives, and near ends
    tell more of the network than of clocks.
    """
    if len(end) < typical_values.FEW:
        return 0.0
    order = np.argsort(end, kind="stable")
    later = np.searchsorted(end[order], end[order] + max(int(np.ptp(end)) // typical_values.FEW, 1))
    first, second = order[later < len(end)], order[later[later < len(end)]]
    return float(np.median((apart[second] - apart[first]) / (end[second] - end[first]))) if len(first) else 0.0


def _by_time(
    members: _Members, against: _Members, ahead: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair what ends at about the same time and may be the same; each side at most once."""
    order = np.argsort(against.end, kind="stable")
    ends = against.end[order]
    at = members.end - ahead
    right = np.searchsorted(ends, at)
    apart = np.full(len(at), FAR, np.int64)
    theirs = np.full(len(at), NONE, np.int64)
    for candidate in (right - 1, right):
        place = np.clip(candidate, 0, len(ends) - 1)
        distance = np.abs(ends[place] - at)
        better = (distance < apart) & (candidate >= 0) & (candidate < len(ends))
        better &= members.may_be(slice(None), against, order[place])
        apart[better] = distance[better]
        theirs[better] = order[place[better]]
    mine = np.flatnonzero((theirs >= 0) & (apart <= _ALIKE_NS))
    mine = mine[np.argsort(apart[mine], kind="stable")]
    _, first = np.unique(theirs[mine], return_index=True)
    mine = np.sort(mine[first])
    return mine, theirs[mine]


def _clocks(ranks: list[Rows], common: list[_CommonEnds]) -> list[ClockSkew]:
    """Estimate each rank's clock against the first rank's, over as many other ranks as it takes.

    Of ranks that have nothing in common with it, the first agrees with it.
    """
    agreeing = ClockSkew(0, 0.0, 0, 0)
    ends: list[list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = [[] for _ in ranks]
    for pair in common:
        if len(pair.end):
            ends[pair.trace].append((pair.other, pair.end, pair.other_end))
            ends[pair.other].append((pair.trace, pair.other_end, pair.end))
    known = {trace: agreeing for trace, of_rank in enumerate(ends) if not of_rank}
    for origin in range(len(ranks)):
        reached = {} if origin in known else {origin: agreeing}
        while reached:
            known |= reached
            near = sorted({to for trace in reached for to, _, _ in ends[trace]} - known.keys())
            reached = {trace: _through(ends[trace], known, ranks, trace) for trace in near}
    return [known[trace] for trace in range(len(ranks))]


def _through(
    ends: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]],
    known: dict[int, ClockSkew],
    ranks: list[Rows],
    trace: int,
) -> ClockSkew:
    """Return a rank's clock by what it has in common with ranks whose clocks are known."""
    through = [(mine, theirs - known[to].ahead(theirs - ranks[to].begun)) for to, mine, theirs in ends if to in known]
    mine, theirs = (np.concatenate(column) for column in zip(*through, strict=True))
    return _fit(mine, theirs, ranks[trace].begun)


def _fit(ends: NDArray[np.int64], other: NDArray[np.int64], start: int) -> ClockSkew:
    """Return how one clock differs from another, by the ends of common collectives, ns; `start` of its trace, ns."""
    apart = ends - other
    middle = int(np.median(apart))
    near = typical_values.inside_fences(apart)
    at = (ends[near] - start).astype(np.float64)
    value = (apart[near] - middle).astype(np.float64)
    slope, base = 0.0, 0.0
    if len(at) >= typical_values.FEW and np.ptp(at) > 0:
        slope, base = np.polyfit(at, value, 1)
    residual = np.median(np.abs(value - slope * at - base)) if len(at) else 0.0
    return ClockSkew(middle + round(base), slope * 1e6, round(float(residual)), len(ends))
