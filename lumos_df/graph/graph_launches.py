"""Work that one call launched as a CUDA graph: its nodes wait for nodes of it, and the profiler may leave many out.

A stream then seems idle between the rows that were recorded, alike in every launch of the graph. That time is work of
the graph: what is typical at a place of it, among launches that recorded the same rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import gpu_streams, typical_values
from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.typical_values import medians
from lumos_df.schema.codes import EVENT, NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLaunches:
    """The k GPU rows that graph launches started, launch by launch in the order of their starts."""

    place: NDArray[np.int64]
    """Places in `GpuStreams.row`."""
    launch: NDArray[np.int64]
    """Number of the launch."""
    node: NDArray[np.int64]
    """Number of the row's place in its graph, whose launches recorded rows of the same names, stream by stream."""

    @property
    def first(self) -> NDArray[np.bool_]:
        """Which rows are the first of their launch [k]."""
        begins: NDArray[np.bool_] = np.diff(self.launch, prepend=NONE) != 0
        return begins

    def alike(self, gpu: GpuStreams) -> NDArray[np.bool_]:
        """Return which rows of the GPU are of graphs with enough launches to tell what is typical of them [g]."""
        alike = np.zeros(len(gpu.row), np.bool_)
        alike[self.place] = np.bincount(self.node)[self.node] >= typical_values.FEW
        return alike


def graph_launches(rows: Rows, gpu: GpuStreams, graph_call: NDArray[np.bool_]) -> GraphLaunches:
    """Find the rows of graph launches; `graph_call`: which rows are calls that launch a graph [n]."""
    by_stream = np.flatnonzero(gpu.launched & graph_call[rows.parent[gpu.row]])
    by_stream = by_stream[np.argsort(gpu.call[by_stream], kind="stable")]
    if not len(by_stream):
        return GraphLaunches(place=by_stream, launch=by_stream, node=by_stream)
    _, begin, launch = np.unique(gpu.call[by_stream], return_index=True, return_inverse=True)
    launch = launch.reshape(-1)
    position = np.arange(len(by_stream)) - begin[launch]
    names = np.add.reduceat(_spread(packed(rows.name[gpu.row[by_stream]], position)), begin)
    _, graph = np.unique(names, return_inverse=True)
    graph = graph.reshape(-1)[launch]
    _, node = np.unique(packed(graph, position), return_inverse=True)
    by_start = np.lexsort((rows.ts[gpu.row[by_stream]], launch))
    return GraphLaunches(
        place=by_stream[by_start],
        launch=launch[by_start],
        node=node.reshape(-1)[by_start],
    )


def inner_gaps(rows: Rows, gpu: GpuStreams, launches: GraphLaunches, gap: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the gap constants [g] with those between two rows of one launch, ns: what is typical at that place.

    Where another stream's row was the last of the launch to end, the gap is a wait for that one, and nothing else.
    """
    row, before = gpu.row[launches.place], gpu.before[launches.place]
    latest, waits = _awaited(rows, gpu, launches)
    follows = (before >= 0) & (latest >= 0) & (rows.stream[latest] == rows.stream[row])
    typical, known = medians((rows.ts[row] - rows.end[before])[follows], launches.node[follows])
    gaps = gap.copy()
    gaps[launches.place[follows][known]] = typical[known]
    gaps[launches.place[waits]] = 0
    return gaps


def inner_waits(rows: Rows, gpu: GpuStreams, launches: GraphLaunches) -> Edges:
    """Return the edges from stream to stream within launches."""
    latest, waits = _awaited(rows, gpu, launches)
    source, row = latest[waits], gpu.row[launches.place[waits]]
    typical, known = medians(rows.ts[row] - rows.end[source], launches.node[waits])
    return edges(source, row, EVENT, np.where(known, typical, 0), False)


def _awaited(rows: Rows, gpu: GpuStreams, launches: GraphLaunches) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the row of its launch that ended last before each row, or NONE, and whether the row waited for it [k].

    It did if that is a row of another stream, which ended well after the one before on its own.
    """
    row, before = gpu.row[launches.place], gpu.before[launches.place]
    latest = _ended_last(rows, row, launches.launch)
    later = (before < 0) | (rows.end[latest] > rows.end[before] + gpu_streams.LATE_NS)
    return latest, (latest >= 0) & (rows.stream[latest] != rows.stream[row]) & later


def _ended_last(rows: Rows, row: NDArray[np.int32], launch: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return for each of k rows the row of its launch that ended last before it started, or NONE [k]."""
    count = len(row)
    # Ends and starts of a launch in one order, at one moment the ends first; what has no length ends after it starts.
    moment = np.concatenate((rows.end[row], rows.ts[row]))
    turn = np.append(2 * (rows.dur[row] == 0), np.ones(count, np.int64))
    order = np.lexsort((turn, moment, np.tile(launch, 2)))
    last_end = np.maximum.accumulate(np.where(order < count, np.arange(2 * count), NONE))
    start = np.flatnonzero(order >= count)
    asking, ended = order[start] - count, order[np.maximum(last_end[start], 0)]
    latest = np.full(count, NONE, np.int32)
    same = (last_end[start] >= 0) & (launch[np.minimum(ended, count - 1)] == launch[asking])
    latest[asking[same]] = row[ended[same]]
    return latest


def _spread(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return numbers whose sums tell sets of values apart: the finalizer of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
