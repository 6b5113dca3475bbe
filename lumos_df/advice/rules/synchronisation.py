"""Calls that make the host wait for the GPU: what if it had gone on."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.callers import callers
from lumos_df.advice.less_work import less_work
from lumos_df.advice.program_words import ProgramWords
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import calls, typical_values
from lumos_df.graph.distinct_texts import distinct
from lumos_df.graph.rows import Rows
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import CPU_OP, MEMCPY, NONE, RUNTIME, SYNC_EDGE

_MOST: Final = 3
"""Operators that are proposed: those whose calls wait longest."""
_ALLOCATES: Final = re.compile(r"^(?:cuda|hip)(?:Malloc|Free)$")
_GIVES_BACK: Final = re.compile(r"^(?:cuda|hip)Free$")
_TO_GPU: Final = re.compile(r"HtoD|HostToDevice")
_READS_NUMBER: Final = re.compile(r"^aten::_local_scalar_dense$")
_ALLOCATOR: Final = "the allocator"
_STEP_END: Final = "the end of a step"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """k calls of one rank that wait for the GPU, once for each edge of theirs from the GPU."""

    edge: NDArray[np.int64]
    """Edge of the job, or NONE where the allocator calls and waits for nothing."""
    node: NDArray[np.int64]
    """Node of the call."""
    waited: NDArray[np.int64]
    """How long the call waited, ns; of the allocator all that it took."""
    copies: NDArray[np.bool_]
    """Whether it issues a copy, which it also does if nobody waits."""
    to_gpu: NDArray[np.bool_]
    """Whether it is for a copy to the GPU."""
    reads: NDArray[np.int64]
    """Node of the operator around it that copies one number to the host, or NONE."""
    made_by: list[str]
    """What made the call: an operator, else the call itself."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose for each of some operators that the host wait no more for the GPU, and the same for the allocator."""
    of_ranks = [_waits(advised, rank) for rank in range(len(advised.graphs))]
    names, group = distinct(name for waits in of_ranks for name in waits.made_by)
    edge, node, waited, copies, to_gpu, reads = (
        np.concatenate([getattr(waits, name) for waits in of_ranks])
        for name in ("edge", "node", "waited", "copies", "to_gpu", "reads")
    )
    _, first = np.unique(node, return_index=True)
    total = np.bincount(group[first], waited[first], len(names))
    for place in np.argsort(-total)[:_MOST].tolist():
        if total[place] >= typical_values.LEAST_PCT / 100 * advised.steps_ns.sum():
            mine = group == place
            between = _between_calls(advised, node[mine]) if names[place] == _ALLOCATOR else np.zeros(0, np.int64)
            taken = int(total[place] + advised.event_graph.lag[between].sum())
            lasts = f"{format_ns(round(taken / len(advised.steps_ns)))} a step"
            made_by = names[place]
            if made_by == _ALLOCATOR:
                what = _less_allocation(advised, lasts)
            else:
                what = _what(made_by, lasts, advised.words, copies_in=float(to_gpu[mine].mean()) > 0.5)
            # What is read at the end of a step has to be read, only less often.
            number = reads[mine & (reads >= 0)] if made_by != _STEP_END else reads[:0]
            yield _remedy(advised, made_by, what, edge[mine], node[mine], copies[mine], number, between)


def _less_allocation(advised: AdvisedJob, lasts: str) -> str:
    """Return what asks the driver for memory, and what makes it ask less."""
    words, only = advised.words, len(np.unique(advised.step_number)) == 1
    if words.torch:
        what, ways = "the allocator calls the driver", [words.keeps_memory] * bool(words.keeps_memory)
        # A library that begins to work gives back memory that it never had.
        emptied = not only and _emptied(advised)
        ways = ["leave out torch.cuda.empty_cache()"] if emptied else [*ways, "leave it more memory"]
    else:
        what, ways = "memory is had from the driver and given back", ["keep it", f"use {words.keeps_memory}"]
    # The first step of a run gets all its memory, and the only one that was recorded may be that.
    first = "warm up first; where it stays, " if only else ""
    return f"{what}, {lasts}: {first}{', or '.join(ways)}"


def _emptied(advised: AdvisedJob) -> bool:
    """Return whether most memory is given back outside of every operator: the program itself asks for that."""
    within = []
    for rows in advised.ranks:
        given = np.flatnonzero(rows.of_kind(RUNTIME) & rows.named(_GIVES_BACK.search)).astype(np.int32)
        within.append(rows.nearest(rows.kind == CPU_OP, given) >= 0)
    inside = np.concatenate(within)
    return 2 * int(np.count_nonzero(inside)) < len(inside)


