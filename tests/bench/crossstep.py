"""Whether one step's edges hold for another: `python -m tests.bench.crossstep [JOB...]`, a line a rank of LUMOS_TRACES.

A replay of what was recorded comes out right whatever the edges, as long as they fit. So here one step lends another
its durations, host work and transfers, and the state in which it begins, but no dependency within the step: it should
then be as long as the lender. Beside that stands the error of the guess that a step takes as long as one before it, and
how much of the lender's path is the host's: that much is right with any edges.

Calls that neither issue nor wait (`cudaEventQuery`, `cudaPeekAtLastError`) come and go from step to step. They count as
work of the host here, or hardly any two steps had the same rows.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import calls
from lumos_df.graph.event_graph import EventGraph, Run, run
from lumos_df.graph.job import Job, build, groups
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.replayed_tables import path_columns
from lumos_df.graph.rows import Rows, read
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.graph.steps import Steps, step_numbers, steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, NONE, OTHER_KIND, RUNTIME
from lumos_df.trace.ingest import ingest
from tests.bench.measure import claim
from tests.real import SETS, jobs

DIFFERENT_PCT = 2
"""Steps that differ by less say little: to guess that one is like the other is nearly right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPairs:
    """Pairs of steps of one rank that have the same rows, percent of the later step [pairs]."""

    name: str
    """Job and file."""
    error: NDArray[np.float64]
    """Of the earlier step's graph with what the later one's rows took."""
    naive: NDArray[np.float64]
    """Of the length of the earlier step as recorded."""
    host: NDArray[np.float64]
    """The host's part of the later step's critical path."""

    @property
    def different(self) -> "RankPairs":
        """Return the pairs whose steps differ enough to tell."""
        tells = np.abs(self.naive) >= DIFFERENT_PCT
        return RankPairs(name=self.name, error=self.error[tells], naive=self.naive[tells], host=self.host[tells])

    def __str__(self) -> str:
        """Return the mean errors of the pairs that tell in one line, and how much of the guess's error is left."""
        pairs = self.different
        error, naive = np.abs(pairs.error).mean(), np.abs(pairs.naive).mean()
        worst = pairs.error[np.argmax(np.abs(pairs.error))]
        figures = f"{error:8.2f} {worst:8.2f} {naive:8.2f} {error / naive:6.2f} {pairs.host.mean():7.1f}"
        return f"{self.name:60.60} {len(pairs.error):5} {figures}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """The nodes of one rank's steps, each step's thread by thread and stream by stream, in order of time."""

    graph: TraceGraph
    marks: Steps
    rows: dict[int, NDArray[np.int32]]
    """By number of the step."""

    def alike(self, number: int, other: int) -> bool:
        """Whether two steps have the same rows on the same threads and streams; marks bear a number each."""
        if number not in self.rows or other not in self.rows:
            return False
        rows = self.graph.rows
        row, other_row = self.rows[number], self.rows[other]
        name = np.where(step_numbers(rows)[rows.name] >= 0, NONE, rows.name)
        return all(np.array_equal(column[row], column[other_row]) for column in (name, rows.thread, rows.stream))

    def place(self, number: int) -> int:
        """Return the place of a step."""
        return int(np.flatnonzero(self.marks.number == number)[0])

    def first_of_streams(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return a step's first row on each stream, and when what ran there before had ended, ns, or UNSET."""
        rows, gpu = self.graph.rows, self.graph.gpu
        row = self.rows[number][rows.on_gpu[self.rows[number]]]
        first = row[np.flatnonzero(np.diff(rows.stream[row], prepend=NONE))]
        before = np.full(len(rows), NONE, np.int32)
        before[gpu.row] = gpu.before
        earlier = before[first]
        return first, np.where(earlier >= 0, rows.end[np.maximum(earlier, 0)], UNSET)

    def last(self, number: int) -> int:
        """Return the last row of a step on the thread of its mark."""
        row, thread = self.rows[number], self.graph.rows.thread
        return int(row[thread[row] == thread[self.marks.mark[self.place(number)]]][-1])

    def length(self, number: int) -> int:
        """Return how long a step was, ns."""
        k = self.place(number)
        return int(self.marks.high[k] - self.marks.low[k])


