"""How long each communication kernel of a job waits, for ranks that came late and for those nobody recorded.

The duration of a kernel is its wait for the last member that was recorded, its wait for members of which no kernel was
found, and the transfer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate.least_transfers import least_transfers
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE
from lumos_df.schema.collective_kinds import EVEN

_PAIRED: Final = ("send", "recv")
"""Kinds that two ranks of a group take part in, however many it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveWaits:
    """The communication kernels of a job by trace and row, k in all; ns, `NONE` where nothing tells."""

    instance: NDArray[np.int64]
    """[k] which collective it is: those of `Instances` as there, then those of one kernel."""
    trace: NDArray[np.int64]
    """[k] place of its trace in the job."""
    row: NDArray[np.int64]
    """[k]"""
    members: NDArray[np.int64]
    """[k] kernels of its collective."""
    last: NDArray[np.int64]
    """[k] place here of the member that came last, which waited for nobody; NONE without others."""
    arrival: NDArray[np.int64]
    """[k] start after that of the first member, clocks aligned."""
    waiting: NDArray[np.int64]
    """[k] before the last member came."""
    unseen: NDArray[np.int64]
    """[k] what like collectives of the job did without: waiting for members of which no kernel was found."""
    transfer: NDArray[np.int64]
    """[k] the rest."""
    whole: NDArray[np.bool_]
    """[k] whether every rank of its group was recorded: else its transfer may hold waiting, too."""
    bounds: NDArray[np.int64]
    """[traces + 1] where the kernels of each trace begin."""
    rank: NDArray[np.int32]
    """[traces]"""
    trace_id: list[str]
    """[traces]"""

    def of_trace(self, k: int) -> slice:
        """Return where the kernels of the k-th trace are."""
        return slice(int(self.bounds[k]), int(self.bounds[k + 1]))

    def alone(self, k: int) -> "CollectiveWaits":
        """Return what there is of the kernels of the k-th trace, as the first one, and of those that they wait for."""
        kernels = self.of_trace(k)
        own = np.arange(kernels.start, kernels.stop)
        last = self.last[kernels]
        place = np.append(own, np.setdiff1d(last[last != NONE], own))
        others = np.setdiff1d(self.trace[place], k)
        traces = np.append(k, others)
        number = np.empty(len(self.rank), np.int64)
        number[traces] = np.arange(len(traces))
        order = np.argsort(number[self.trace[place]], kind="stable")
        place = place[order]
        of_place = np.full(len(self.row) + 1, NONE)
        of_place[place] = np.arange(len(place))
        trace = number[self.trace[place]]
        return CollectiveWaits(
            instance=self.instance[place],
            trace=trace,
            row=self.row[place],
            members=self.members[place],
            last=of_place[self.last[place]],
            arrival=self.arrival[place],
            waiting=self.waiting[place],
            unseen=self.unseen[place],
            transfer=self.transfer[place],
            whole=self.whole[place],
            bounds=np.searchsorted(trace, np.arange(len(traces) + 1)),
            rank=self.rank[traces],
            trace_id=[self.trace_id[trace] for trace in traces.tolist()],
        )


def waits(ranks: list[Rows], instances: Instances | None) -> CollectiveWaits:
    """Return how long the communication kernels of a job wait; `instances`: those matched, None of a rank by itself."""
    base = np.cumsum([0, *map(len, ranks)])
    kernels = [base[k] + np.flatnonzero(communicates(rows)) for k, rows in enumerate(ranks)]
    matched = np.empty(0, np.int64) if instances is None else base[instances.trace] + instances.row
    node = np.union1d(np.concatenate(kernels), matched)
    trace = np.searchsorted(base, node, side="right") - 1
    row, bounds = node - base[trace], np.searchsorted(node, base)
    instance = np.full(len(node), NONE, np.int64)
    known = 0
    if instances is not None:
        known = len(instances.transfer)
        instance[np.searchsorted(node, matched)] = instances.instance
    alone = instance == NONE
    instance[alone] = known + np.arange(np.count_nonzero(alone))
    collectives = known + int(np.count_nonzero(alone))

    kernel_rows = np.split(row, bounds[1:-1])

    def column(field: Callable[[Rows], NDArray[Any]]) -> NDArray[np.int64]:
        return np.concatenate([field(rows)[part] for rows, part in zip(ranks, kernel_rows, strict=True)]).astype(
            np.int64
        )

    dur = column(lambda rows: rows.dur)
    members = np.bincount(instance, minlength=collectives)
    shortest = np.full(collectives, FAR, np.int64)
    np.minimum.at(shortest, instance, dur)
    if instances is not None:
        shortest[:known] = instances.transfer
    start = column(lambda rows: rows.ts + rows.clock_origin)
    if instances is not None:
        since = np.split(start - np.array([rows.begun for rows in ranks])[trace], bounds[1:-1])
        start -= np.concatenate([clock.ahead(part) for clock, part in zip(instances.clocks, since, strict=True)])
    first, finish = np.full((2, collectives), np.iinfo(np.int64).max) * [[1], [-1]]
    np.minimum.at(first, instance, start)
    np.maximum.at(finish, instance, start + dur)
    begin, end = _recorded_by_all(ranks, instances)
    transfer, whole = _transfer(ranks, column, instance, shortest, members, (first >= begin) & (finish <= end))
    unseen = np.where(transfer == NONE, NONE, shortest - transfer)

    # Ends agree better than starts do, so the shortest member came last; of equally short ones the last to start.
    order = np.lexsort((-start, dur, instance))
    last = np.full(collectives, NONE, np.int64)
    last[instance[order[::-1]]] = order[::-1]
    last[members < 2] = NONE
    return CollectiveWaits(
        instance=instance,
        trace=trace,
        row=row,
        members=members[instance],
        last=last[instance],
        arrival=start - first[instance],
        waiting=dur - shortest[instance],
        unseen=unseen[instance],
        transfer=transfer[instance],
        whole=whole[instance],
        bounds=bounds,
        rank=np.array([rows.rank for rows in ranks], np.int32),
        trace_id=[rows.trace_id for rows in ranks],
    )