def _what(made_by: str, lasts: str, words: ProgramWords, *, copies_in: bool) -> str:
    if made_by == _STEP_END:
        return f"the host waits for the GPU at the end of each step, {lasts}: read losses and the like less often"
    if copies_in:
        return f"{made_by} copies to the GPU while the host waits, {lasts}: pinned memory and {words.copies_ahead}"
    if calls.role(made_by) in calls.SYNCHRONISES:
        return f"{made_by} makes the host wait for the GPU, {lasts}: leave it out"
    return f"{made_by} makes the host wait for the GPU, {lasts}: keep what it reads on the GPU, or read it later"


def _remedy(
    advised: AdvisedJob,
    made_by: str,
    what: str,
    edge: NDArray[np.int64],
    node: NDArray[np.int64],
    copies: NDArray[np.bool_],
    reads: NDArray[np.int64],
    between: NDArray[np.int64],
) -> Remedy:
    graph, edge = advised.event_graph, edge[edge >= 0]
    gone = np.zeros(len(graph.own), np.bool_)
    gone[node[~copies]] = True
    # A number that stays on the GPU is not copied, and nobody asks for it.
    part = np.ones(len(graph.own))
    part[reads] = 0
    removed = less_work(advised, np.split(part, graph.base[1:-1]))

    def apply(changed: ChangedGraph) -> None:
        removed.apply(changed)
        changed.own[gone] = 0
        changed.lag[between] = 0
        changed.wait_no_more(edge)

    return Remedy(
        rule="synchronisation",
        what=what,
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(np.unique(node)), 'call')} on {format_count(len(advised.graphs), 'rank')}",
        apply=apply,
        # What one step no longer waits for, a later one may have to.
        once=made_by == _STEP_END,
    )


def _between_calls(advised: AdvisedJob, node: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges that take time between an allocator's calls for one operator, which goes with the calls."""
    graph = advised.event_graph
    gone = np.zeros(len(graph.own), np.bool_)
    gone[node] = True
    around = np.concatenate([rows.parent for rows in advised.ranks])
    same = (around[graph.src] == around[graph.dst]) & (around[graph.dst] >= 0)
    return np.flatnonzero(gone[graph.src] & gone[graph.dst] & same & (graph.lag > 0))


def _waits(advised: AdvisedJob, rank: int) -> _Waits:
    graph = advised.graphs[rank]
    rows, edges = graph.rows, graph.edges
    role = calls.roles(rows.kind, rows.name, rows.names)
    allocates = rows.named(_ALLOCATES.search)
    awaits = np.isin(role, (*calls.SYNCHRONISES, calls.COPY)) | allocates
    edge = np.flatnonzero((edges.kind == SYNC_EDGE) & awaits[edges.dst])
    last = _last_of_steps(rows, advised.played.replays[rank].steps.high, edges.dst[edge])
    simulated = np.zeros(len(rows), np.bool_)
    simulated[graph.order] = True
    driver = np.flatnonzero(allocates & simulated)
    call = np.concatenate((edges.dst[edge], driver)).astype(np.int32)
    edge = np.append(edge + advised.edge_base[rank], np.full(len(driver), NONE))
    # When the recording ends, the host waits for the GPU whatever it did before: so gains are those of a long run.
    kept = ~np.isin(call, last[-1:])
    edge, call = edge[kept], call[kept]
    names = [*rows.names, _ALLOCATOR, _STEP_END]
    made_by, reader = callers(rows, call), rows.nearest(rows.named(_READS_NUMBER.search), call)
    name = np.where(allocates[call], len(rows.names), rows.name[made_by])
    name = np.where(np.isin(call, last), len(rows.names) + 1, name)
    waited = rows.dur[call] - np.where(allocates[call], -graph.idle_before[call], graph.own[call])
    return _Waits(
        edge=edge,
        node=call + advised.event_graph.base[rank],
        waited=waited,
        copies=role[call] == calls.COPY,
        to_gpu=np.isin(made_by, _copies_to_gpu(graph)),
        reads=np.where(reader >= 0, reader + advised.event_graph.base[rank], NONE),
        made_by=[names[place] for place in name.tolist()],
    )


def _copies_to_gpu(graph: TraceGraph) -> NDArray[np.int64]:
    """Return what made the calls that copy to the GPU."""
    rows, launched = graph.rows, graph.gpu.row[graph.gpu.launched]
    copy = launched[rows.named(_TO_GPU.search)[launched] & (rows.kind[launched] == MEMCPY)]
    return callers(rows, rows.parent[copy])


def _last_of_steps(rows: Rows, step_end: NDArray[np.int64], call: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the last of some calls before the end of each step, of which several may have one."""
    by_time = call[np.argsort(rows.ts[call], kind="stable")]
    place = np.searchsorted(rows.ts[by_time], step_end, side="right") - 1
    return by_time[place[place >= 0]]
