"""Collectives that threads of the host do, as gloo's, and what passes on other threads meanwhile."""

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host_work import HostWork
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import ordinals
from lumos_df.schema.codes import ANNOTATION, THREAD
from lumos_df.schema.collective_kinds import POINT_TO_POINT


def host_collectives(rows: Rows) -> NDArray[np.int64]:
    """Return the annotations of the host in which a collective runs [k]; where there is a GPU, it runs there."""
    if rows.on_gpu.any():
        return np.empty(0, np.int64)
    return np.flatnonzero((rows.kind == ANNOTATION) & (rows.collective >= 0) & (rows.thread >= 0))


def met(ranks: list[Rows]) -> tuple[NDArray[np.int64], ...]:
    """Return of each row of a collective its rank, itself, how long it waits, ns, and the rank that was last [k].

    A collective has the same name and place in its step on all ranks. The member that lasts shortest came last.
    """
    names = {name: place for place, name in enumerate(sorted({name for rows in ranks for name in rows.names}))}
    # What one rank sends another receives: neither is the same row on both.
    found = [
        each[~rows.of_collective(POINT_TO_POINT)[each]]
        for rows, each in zip(ranks, map(host_collectives, ranks), strict=True)
    ]
    rank = np.repeat(np.arange(len(found)), [len(each) for each in found])
    row = np.concatenate(found)
    columns = [
        (
            np.array([names[name] for name in rows.names])[rows.name[each]],
            rows.step[each],
            rows.ts[each],
            rows.dur[each],
        )
        for rows, each in zip(ranks, found, strict=True)
        if len(each)
    ]
    if not columns:
        return row, row, row, row
    name, step, ts, dur = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((ts, rank))
    turn = np.empty(len(row), np.int64)
    turn[order] = ordinals(packed(rank, name, step)[order])
    instance = dense(packed(name, step, turn))
    common = np.bincount(instance) == len(found)
    shortest = np.lexsort((dur, instance))
    first = shortest[np.searchsorted(instance[shortest], np.arange(len(common)))]
    kept = common[instance] & (step >= 0)
    instance = instance[kept]
    return rank[kept], row[kept], (dur[kept] - dur[first][instance]), rank[first][instance]


def meanwhile(host: HostWork, row: NDArray[np.int64], first_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which part of each edge's lag passes in the first so many ns of some rows, ns [edges of the trace].

    Args:
        host: the trace's host work.
        row: rows of it [k].
        first_ns: how much of each [k].
    """
    graph = host.graph
    part = np.zeros(len(graph.edges), np.int64)
    if not len(row):
        return part
    order = np.argsort(graph.rows.ts[row], kind="stable")
    begin = graph.rows.ts[row][order]
    end = begin + first_ns[order]
    # Of rows that run at once the later ones go on where those before end.
    begin = np.maximum(begin, np.append(begin[:1], np.maximum.accumulate(end)[:-1]))
    lasts = np.maximum(end - begin, 0)
    moments = np.stack((begin, begin + lasts), axis=1).ravel() - begin[0]
    passed = np.stack((np.cumsum(lasts) - lasts, np.cumsum(lasts)), axis=1).ravel()
    over, since = (np.interp(host.at[which] - begin[0], moments, passed) for which in (3, 0))
    lag = graph.edges.lag[host.edge]
    inside = np.minimum(np.round(over - since).astype(np.int64), lag)
    part[host.edge] = np.where(graph.edges.kind[host.edge] == THREAD, inside, 0)
    return part


def waited(host: HostWork, collective: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return how much of each edge's lag its thread waits for collectives of the host, ns [edges of the trace].

    A thread that goes on after a collective has waited for it since it fell silent, also while nobody ran it yet,
    since it was in a queue.

    Args:
        host: the trace's host work.
        collective: rows of collectives; by default all of the host.
    """
    rows, lag = host.graph.rows, host.graph.edges.lag
    collective = host_collectives(rows) if collective is None else collective
    waits = meanwhile(host, collective, rows.dur[collective])
    if not len(collective):
        return waits
    ends = np.sort(rows.end[collective])
    last = np.searchsorted(ends, host.at[3], side="right") - 1
    until = np.where(last >= 0, ends[last], host.at[0]) - host.at[0]
    edge = host.edge[host.graph.edges.kind[host.edge] == THREAD]
    until = until[host.graph.edges.kind[host.edge] == THREAD]
    waits[edge] = np.clip(until, waits[edge], lag[edge])
    return waits
