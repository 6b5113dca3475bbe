"""Which operators the host works on in the time between two atoms."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.simulate import threads
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import HANDOFF, NONE, THREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """The host work of one trace: the k edges whose lag it is, each with two stretches of time in which it was done.

    The first lies on the source's thread, from its end until that thread fell idle or gave the sign; the second on the
    target's, from when it was woken until the target began. Without a handoff the second is empty.
    """

    graph: TraceGraph
    edge: NDArray[np.int64]
    """[k]"""
    order: NDArray[np.int64]
    """Rows of the host, thread by thread, by time."""
    at: NDArray[np.int64]
    """[4, k] begin and end of the first stretch and of the second, ns."""
    place: NDArray[np.int64]
    """[4, k] place in `order` of the last row that had begun by then on that thread."""

    def share(self, marked: NDArray[np.bool_], *, everything: bool = False) -> NDArray[np.float64]:
        """Return [m] which part of each edge's lag is work of the marked rows, 0 to 1.

        Args:
            marked: bool [n].
            everything: also count the time between the recorded rows, where the edge's target is marked.
        """
        part = np.zeros(len(self.graph.edges))
        if everything:
            part[self.edge] = marked[self.graph.edges.dst[self.edge]]
        elif marked[self.order].any():
            rows = self.graph.rows
            so_far, reach = threads.busy(self.order, rows.thread, rows.ts, rows.end, marked)
            done = so_far[self.place] - np.maximum(reach[self.place] - self.at, 0)
            worked = done[1] - done[0] + done[3] - done[2]
            part[self.edge] = np.clip(worked / self.graph.edges.lag[self.edge], 0, 1)
        return part


def host_work(graph: TraceGraph) -> HostWork:
    """Find the host work of a trace."""
    rows, atoms, edges, handoffs = graph.rows, graph.atoms, graph.edges, graph.handoffs
    edge = np.flatnonzero(np.isin(edges.kind, (THREAD, HANDOFF)) & (edges.lag > 0))
    src, dst, same_thread = edges.src[edge], edges.dst[edge], edges.kind[edge] == THREAD
    handoff_to = np.full(len(rows), NONE, np.int32)
    handoff_to[handoffs.target] = np.arange(len(handoffs.target))
    handoff = handoff_to[dst]
    has = handoff >= 0
    begin, over = (atoms.ts + atoms.dur)[atoms.of_row[src]], rows.ts[dst]
    stop, woken = over.copy(), over.copy()
    woken[has] = handoffs.woken[handoff[has]]
    stop[has & same_thread] = handoffs.idle[handoff[has & same_thread]]
    stop[has & ~same_thread] = handoffs.signal[handoff[has & ~same_thread]]
    woken = np.minimum(np.where(same_thread, np.maximum(woken, begin), woken), over)
    at = np.stack((begin, np.maximum(stop, begin), woken, over))
    thread = rows.thread[np.stack((src, src, dst, dst))]
    on_host = np.flatnonzero(rows.thread >= 0)
    order = on_host[np.argsort(rows.thread[on_host], kind="stable")]
    place = np.zeros(at.shape, np.int64)
    used, first = np.unique(rows.thread[order], return_index=True)
    bounds = np.append(first, len(order)).tolist()
    for number, low, high in zip(used.tolist(), bounds[:-1], bounds[1:], strict=True):
        begun = rows.ts[order[low:high]]
        on_thread = thread == number
        at[on_thread] = np.maximum(at[on_thread], begun[0])
        place[on_thread] = low + np.searchsorted(begun, at[on_thread], side="right") - 1
    return HostWork(graph=graph, edge=edge, order=order, at=at, place=place)
