"""Collectives that threads of the host do, as gloo's, after a change: transfers move their bytes, waiting is compute.

No graph joins ranks without GPUs. Of the rows of one collective the shortest came last, and is the transfer; what the
others have more they waited for that rank. A transfer grows with its bytes, and waiting as what the ranks compute.
"""

import json
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import typical_values
from lumos_df.graph.host_collectives import host_collectives, met
from lumos_df.graph.host_spread import works_between
from lumos_df.graph.host_work import HostWork, host_work
from lumos_df.graph.job import Job
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.schema.codes import BACKWARD, CPU_OP, FORWARD, NONE, RECOMPUTE, THREAD
from lumos_df.schema.collective_kinds import POINT_TO_POINT
from lumos_df.schema.plan_words import DP
from lumos_df.structure.operator_kinds import tensors
from lumos_df.whatif.durations import fused_updates, host_times
from lumos_df.whatif.durations.operator_times import PlannedChange, Times, turns
from lumos_df.whatif.durations.reduced_parameters import gradients
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.rewrite.block_sequence import taken

_BEGINS_NS: Final = 100_000
"""Threshold, ns. What a collective of the host takes whatever it carries. Evidence: gloo's of one number between two
processes of one machine take 50 (a send), 110 (all-reduce) and 160 us (all-gather)."""


