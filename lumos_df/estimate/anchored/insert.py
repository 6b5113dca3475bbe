"""A graph with communication that the recording lacks: kernels on streams of their own, behind all other rows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos_df.estimate.anchored.rewrite import ordered
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.edges import EVENT, STREAM, edges, join
from lumos_df.graph.gpu import Work
from lumos_df.graph.rows import COMMUNICATION, KERNEL, NONE, Rows


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels that a graph gains [k], in the order of their streams."""

    name: NDArray[np.int64]
    """Place in `names`."""
    names: tuple[str, ...]
    collective: tuple[str, ...]
    """Of each name."""
    stream: NDArray[np.int64]
    """From 0, new ones."""
    lasts: NDArray[np.int64]
    """ns."""
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


def with_kernels(graph: Graph, what: Kernels) -> Graph:
    """Return the graph with these kernels."""
    many, old = len(what.name), len(graph.rows)
    rows = _rows(graph.rows, what)
    new = (old + np.arange(many)).astype(np.int32)
    turn = np.lexsort((np.arange(many), what.stream))
    same = what.stream[turn[1:]] == what.stream[turn[:-1]]
    before = np.full(many, NONE, np.int32)
    before[turn[1:][same]] = new[turn[:-1][same]]
    made = join(
        [
            edges(what.after[0], new, EVENT, what.lag, False),
            edges(what.after[1], new, EVENT, 0, False),
            edges(new, what.before, EVENT, 0, False),
            edges(before, new, STREAM, 0, False),
        ]
    )
    itself = np.append(graph.order_target != graph.edges.dst, np.zeros(len(made), np.bool_))
    gpu = _work(graph.gpu, new[turn], before[turn], rows)
    atoms = replace(graph.atoms, of_row=np.append(graph.atoms.of_row, np.full(many, NONE, np.int32)))
    found, sequence, target, dropped = ordered(rows, atoms, gpu, join([graph.edges, made]), itself)
    return replace(
        graph,
        rows=rows,
        atoms=atoms,
        gpu=gpu,
        edges=found,
        order=sequence,
        order_target=target,
        own=np.append(graph.own, what.lasts),
        ended=np.append(graph.ended, rows.end[old:]),
        idle_before=np.append(graph.idle_before, np.zeros(many, np.int64)),
        dropped=graph.dropped + dropped,
    )


def _rows(rows: Rows, what: Kernels) -> Rows:
    many, streams = len(what.name), len(rows.stream_keys)
    key = int(rows.stream_keys[:, 1].max(initial=-1)) + 1
    device = int(rows.stream_keys[0, 0]) if streams else 0
    added = int(what.stream.max(initial=-1)) + 1
    value: dict[str, Any] = {
        "kind": KERNEL,
        "family": COMMUNICATION,
        "name": len(rows.names) + what.name,
        "ts": what.begins,
        "dur": what.lasts,
        "stream": streams + what.stream,
        "step": rows.step[np.max(what.after, axis=0)] if many else NONE,
        "collective": len(rows.collectives) + what.name,
        "group_size": what.group_size,
        "in_bytes": what.in_bytes,
        "seq_recorded": False,
        **dict.fromkeys(("correlation", "seq", "wait_stream", "wait_correlation"), rows.null),
    }
    taken: dict[str, Any] = {}
    for name in rows.__slots__:
        column = getattr(rows, name)
        if isinstance(column, np.ndarray) and name not in {"stream_keys", "end"}:
            taken[name] = np.append(column, np.broadcast_to(value.get(name, NONE), many)).astype(column.dtype)
    keys = np.vstack((rows.stream_keys, np.array([(device, key + k) for k in range(added)]).reshape(-1, 2)))
    return replace(
        rows,
        **taken,
        names=[*rows.names, *what.names],
        collectives=[*rows.collectives, *what.collective],
        stream_keys=keys,
    )


def _work(gpu: Work, row: NDArray[np.int32], before: NDArray[np.int32], rows: Rows) -> Work:
    many, old = len(row), len(gpu.bounds) - 1
    none = np.full(many, NONE, np.int32)
    upper = len(gpu.row) + np.searchsorted(rows.stream[row], np.arange(old, len(rows.stream_keys) + 1))
    return Work(
        np.append(gpu.row, row),
        np.append(gpu.call, none),
        np.append(gpu.launched, np.zeros(many, np.bool_)),
        np.append(gpu.before, before),
        np.append(gpu.issued, np.zeros(many, np.int32)),
        np.append(gpu.bounds[:-1], upper),
    )
