"""From which operators a change takes time: the rows that it shortens in the job's graph, added up by name."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Remedy
from lumos_df.graph.distinct_texts import distinct
from lumos_df.graph.issued_before import issued_before
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import FAR
from lumos_df.schema.codes import NONE

SIDES: Final = ("gpu", "launch", "host", "wait")
"""GPU rows; what passes before them, latency of launches and gaps; work of the host; calls that wait for the GPU."""


def evidence(advised: AdvisedJob, remedy: Remedy) -> dict[str, list[Any]]:
    """Return the columns of `advice_rows` of one change, without its place: a row a side and name.

    A row of the graph takes its own time, a communication kernel its transfer, and a call that waits no more what it
    waited. What passes between two rows is called after the one that it leads to. It is less where steps without the
    profiler were timed.
    """
    graph = advised.event_graph
    changed = ChangedGraph.of(graph)
    remedy.apply(changed)
    lag = advised.without_profiler(ChangedGraph.of(graph)).lag
    changed = advised.without_profiler(changed)
    gpu, dur, moved = (
        np.concatenate([getattr(rows, column) for rows in advised.ranks]) for column in ("on_gpu", "dur", "in_bytes")
    )
    member = graph.instance != NONE
    taken = np.where(member, np.append(graph.transfer, 0)[graph.instance], graph.own)
    less = np.where(member, np.append(graph.transfer - changed.transfer, 0)[graph.instance], graph.own - changed.own)
    unwaited = (changed.lag <= -FAR) & (lag > -FAR)
    spared = np.where(unwaited, 0, np.maximum(lag, 0) - np.maximum(changed.lag, 0))
    # What was issued before the recording is of none of its steps.
    early = np.concatenate([issued_before(rows) for rows in advised.ranks])
    less[early] = 0
    spared[early[graph.dst]] = 0
    # Only what simulates takes time.
    node, edge = np.sort(graph.order[less[graph.order] != 0]), np.flatnonzero(spared)
    wait = np.unique(graph.dst[unwaited])
    wait = wait[~gpu[wait]]
    idle = np.concatenate([of_rank.idle_before for of_rank in advised.graphs])
    waited = np.maximum(dur[wait] - graph.own[wait], 0) + idle[wait]
    row = np.concatenate((node, graph.dst[edge], wait))
    side = np.concatenate((np.where(gpu[node], 0, 2), np.where(gpu[graph.dst[edge]], 1, 2), np.full(len(wait), 3)))
    between = np.repeat([0, 1, 0], [len(node), len(edge), len(wait)])
    columns = (
        np.concatenate((taken[node], lag[edge], waited)),
        np.concatenate((less[node], spared[edge], waited)),
        np.where((side == 0) & (moved[row] > 0), moved[row], 0),
    )
    return _added_up(side, between, *_names(advised, row), columns, len(advised.steps_ns))


def _names(advised: AdvisedJob, row: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the place of the name of each node of the job [rows], and the names."""
    texts, called = distinct(name for rows in advised.ranks for name in rows.names)
    first = np.cumsum([0, *(len(rows.names) for rows in advised.ranks[:-1])])
    of_rank = [called[begin + rows.name] for begin, rows in zip(first.tolist(), advised.ranks, strict=True)]
    return np.concatenate(of_rank)[row], texts


def _added_up(
    side: NDArray[np.int64],
    between: NDArray[np.int64],
    name: NDArray[np.int64],
    texts: list[str],
    columns: tuple[NDArray[np.int64], ...],
    steps: int,
) -> dict[str, list[Any]]:
    """Return the sums a step of times taken, times spared and bytes, by side and name."""
    key = packed(side, between, name)
    _, first, kind, rows = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    taken, less, moved = (
        [round(total / steps) for total in np.bincount(kind, values, len(first)).tolist()] for values in columns
    )
    return {
        "side": [SIDES[place] for place in side[first].tolist()],
        "name": [
            f"before {text}" if leads else text
            for text, leads in zip(
                [texts[place] for place in name[first].tolist()], between[first].tolist(), strict=True
            )
        ],
        "rows": rows.tolist(),
        "taken_ns": taken,
        "less_ns": less,
        "moved_bytes": moved,
    }