def lasting(ranks: list[Rows], instances: Instances | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what other kernels, or more links, do not shorten, ns; 0 where nothing tells.

    Returns:
        unseen: part of each transfer in which members waited for ranks of which no trace is there [instances].
        waited: part of each row in which it waited for other ranks, recorded or not [rows of all ranks].
    """
    of_job = waits(ranks, instances)
    base = np.cumsum([0, *map(len, ranks)])
    of_unseen = np.maximum(of_job.unseen, 0)
    unseen = np.zeros(0 if instances is None else len(instances.transfer), np.int64)
    matched = of_job.instance < len(unseen)
    unseen[of_job.instance[matched]] = of_unseen[matched]
    waited = np.zeros(base[-1], np.int64)
    waited[base[of_job.trace] + of_job.row] = np.maximum(of_job.waiting, 0) + of_unseen
    return unseen, waited


def _recorded_by_all(ranks: list[Rows], instances: Instances | None) -> tuple[int, int]:
    """Return between which moments the GPU rows of all ranks were recorded, ns, clocks aligned; one may be cut off."""
    if instances is None:
        return -int(FAR) * 4, int(FAR) * 4
    begin, end = [], []
    for rows, clock in zip(ranks, instances.clocks, strict=True):
        edges = np.array([rows.ts[rows.on_gpu].min(initial=FAR), rows.end[rows.on_gpu].max(initial=-FAR)])
        first, last = (edges + rows.clock_origin - clock.ahead(edges + rows.clock_origin - rows.begun)).tolist()
        begin.append(first)
        end.append(last)
    return max(begin), min(end)


def communicates(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are communication kernels [n]."""
    kernels: NDArray[np.bool_] = (rows.kind == KERNEL) & (rows.family == COMMUNICATION)
    return kernels


def _transfer(
    ranks: list[Rows],
    column: Callable[[Callable[[Rows], NDArray[Any]]], NDArray[np.int64]],
    instance: NDArray[np.int64],
    shortest: NDArray[np.int64],
    members: NDArray[np.int64],
    recorded: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the transfer of each collective, ns [collectives], and whether all ranks of its group were recorded.

    The shortest member, where all ranks of the group were recorded. Else even that one may have waited, and the
    transfer is at most what `simulate.least_transfers` says by other collectives of its kind in the group; where ranks
    may send different amounts, by those of as many bytes. NONE where bytes are unknown.

    Args:
        ranks: the job.
        column: gives a column of `Rows` at the kernels [k].
        instance: collective of each kernel [k].
        shortest: shortest member of each collective, ns [collectives].
        members: how many it has [collectives].
        recorded: whether every rank that is there was recorded when it ran [collectives].
    """
    word_of: dict[str, int] = {}
    name_of: dict[str, int] = {}
    first = np.full(len(members), len(instance), np.int64)
    np.minimum.at(first, instance, np.arange(len(instance)))
    word = column(lambda rows: _shared(word_of, rows.collective, rows.collectives))[first]
    name = column(lambda rows: _shared(name_of, rows.group, rows.groups))[first]
    size, sent = column(lambda rows: rows.group_size)[first], column(lambda rows: rows.in_bytes)[first]
    unknown = sent == Rows.null
    even = np.isin(word, [word_of[kind] for kind in EVEN if kind in word_of])
    links = dense(packed(word, name, size, np.where(even | unknown, NONE, sent)))
    order = np.lexsort((np.where(unknown, NONE, sent), links))
    least = np.empty_like(shortest)
    least[order] = least_transfers(links[order], sent[order], shortest[order])
    world = max(rows.world_size for rows in ranks)
    paired = np.isin(word, [word_of[kind] for kind in _PAIRED if kind in word_of])
    expected = np.where(paired, 2, size)
    # Where every rank was recorded nobody is unseen, be it that nothing tells which kernels belong together.
    whole = (members >= expected) & (expected > 0) | recorded & (len(ranks) >= world > 0)
    return np.where(whole, shortest, np.where(unknown, NONE, least)), whole


def _shared(known: dict[str, int], codes: NDArray[Any], words: list[str]) -> NDArray[np.int64]:
    """Return a trace's codes of words as numbers that all traces share, NONE for none; `known` gets what is new."""
    shared: NDArray[np.int64] = np.array([*(known.setdefault(word, len(known)) for word in words), NONE])[codes]
    return shared