def without_quiet_calls(rows: Rows) -> Rows:
    """Return a trace whose calls that neither issue, record nor wait are operators of the host."""
    issues = np.zeros(len(rows), np.bool_)
    issues[rows.parent[rows.on_gpu & (rows.parent >= 0)]] = True
    quiet = (rows.kind == RUNTIME) & ~issues & (calls.roles(rows.kind, rows.name, rows.names) == calls.OTHER)
    operates = np.append(np.zeros(int(rows.thread.max(initial=NONE)) + 1, np.bool_), False)
    operates[rows.thread[rows.kind == CPU_OP]] = True
    # Threads that only make calls take no part in handoffs, and shall not.
    kind = np.where(quiet, np.where(operates[rows.thread], CPU_OP, OTHER_KIND), rows.kind)
    return replace(rows, kind=kind.astype(np.int8))


def step_rows(graph: TraceGraph) -> StepRows:
    """Return the rows of the steps of a trace that have a mark that is a node."""
    rows, marks = graph.rows, steps(graph.rows)
    of_step = rows.step.copy()
    marked = marks.mark[marks.mark >= 0]
    of_step[marked] = marks.number[marks.mark >= 0]
    lane = np.where(rows.thread >= 0, NONE - 1 - rows.thread, rows.stream)[graph.order]
    order = graph.order[np.lexsort((graph.order, rows.ts[graph.order], lane))]
    known = np.isin(marks.mark, order)
    return StepRows(
        graph=graph,
        marks=marks,
        rows={number: order[of_step[order] == number] for number in marks.number[known].tolist()},
    )


def lent(event_graph: EventGraph, edge_kind: NDArray[np.int8], lender: NDArray[np.int64]) -> EventGraph:
    """Return the graph with what other nodes and edges take.

    Args:
        event_graph: a job.
        edge_kind: [m] place in `schema.words.EDGE_KINDS`.
        lender: [N] node that lends each node its duration, or NONE.

    An edge takes the lag of the one of its kind between the nodes that lend to its own, where there is one such edge;
    all that come from other steps count as of one node. A collective takes the transfer of the one whose members lend
    to all of its own.
    """
    has, lends = lender >= 0, np.zeros(len(lender), np.bool_)
    lends[lender[has]] = True
    own, lag, transfer = event_graph.own.copy(), event_graph.lag.copy(), event_graph.transfer.copy()
    own[has] = event_graph.own[lender[has]]
    src, dst = event_graph.src, event_graph.dst
    to, of = np.flatnonzero(has[dst]), np.flatnonzero(lends[dst])
    source = np.concatenate((lender[src[to]], np.where(lends[src[of]], src[of], NONE)))
    target = np.concatenate((lender[dst[to]], dst[of]))
    edge = np.concatenate((to, of))
    key = packed(source, target, edge_kind[edge], event_graph.binds[edge])
    _, key = np.unique(key, return_inverse=True)
    borrower, giver = (np.full(int(key.max(initial=NONE)) + 1, NONE) for _ in range(2))
    once = np.ones(len(borrower), np.bool_)
    for ends, place in ((borrower, slice(len(to))), (giver, slice(len(to), None))):
        ends[key[place]] = edge[place]
        once &= np.bincount(key[place], minlength=len(once)) == 1
    lag[borrower[once]] = event_graph.lag[giver[once]]
    member = np.flatnonzero(event_graph.instance >= 0)
    collective = event_graph.instance[member]
    lending = np.where(has[member], event_graph.instance[lender[member]], NONE)
    least, most = np.full(len(transfer), len(transfer)), np.full(len(transfer), NONE)
    np.minimum.at(least, collective, lending)
    np.maximum.at(most, collective, lending)
    same = (least == most) & (least >= 0)
    transfer[same] = event_graph.transfer[least[same]]
    return replace(event_graph, own=own, lag=lag, transfer=transfer)


def begun_alike(
    event_graph: EventGraph, played: Run, paired: list[tuple[int, StepRows]], number: int, later: int
) -> EventGraph:
    """Return the graph of which a step begins at least as a later one did.

    Ranks begin it as late after one another, and streams are busy as long with what was issued before: that is the
    state in which a step begins, not what happens in it.

    Args:
        event_graph: a job.
        played: its simulation.
        paired: places in the job and steps of the ranks that are meant.
        number, later: the steps.
    """
    floor = event_graph.floor.copy()
    mark = {k: int(event_graph.base[k] + rank.marks.mark[rank.place(number)]) for k, rank in paired}
    begun = {k: int(rank.marks.low[rank.place(later)] + event_graph.shift[k]) for k, rank in paired}
    delay = max(int(played.start[mark[k]]) - begun[k] for k, _ in paired)
    for k, rank in paired:
        floor[mark[k]] = max(floor[mark[k]], begun[k] + delay)
        first, busy_until = rank.first_of_streams(number)[0], rank.first_of_streams(later)[1]
        node = event_graph.base[k] + first
        floor[node] = np.maximum(floor[node], busy_until + event_graph.shift[k] + delay)
    return replace(event_graph, floor=floor)


