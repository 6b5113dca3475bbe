"""What a CUDA graph does before the first and after the last row that a profiler recorded of a launch.

Between two launches only the sum of both shows. So they are told apart one after another: tails where a row of no graph
waited behind a launch, heads where no unknown tail ran in front, then the tails and heads that these leave.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.graph.graph_launches import GraphLaunches
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.simulate import forward
from lumos_df.graph.typical_values import OfClasses
from lumos_df.schema.codes import NONE, STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedNodes:
    """Work of CUDA graphs around the rows that were recorded of each launch."""

    head: NDArray[np.int64]
    """[n] Before the first row of a launch, ns."""
    tail: NDArray[np.int64]
    """[n] After the last row of a launch on its stream, ns."""
    last: NDArray[np.int64]
    """[n] Node with which a launch ends on its stream, as `GraphLaunches.node`; NONE for other rows."""
    launch: NDArray[np.int64]
    """[n] Number of the launch that a row is of, or NONE."""
    any: bool
    """Whether there is a launch."""

    def between(self, to_starts: Edges) -> Edges:
        """Return edges to beginnings with that work in their lags; within a launch there is no tail."""
        if not self.any:
            return to_starts
        leaves = self.launch[to_starts.src] != self.launch[to_starts.dst]
        tail = np.where(leaves, self.tail[to_starts.src], 0)
        return replace(to_starts, lag=to_starts.lag + tail + self.head[to_starts.dst])


def unrecorded_nodes(
    rows: Rows, gpu: GpuStreams, launches: GraphLaunches, to_starts: Edges, ended: NDArray[np.int64], typical: OfClasses
) -> UnrecordedNodes:
    """Find the heads and tails that launches of one graph have alike.

    Args:
        rows, gpu, launches: the trace.
        to_starts: the edges to beginnings.
        ended: [n] when each node of the execution graph ended as recorded, ns.
        typical: what to take of launches that are alike.
    """
    count = len(rows)
    if not len(launches.place):
        nothing, no = (np.broadcast_to(np.int64(value), count) for value in (0, NONE))
        return UnrecordedNodes(head=nothing, tail=nothing, last=no, launch=no, any=False)
    launch, first, last = np.full((3, count), NONE, np.int64)
    row = gpu.row[launches.place]
    launch[row] = launches.launch
    first[row] = np.where(launches.first, launches.node, NONE)
    following = np.append(gpu.row[1:], NONE)
    ends = (rows.stream[following] != rows.stream[gpu.row]) | (launch[following] != launch[gpu.row])
    ends[-1] = True
    last[row] = np.where(ends[launches.place], launches.node, NONE)
    begins = _beginnings(rows, gpu, to_starts, ended, (launch, first, last))
    head_of, tail_of = begins.around(int(launches.node.max()) + 1, typical)
    return UnrecordedNodes(head=_work(head_of, first), tail=_work(tail_of, last), last=last, launch=launch, any=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beginnings:
    """Rows that begin a launch, and rows of no launch behind one on its stream; k entries."""

    node: NDArray[np.int64]
    """Node with which the row's launch begins, or NONE."""
    ahead: NDArray[np.int64]
    """Node with which a launch in front of the row ended, or NONE."""
    start: NDArray[np.int64]
    """ns."""
    behind: NDArray[np.int64]
    """When the row in front on the stream would have let it start, ns."""
    ready: NDArray[np.int64]
    """When all that it waits for would have let it start, ns."""

    def around(self, nodes: int, typical: OfClasses) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the head and the tail of each node, ns; NONE where the launches do not tell."""
        unknown = np.full(nodes, NONE, np.int64)
        tail = self._tails(unknown, unknown, typical)
        certain = (self.ahead < 0) | (tail[self.ahead] >= 0)
        head = self._heads(unknown, tail, certain, typical)
        tail = self._tails(tail, head, typical)
        return self._heads(head, tail, np.ones_like(certain), typical), tail

    def _heads(
        self, known: NDArray[np.int64], tail: NDArray[np.int64], tells: NDArray[np.bool_], typical: OfClasses
    ) -> NDArray[np.int64]:
        tells = tells & (self.node >= 0)
        ready = np.maximum(self.ready, self.behind + _work(tail, self.ahead))
        return _learned(known, self.node[tells], (self.start - ready)[tells], typical)

    def _tails(self, known: NDArray[np.int64], head: NDArray[np.int64], typical: OfClasses) -> NDArray[np.int64]:
        # What was ready when the launch seemed over, waited for the tail.
        start = self.start - _work(head, self.node)
        tells = (self.ready <= self.behind) & (self.ahead >= 0) & ((self.node < 0) | (head[self.node] >= 0))
        return _learned(known, self.ahead[tells], (start - self.behind)[tells], typical)


def _beginnings(
    rows: Rows,
    gpu: GpuStreams,
    to_starts: Edges,
    ended: NDArray[np.int64],
    of_launches: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> _Beginnings:
    """Collect the beginnings; `of_launches`: each row's launch, node that begins one, node that ends one, or NONE."""
    launch, first, last = of_launches
    ahead = np.where(gpu.before >= 0, last[gpu.before], NONE)
    chosen = (first[gpu.row] >= 0) | ((ahead >= 0) & (launch[gpu.row] < 0))
    row = gpu.row[chosen]
    ready, behind = np.full((2, len(rows)), -FAR)
    forward.release(to_starts.src, to_starts.dst, to_starts.binds, to_starts.lag, rows.ts, ended, ready)
    stream = to_starts.kind == STREAM
    behind[to_starts.dst[stream]] = ended[to_starts.src[stream]] + to_starts.lag[stream]
    return _Beginnings(node=first[row], ahead=ahead[chosen], start=rows.ts[row], behind=behind[row], ready=ready[row])


def _learned(
    known: NDArray[np.int64], node: NDArray[np.int64], work: NDArray[np.int64], typical: OfClasses
) -> NDArray[np.int64]:
    """Return the work of each node: as known, else what is typical of its launches, else NONE; ns."""
    value, enough = typical(work, node)
    learned = np.full(len(known), NONE, np.int64)
    learned[node[enough]] = np.maximum(value[enough], 0)
    return np.where(known >= 0, known, learned)


def _work(of_node: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the work of each entry's node, ns; none where there is no node, or where it is not known."""
    return np.where(node >= 0, np.maximum(of_node[node], 0), 0)