@dataclass(frozen=True, slots=True)
class _Transfers:
    """The host's collectives of one rank, by their begin [k], ns."""

    row: NDArray[np.int64]
    waits: NDArray[np.float64]
    """What each waits for other ranks, at first."""
    moves: NDArray[np.float64]
    """What is left: the transfer."""
    bytes_grown: NDArray[np.float64]
    """By how much its bytes grow."""
    often: NDArray[np.float64]
    """By how much more often one comes that is of one parameter."""
    once: NDArray[np.bool_]
    """Whether it comes once in all layers, and not in each."""
    within: NDArray[np.bool_]
    """Whether it runs while its own thread waits between operators."""
    copied: NDArray[np.int64]
    """As how many one comes that is to come once, because its thread waits in a layer that is copied."""

    def only(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> "_Transfers":
        """Return some of them."""
        return _Transfers(
            self.row[which],
            self.waits[which],
            self.moves[which],
            self.bytes_grown[which],
            self.often[which],
            self.once[which],
            self.within[which],
            self.copied[which],
        )

    def after(
        self, grown: tuple[float, float], cut: NDArray[np.float64] | float = 0.0, begins: int = _BEGINS_NS
    ) -> NDArray[np.float64]:
        """Return what each takes after the change, ns [k].

        Args:
            grown: as `_compute_grown` returns it.
            cut: what is left out of the beginning of each, ns.
            begins: what one takes that carries nothing, ns.
        """
        waits = np.maximum(self.waits - cut, 0)
        moves = np.maximum(self.moves - np.maximum(cut - self.waits, 0), 0)
        floor = np.minimum(moves, begins)
        moves = (floor + (moves - floor) * self.bytes_grown) * self.often
        return (waits * np.where(self.once, grown[1], grown[0]) + moves) / self.copied


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What of each edge's lag is waiting for the host's collectives, ns [edges of the trace]."""

    before: NDArray[np.float64]
    after: NDArray[np.float64]
    most: NDArray[np.float64]
    """After the change, if all of a transfer grows."""


def with_host_lags(anchor: RecordedJob, change: PlannedChange, job: Job, times: list[Times]) -> tuple[Job, list[Times]]:
    """Return a job whose host works and waits between operators as long as it then does, and what is known of that.

    Args:
        anchor: the job as recorded.
        change: the change.
        job: the job before it.
        times: what is known of its ranks.
    """
    same = change.old == change.new and change.settings.batch_scale == 1
    often = [turns(anchor, change, rank) for rank in range(len(times))]
    if same or not any(map(host_times.communicates, job.graphs)):
        return host_times.with_gaps(job, [time.gaps + np.log(of) for time, of in zip(times, often, strict=True)]), times
    hosts = [host_work(graph) for graph in job.graphs]
    transfers = [
        _transfers(anchor, change, host, rank, waits, of)
        for rank, (host, waits, of) in enumerate(zip(hosts, _waits(job), often, strict=True))
    ]
    before = [_waiting(host, of_rank, (1.0, 1.0)).before for host, of_rank in zip(hosts, transfers, strict=True)]
    copies = [_copies(anchor, change, rank) for rank in range(len(times))]
    grown = _compute_grown(anchor, job, times, before, copies, often)
    graphs, known = [], []
    for host, time, of_rank, of in zip(hosts, times, transfers, often, strict=True):
        graph, waiting = host.graph, _waiting(host, of_rank, grown)
        lag, dst = graph.edges.lag, graph.edges.dst
        # What is left of a silence for a transfer is no gap that comes again in each turn.
        of_gaps = np.exp(time.gaps[dst]) * np.where(waiting.before > 0, 1.0, of[dst])
        works = (lag - waiting.before) * np.where(works_between(graph), of_gaps, 1.0)
        graphs.append(replace(graph, edges=replace(graph.edges, lag=np.round(works + waiting.after).astype(np.int64))))
        held = (lag, works + waiting.before, works + waiting.after, works + waiting.most)
        sums = np.stack([np.bincount(dst, each, len(time.gaps)) for each in held])
        logs = np.where(np.bincount(dst, waiting.before > 0, len(time.gaps)) > 0, np.log(np.maximum(sums, 1)), 0.0)
        gaps = np.where(logs[0] != 0, logs[1] - logs[0], time.gaps)
        known.append(replace(time, gaps=gaps, waits=np.stack((logs[1] - logs[2], logs[3] - logs[2]), axis=1)))
    return replace(job, graphs=graphs), known


def _waits(job: Job) -> list[NDArray[np.float64]]:
    """Return how long each of the host's collectives waits for other ranks, ns; one array a rank [k].

    One that is found on all ranks waits what it lasts longer than the shortest. Of any other the shortest of its kind
    and bytes is taken to wait not at all.
    """
    ranks = [graph.rows for graph in job.graphs]
    rows = [*map(host_collectives, ranks)]
    place = np.concatenate([np.full(len(each), rank) for rank, each in enumerate(rows)])
    row = np.concatenate(rows)
    lasts = np.concatenate([of.dur[each] for of, each in zip(ranks, rows, strict=True)]).astype(np.int64)
    names = {name: number for number, name in enumerate(sorted({name for of in ranks for name in of.names}))}
    like = [
        (np.array([names[name] for name in of.names])[of.name[each]], of.in_bytes[each])
        for of, each in zip(ranks, rows, strict=True)
    ]
    kind = dense(packed(*(np.concatenate(column) for column in zip(*like, strict=True))))
    least = np.full(int(kind.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, kind, lasts)
    waits = lasts - least[kind]
    if len(ranks) > 1:
        rank, found, waited, _ = met(ranks)
        number = packed(np.append(place, rank), np.append(row, found))
        order = np.argsort(number[: len(row)])
        waits[order[np.searchsorted(number[: len(row)][order], number[len(row) :])]] = waited
    return np.split(waits.astype(np.float64), np.cumsum([len(each) for each in rows])[:-1])


def _copies(anchor: RecordedJob, change: PlannedChange, rank: int) -> NDArray[np.float64]:
    """Return how many times as many of every operator there will be [n]."""
    more = change.new.layers / change.old.layers if change.new.layers and change.old.layers else 1.0
    return np.where(anchor.about.ranks[rank].structure.layer >= 0, more, 1.0)


def _compute_grown(
    anchor: RecordedJob,
    job: Job,
    times: list[Times],
    waits: list[NDArray[np.float64]],
    copies: list[NDArray[np.float64]],
    often: list[NDArray[np.float64]],
) -> tuple[float, float]:
    """Return by how much longer all ranks compute in their passes: what there is now, and with what is copied.

    Args:
        anchor: the job as recorded.
        job: the job before the change.
        times: what is known of its ranks.
        waits: what of each edge's lag is no compute, ns, one array a rank.
        copies: how many times as many of every operator there will be, one array a rank.
        often: as `operator_times.turns` returns it, one array a rank: turns of loops are in no pass.
    """
    totals = np.zeros(3)
    for rank, (graph, time, waited, copied, of) in enumerate(zip(job.graphs, times, waits, copies, often, strict=True)):
        passes = np.isin(anchor.about.ranks[rank].structure.phase, (FORWARD, BACKWARD, RECOMPUTE)) & (of == 1)
        lag, dst = np.where(works_between(graph), graph.edges.lag - waited, 0.0), graph.edges.dst
        works, count = host_times.works(graph), len(graph.rows)
        before = np.where(works, graph.own, 0) + np.bincount(dst, lag, count)
        after = np.where(works, time.own, 0) + np.bincount(dst, lag * np.exp(time.gaps[dst]), count)
        totals += [before[passes].sum(), after[passes].sum(), (after * copied)[passes].sum()]
    return (float(totals[1] / totals[0]), float(totals[2] / totals[0])) if totals[0] else (1.0, 1.0)


def _transfers(
    anchor: RecordedJob,
    change: PlannedChange,
    host: HostWork,
    rank: int,
    waits: NDArray[np.float64],
    often: NDArray[np.float64],
) -> _Transfers:
    """Return the host's collectives of a rank.

    Args:
        anchor: the job.
        change: the change.
        host: the rank's host work.
        rank: place of the rank in the job.
        waits: of each collective, ns [k].
        often: as `operator_times.turns` returns it [n].
    """
    rows = host.graph.rows
    row = host_collectives(rows)
    call = _calls(host, row)
    behind = _waits_behind(host, row)
    within = behind >= 0
    # A layer's sends are those of its stage.
    inside = within & (call >= 0) & ~rows.of_collective(POINT_TO_POINT)[row]
    layer = np.where(inside, anchor.about.ranks[rank].structure.layer[call], NONE).astype(np.int32)
    copied = _layers_copied(anchor, change, rank)[np.where(within & (layer < 0), behind, NONE)]
    moves = rows.dur[row] - waits
    turns_of = np.where(call >= 0, often[call], 1.0)
    carried = _bytes_grown(anchor, change, rank, row, layer, turns_of)
    order = np.argsort(rows.ts[row], kind="stable")
    return _Transfers(row, waits, moves, carried, turns_of, layer < 0, within, copied).only(order)


def _layers_copied(anchor: RecordedJob, change: PlannedChange, rank: int) -> NDArray[np.int64]:
    """Return how often there will be the layer of every operator, and 1 at the end, where NONE is [n + 1]."""
    layer = anchor.about.ranks[rank].structure.layer
    known = np.unique(layer[layer >= 0])
    if not len(known):
        return np.ones(len(layer) + 1, np.int64)
    more = (change.new.layers or 1) / (change.old.layers or 1)
    left = np.bincount(taken(len(known), max(1, round(len(known) * more))), minlength=len(known))
    copied = np.maximum(left[np.searchsorted(known, np.maximum(layer, known[0]))], 1)
    return np.append(np.where(layer >= 0, copied, 1), 1)


def _calls(host: HostWork, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the operator that calls each of the host's collectives; NONE where there are not as many [k].

    Calls and collectives have the same order.
    """
    rows = host.graph.rows
    collective = (rows.kind == CPU_OP) & (rows.collective >= 0)
    calls = np.flatnonzero(collective & ~(collective[rows.parent] & (rows.parent >= 0)))
    call = np.full(len(row), NONE, np.int64)
    if len(calls) == len(row):
        call[np.argsort(rows.ts[row], kind="stable")] = calls[np.argsort(rows.ts[calls])]
    return call


def _waits_behind(host: HostWork, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the operator before which its own thread waits for each collective; NONE: it does nothing else [k]."""
    graph, rows = host.graph, host.graph.rows
    of_thread = graph.edges.kind[host.edge] == THREAD
    key, at = _keys(host)
    begin, over = at[0][of_thread], at[1][of_thread]
    order = np.argsort(begin, kind="stable")
    begin, over = begin[order], np.maximum.accumulate(over[order])
    if not len(begin):
        return np.full(len(row), NONE)
    last = np.searchsorted(begin, key[row] + rows.dur[row], side="left") - 1
    behind = graph.edges.dst[host.edge[of_thread][order[np.maximum(last, 0)]]]
    return np.where((last >= 0) & (over[np.maximum(last, 0)] > key[row]), behind, NONE)


def _keys(host: HostWork) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each row begins [n], and the moments of each edge [4, k], ns; threads one behind the other."""
    rows = host.graph.rows
    first = rows.ts[host.order].min()
    span = 2 * (rows.end[host.order].max() - first + 1)
    return rows.thread * span + rows.ts - first, host.thread * span + np.maximum(host.at - first, 0)


def _bytes_grown(
    anchor: RecordedJob,
    change: PlannedChange,
    rank: int,
    row: NDArray[np.int64],
    layer: NDArray[np.int32],
    often: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return by how much the bytes of each of the host's collectives grow: activations have axes, parameters one [k].

    What comes more often itself, as it is of one parameter, is as large as this.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: its collectives [k].
        layer: of what calls each, NONE where it comes once in all layers [k].
        often: by how much more often each comes [k].
    """
    about = anchor.about.ranks[rank]
    codes, which = np.unique(about.trace.dims.code[row], return_inverse=True)
    shapes = [next(iter(tensors(json.loads(about.trace.dims.words[code]))), ()) if code >= 0 else () for code in codes]
    ratio = np.array([prod(change.symbols.rescaled(shape)) / max(prod(shape), 1) if shape else 1.0 for shape in shapes])
    flat = np.array([len(shape) < 2 for shape in shapes], np.bool_)
    copies = _copies(anchor, change, rank)
    was, becomes = fused_updates.touched(about.trace, about.structure, change.symbols, change.axes[rank], copies)
    if was and not (layer >= 0).any():
        parameters = np.full(len(row), becomes / was)
    else:
        # Which layer's parameters it carries, what calls it tells.
        of_layer = about.structure.layer.copy()
        of_layer[row] = layer
        ranks = list(anchor.about.ranks)
        ranks[rank] = replace(about, structure=replace(about.structure, layer=of_layer))
        known = replace(anchor, about=replace(anchor.about, ranks=ranks))
        parameters = gradients(known, change, rank, row.astype(np.int32), np.full(len(row), DP, np.int8))
    return np.where(flat[which.reshape(-1)] & (often == 1), parameters, ratio[which.reshape(-1)])


def _waiting(host: HostWork, transfers: _Transfers, grown: tuple[float, float]) -> _Waiting:
    """Return what of each edge's lag is waiting for the host's collectives.

    Args:
        host: the trace's host work.
        transfers: its collectives.
        grown: as `_compute_grown` returns it.
    """
    lag = host.graph.edges.lag
    before, after, most = _inside(host, transfers.only(transfers.within), grown) + _behind(
        host, transfers.only(~transfers.within), grown
    )
    share = np.divide(np.minimum(before, lag), before, out=np.zeros_like(before), where=before > 0)
    return _Waiting(before * share, after * share, most * share)


def _inside(host: HostWork, transfers: _Transfers, grown: tuple[float, float]) -> NDArray[np.float64]:
    """Return what of each edge's lag passes in a collective on the same thread, before and after [3, edges]."""
    passed = np.zeros((3, len(host.graph.edges)))
    rows, row = host.graph.rows, transfers.row
    if not len(row):
        return passed
    key, at = _keys(host)
    order = np.argsort(key[row], kind="stable")
    begin, end = key[row][order], (key[row] + rows.dur[row])[order]
    begin = np.maximum(begin, np.append(begin[:1], np.maximum.accumulate(end)[:-1]))
    end = np.maximum(begin, end)
    bounds = np.stack((begin, end), axis=1).ravel()
    lasts = np.maximum(rows.dur[row], 1)
    rates = (np.ones(len(row)), transfers.after(grown) / lasts, transfers.after(grown, begins=0) / lasts)
    for of_rate, rate in zip(passed, rates, strict=True):
        within = (end - begin) * rate[order]
        sums = np.stack((np.cumsum(within) - within, np.cumsum(within)), axis=1).ravel()
        stretches = np.interp(at, bounds, sums)
        of_rate[host.edge] = stretches[1] - stretches[0] + stretches[3] - stretches[2]
    return passed


def _behind(host: HostWork, transfers: _Transfers, grown: tuple[float, float]) -> NDArray[np.float64]:
    """Return what of each edge's lag the thread that works waits for others', before and after [3, edges].

    It waits in long silences in which a collective ends. So much of that as passed before, the thread computed.
    """
    graph, rows, row = host.graph, host.graph.rows, transfers.row
    waits = np.zeros((3, len(graph.edges)))
    working = graph.atoms.row[host_times.works(graph)[graph.atoms.row]]
    if not len(row) or not len(working):
        return waits
    busiest = np.bincount(rows.thread[working]).argmax()
    steps = np.unique(rows.step[rows.step >= 0])
    least = typical_values.LEAST_PCT / 100 * float(rows.dur[working].sum()) / max(len(steps), 1)
    place = np.flatnonzero((graph.edges.kind[host.edge] == THREAD) & (host.thread[0] == busiest))
    place = place[(host.at[1] - host.at[0])[place] >= least]
    if not len(place):
        return waits
    place = place[np.argsort(host.at[0][place], kind="stable")]
    begin, over = host.at[0][place], host.at[1][place]
    starts, ends = rows.ts[row], rows.end[row]
    # They run one after the other, however many threads do them: they share the links.
    runs = np.maximum(starts, np.append(starts[:1], np.maximum.accumulate(ends)[:-1]))
    lasts = np.maximum(ends - runs, 0)
    silence = np.searchsorted(begin, ends, side="left") - 1
    kept = (silence >= 0) & (ends <= over[np.maximum(silence, 0)]) & (lasts > 0)
    of, count = silence[kept], len(place)
    cut = (rows.dur[row] - lasts).astype(np.float64)
    hidden = np.bincount(of, np.clip(begin[of] - runs[kept], 0, lasts[kept]), count)
    last = np.zeros(count, np.int64)
    np.maximum.at(last, of, ends[kept])
    exposed = np.maximum(last - begin, 0).astype(np.float64)
    edge = host.edge[place]
    waits[0, edge] = exposed
    for of_waits, after in zip(
        waits[1:], (transfers.after(grown, cut), transfers.after(grown, cut, begins=0)), strict=True
    ):
        more = np.bincount(of, (after - lasts)[kept], count) - (grown[1] - 1) * hidden
        of_waits[edge] = np.maximum(exposed + more, 0)
    return waits
