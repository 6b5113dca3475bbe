"""A graph with communication that the recording lacks: kernels on streams of their own, behind all other rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges, join
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.rows import Rows
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, EVENT, KERNEL, NONE, STREAM
from lumos_df.schema.plan_words import CP, DP, PP, TP
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.own_links import Lasting
from lumos_df.whatif.rewrite.forward_edges import ordered

GRADIENTS, PARAMETERS, ACTIVATIONS, CONTEXT = "gradients", "parameters", "activations", "keys and values"
_DEGREE_OF: Final = {GRADIENTS: DP, PARAMETERS: DP, ACTIVATIONS: TP, CONTEXT: CP}
"""What added kernels carry, and the place in `plan_words.DIMENSIONS` of what that is for."""


def name_of(word: str, what: str) -> str:
    """Return the name of an added collective: `all_reduce of gradients (modelled)`."""
    return f"{word} of {what} (modelled)"


def degree_of(what: str) -> int:
    """Return the place in `plan_words.DIMENSIONS` of what communication of `what` is for."""
    return _DEGREE_OF[what]


def used_for(name: str) -> int:
    """Return the place in `plan_words.DIMENSIONS` of what kernels of a name are for; other added ones are sends."""
    return next((degree for what, degree in _DEGREE_OF.items() if name.endswith(name_of("", what))), PP)


@dataclass(frozen=True, slots=True)
class AddedKernels:
    """Kernels of communication that a graph gains [k], in the order of their streams."""

    name: NDArray[np.int64]
    """Place in `names`."""
    names: tuple[str, ...]
    collective: tuple[str, ...]
    """Of each name."""
    stream: NDArray[np.int64]
    """From 0, new ones."""
    lasts: NDArray[np.int64]
    """ns."""
    error: NDArray[np.float64]
    """Relative, of that."""
    group_size: NDArray[np.int64]
    in_bytes: NDArray[np.int64]
    begins: NDArray[np.int64]
    """When the recording issued it, ns."""
    after: NDArray[np.int32]
    """[2, k] rows whose end lets it start, NONE for none."""
    lag: NDArray[np.int64]
    """ns from the end of the first of them."""
    before: NDArray[np.int32]
    """Row that waits for it, NONE for none."""

    @classmethod
    def alike(
        cls,
        graph: TraceGraph,
        title: tuple[str, str],
        size: int,
        carried: tuple[NDArray[np.int64], Lasting],
        places: tuple[NDArray[np.int32], NDArray[np.int32]],
    ) -> "AddedKernels":
        """Return collectives of one kind on one stream.

        Args:
            graph: the graph that gains them.
            title: the kind's word, and what they carry.
            size: ranks of the group.
            carried: bytes, as nccl-tests count them, and how long that takes [k].
            places: the row whose end lets each start, NONE for the begin of the recording, and the row that waits for
                it, NONE for none [k].
        """
        after, before = places
        count, (payload, lasting) = len(after), carried
        nothing = np.zeros(count, np.int64)
        return cls(
            name=nothing,
            names=(name_of(*title),),
            collective=title[:1],
            stream=nothing,
            lasts=lasting.ns,
            error=lasting.error,
            group_size=np.full(count, size),
            in_bytes=payload,
            begins=np.where(after >= 0, graph.rows.end[after], graph.rows.ts.min(initial=0)),
            after=np.stack((after, np.full(count, NONE, np.int32))),
            lag=nothing,
            before=before,
        )


def with_modelled(draft: DraftJob, added: Callable[[TraceGraph, NDArray[np.int32], int], AddedKernels]) -> DraftJob:
    """Return a job with kernels that its recording lacks.

    Args:
        draft: the job.
        added: what a graph gains: it is given the graph, the row of its recorded rank that each of its rows is from
            (NONE: none), and the place of that rank.
    """
    graphs, errors = [], []
    for place, (graph, rank) in enumerate(zip(draft.job.graphs, draft.ranks, strict=True)):
        kernels = added(graph, draft.source_of(place), rank)
        graphs.append(with_kernels(graph, kernels))
        errors.append(kernels.error)
    return draft.extended(graphs, errors)


def with_kernels(graph: TraceGraph, what: AddedKernels) -> TraceGraph:
    """Return the graph with these kernels."""
    new = (len(graph.rows) + np.arange(len(what.name))).astype(np.int32)
    latest = np.max(what.after, axis=0)
    columns: dict[str, Any] = {
        "name": what.name,
        "ts": what.begins,
        "dur": what.lasts,
        "stream": what.stream,
        "step": graph.rows.step[np.where(latest >= 0, latest, what.before)],
        "collective": what.name,
        "group_size": what.group_size,
        "in_bytes": what.in_bytes,
    }
    rows = more_rows(graph.rows, len(new), columns, what.names, what.collective)
    made = [
        edges(what.after[0], new, EVENT, what.lag, False),
        edges(what.after[1], new, EVENT, 0, False),
        edges(new, what.before, EVENT, 0, False),
    ]
    return with_rows(graph, rows, made)


def more_rows(
    rows: Rows, count: int, columns: dict[str, Any], names: tuple[str, ...], collectives: tuple[str, ...]
) -> Rows:
    """Return rows with as many kernels of communication behind them.

    Args:
        rows: the rows.
        count: how many kernels.
        columns: what is known of these, by field of `Rows`; `name`, `collective` and `stream` count what is new from 0.
        names: the new names.
        collectives: the new collectives.
    """
    stream, streams = np.asarray(columns["stream"]), len(rows.stream_keys)
    key = int(rows.stream_keys[:, 1].max(initial=NONE)) + 1
    device = int(rows.stream_keys[0, 0]) if streams else 0
    added = [(device, key + number) for number in range(int(stream.max(initial=NONE)) + 1)]
    value: dict[str, Any] = {
        "kind": KERNEL,
        "family": COMMUNICATION,
        "seq_recorded": False,
        **dict.fromkeys(("correlation", "seq", "in_bytes", "wait_stream", "wait_correlation"), rows.null),
        **columns,
        "name": len(rows.names) + columns["name"],
        "collective": len(rows.collectives) + columns["collective"],
        "stream": streams + stream,
    }
    taken: dict[str, Any] = {}
    for name in rows.__slots__:
        column = getattr(rows, name)
        if isinstance(column, np.ndarray) and name not in {"stream_keys", "end"}:
            taken[name] = np.append(column, np.broadcast_to(value.get(name, NONE), count)).astype(column.dtype)
    return replace(
        rows,
        **taken,
        names=[*rows.names, *names],
        collectives=[*rows.collectives, *collectives],
        stream_keys=np.vstack((rows.stream_keys, np.array(added, np.int64).reshape(-1, 2))),
    )


def with_rows(graph: TraceGraph, rows: Rows, made: list[Edges]) -> TraceGraph:
    """Return the graph with the kernels that `rows` has more, one behind the other on their streams, and more edges."""
    old, count = len(graph.rows), len(rows) - len(graph.rows)
    new = (old + np.arange(count)).astype(np.int32)
    turn = np.lexsort((np.arange(count), rows.stream[new]))
    same = rows.stream[new[turn[1:]]] == rows.stream[new[turn[:-1]]]
    before = np.full(count, NONE, np.int32)
    before[turn[1:][same]] = new[turn[:-1][same]]
    every = join([graph.edges, *made, edges(before, new, STREAM, 0, False)])
    itself = np.append(graph.order_target != graph.edges.dst, np.zeros(len(every) - len(graph.edges), np.bool_))
    gpu = _work(graph.gpu, new[turn], before[turn], rows)
    atoms = replace(graph.atoms, of_row=np.append(graph.atoms.of_row, np.full(count, NONE, np.int32)))
    forward_edges, sequence, target, dropped = ordered(rows, atoms, gpu, every, itself)
    return replace(
        graph,
        rows=rows,
        atoms=atoms,
        gpu=gpu,
        edges=forward_edges,
        order=sequence,
        order_target=target,
        own=np.append(graph.own, rows.dur[old:]),
        idle_before=np.append(graph.idle_before, np.zeros(count, np.int64)),
        unknown=np.append(graph.unknown, np.zeros(count, np.int64)),
        dropped=graph.dropped + dropped,
    )


def _work(gpu: GpuStreams, row: NDArray[np.int32], before: NDArray[np.int32], rows: Rows) -> GpuStreams:
    count, old = len(row), len(gpu.bounds) - 1
    none = np.full(count, NONE, np.int32)
    upper = len(gpu.row) + np.searchsorted(rows.stream[row], np.arange(old, len(rows.stream_keys) + 1))
    return GpuStreams(
        row=np.append(gpu.row, row),
        call=np.append(gpu.call, none),
        launched=np.append(gpu.launched, np.zeros(count, np.bool_)),
        before=np.append(gpu.before, before),
        issued=np.append(gpu.issued, np.zeros(count, np.int32)),
        bounds=np.append(gpu.bounds[:-1], upper),
    )