def of_ranks(job: Job) -> Iterator[RankPairs]:
    """Put each step of a job into the graph of every earlier one that has the same rows."""
    event_graph, ranks = job.event_graph, [step_rows(graph) for graph in job.graphs]
    edge_kind = np.concatenate([graph.edges.kind for graph in job.graphs])
    hosts = [columns["host_ns"] for columns in path_columns(job, job.replay())]
    figures: list[list[tuple[float, float, float]]] = [[] for _ in ranks]
    numbers = sorted({number for rank in ranks for number in rank.rows})
    for number, later in combinations(numbers, 2):
        paired = [k for k, rank in enumerate(ranks) if rank.alike(number, later)]
        if not paired:
            continue
        lender = np.full(len(event_graph.own), NONE, np.int64)
        for k in paired:
            base, rows = event_graph.base[k], ranks[k].rows
            lender[base + rows[number]] = base + rows[later]
        borrowed = lent(event_graph, edge_kind, lender)
        played = run(begun_alike(borrowed, run(borrowed), [(k, ranks[k]) for k in paired], number, later))
        for k in paired:
            rank, base = ranks[k], int(event_graph.base[k])
            place, later_place = rank.place(number), rank.place(later)
            begin = played.start[base + rank.marks.mark[place]]
            # What the host did after its last call is lent as well.
            rest = rank.marks.high[later_place] - rank.graph.ended[rank.last(later)]
            simulated = int(played.end[base + rank.last(number)] - begin + rest)
            whole = max(rank.length(later), 1)
            shares = (simulated / whole - 1, rank.length(number) / whole - 1, hosts[k][later_place] / whole)
            figures[k].append(shares)
    for rank, found in zip(ranks, figures, strict=True):
        path = Path(rank.graph.rows.path)
        error, naive, host = 100 * np.array(found, np.float64).reshape(-1, 3).T
        name = f"{path.parent.name}/{path.name.partition('.')[0]} rank {rank.graph.rows.rank}"
        yield RankPairs(name=name, error=error, naive=naive, host=host)


def of_corpus(corpus: Path) -> Iterator[RankPairs]:
    """Compare the steps of every job of a corpus."""
    for ids in groups(corpus):
        yield from of_ranks(build([without_quiet_calls(read(corpus, trace_id)) for trace_id in ids]))


def of_job(job: Path) -> Iterator[RankPairs]:
    """Compare the steps of a job's traces, simulated together."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        ingest([job], corpus, workers=1)
        yield from of_corpus(corpus)


def summary(name: str, ranks: list[RankPairs]) -> None:
    """Print what the pairs of several ranks come to, and the ranks without a pair that tells."""
    telling = [rank.different for rank in ranks if len(rank.different.error)]
    for rank in ranks:
        if not len(rank.different.error):
            why = (
                f"{len(rank.error)} pairs, all within {DIFFERENT_PCT} %" if len(rank.error) else "no pair of like steps"
            )
            print(f"{rank.name:60.60} {why}")
    if telling:
        left = [np.abs(rank.error).mean() / np.abs(rank.naive).mean() for rank in telling]
        claim(f"{name}: error over that of the guess, median of {len(left)} ranks", float(np.median(left)), "x", 0.5)
        claim(f"{name}: the same, worst rank", float(max(left)), "x", 0.5)


def main(chosen: list[str] | None = None) -> None:
    """Compare the steps of every job, or of some by name, and print."""
    print(f"{'rank':60} pairs   mean %  worst %  guess %   left  host %")
    for folder in SETS:
        ranks: list[RankPairs] = []
        for job in jobs(folder):
            if chosen and job.name not in chosen:
                continue
            for rank in of_job(job):
                if len(rank.different.error):
                    print(rank, flush=True)
                ranks.append(rank)
        if ranks:
            summary(folder.name, ranks)


if __name__ == "__main__":
    main(sys.argv[1:])
