"""Paths to the ends of steps, followed rank by rank: a way goes back to a collective, or to where it meets another."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate import path_shares as loops
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.graph.step_nodes import last_nodes
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import (
    HOST_PIECE,
    KERNEL,
    KERNEL_PIECE,
    MEMCPY,
    MEMORY_PIECE,
    MEMSET,
    NONE,
    TRANSFER_PIECE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """k ways back in time, cut into p stretches; ns, job time."""

    low: NDArray[np.int64]
    """[k] how far back each is wanted."""
    high: NDArray[np.int64]
    """[k] where it begins."""
    bounds: NDArray[np.int64]
    """[k + 1] where the stretches of each begin, and the end."""
    moment: NDArray[np.int64]
    """[p] when each stretch begins; it ends where the one before it begins."""
    host: NDArray[np.bool_]
    """[p] whether it is host time."""
    inferred: NDArray[np.bool_]
    """[p] whether inferred edges hand it on."""
    kept: NDArray[np.bool_]
    """[p] whether it stays as recorded because nothing explains it."""
    row: NDArray[np.int32]
    """[p] what runs in it, or waits to begin: a row of the trace on which the way is found, or NONE.

    Of the transfer of a collective that is none: it is that of its last member, on whatever trace.
    """
    kind: NDArray[np.int8]
    """[p] place in `schema.words.PIECES`."""
    stop: NDArray[np.int32]
    """[k] the collective with whose way it goes on, or NONE."""
    onto: NDArray[np.int32]
    """[k] the way that it has met and goes on with, or NONE."""

    @classmethod
    def empty(cls) -> Self:
        """Return one way of which nothing is known."""
        times, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        none = np.zeros(1, np.int64)
        return cls(
            low=none,
            high=none,
            bounds=np.zeros(2, np.int64),
            moment=times,
            host=flags,
            inferred=flags,
            kept=flags,
            row=np.zeros(0, np.int32),
            kind=np.zeros(0, np.int8),
            stop=np.full(1, NONE, np.int32),
            onto=np.full(1, NONE, np.int32),
        )

    @classmethod
    def joined(cls, parts: "list[Ways]") -> Self:
        """Return several ways as one."""
        stretches = np.cumsum([0, *(len(part.moment) for part in parts)])
        ways = np.cumsum([0, *(len(part.stop) for part in parts)])
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("low", "high", "moment", "host", "inferred", "kept", "row", "kind", "stop")
        }
        bounds = [part.bounds[1:] + stretches[k] for k, part in enumerate(parts)]
        onto = [np.where(part.onto >= 0, part.onto + ways[k], NONE).astype(np.int32) for k, part in enumerate(parts)]
        return cls(bounds=np.concatenate([np.zeros(1, np.int64), *bounds]), onto=np.concatenate([*onto]), **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedGraph:
    """A simulated event graph, and what paths are asked about its m edges and N nodes."""

    event_graph: EventGraph
    run: Run
    first_edge: NDArray[np.int64]
    """[traces + 1] number of each trace's first edge."""
    edge_kind: NDArray[np.int8]
    """[m]"""
    unknown: NDArray[np.int64]
    """[N] as `TraceGraph.unknown`."""
    recorded: NDArray[np.bool_]
    """[m]"""
    on_host: NDArray[np.bool_]
    """[N]"""
    piece: NDArray[np.int8]
    """[N] which piece a node is while it lasts, a place in `schema.words.PIECES`."""
    numbered: NDArray[np.bool_]
    """[N] whether a member's collective is known by its recorded number."""

    @classmethod
    def of(cls, event_graph: EventGraph, result: Run, graphs: list[TraceGraph]) -> Self:
        """Gather what the graphs of an event graph say of it; its first nodes may be of none of them."""
        others = np.zeros(int(event_graph.base[0]), np.bool_)
        return cls(
            event_graph=event_graph,
            run=result,
            first_edge=np.cumsum([0, *(len(graph.edges) for graph in graphs)]),
            edge_kind=np.concatenate([graph.edges.kind for graph in graphs]),
            unknown=np.concatenate([others.astype(np.int64), *(graph.unknown for graph in graphs)]),
            recorded=np.concatenate([graph.edges.recorded for graph in graphs]),
            on_host=np.concatenate([others, *(~graph.rows.on_gpu for graph in graphs)]),
            piece=_pieces(event_graph, graphs),
            numbered=np.concatenate([others, *(graph.rows.seq_recorded for graph in graphs)]),
        )

    def of_steps(self, replay: Replay, k: int) -> Ways:
        """Return the ways from the ends of the steps of the k-th trace."""
        base, shift = self.event_graph.base[k], self.event_graph.shift[k]
        last = last_nodes(replay.graph, replay.steps, replay.run.end)
        node = np.where(last >= 0, last + base, NONE)
        first = np.full(len(node), base)
        return self._ways(node, first, replay.low + shift, replay.high + shift, from_end=True)

    def from_members(self, member: NDArray[np.int64]) -> Ways:
        """Return the ways from where some nodes start, as far back as known, or empty ones for NONE."""
        base = self.event_graph.base
        high = np.where(member >= 0, self.run.start[member], 0)
        first = base[np.maximum(np.searchsorted(base, member, side="right") - 1, 0)]
        return self._ways(member, first, np.full(len(member), UNSET), high, from_end=False)

    def _ways(
        self,
        node: NDArray[np.int64],
        first: NDArray[np.int64],
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        *,
        from_end: bool,
    ) -> Ways:
        """Return the ways from some nodes; `first`: the first node of the trace of each."""
        graph, run = self.event_graph, self.run
        bounds, moment, host, inferred, kept, owner, kind, stop, onto = loops.ways(
            node,
            np.full(len(node), from_end),
            low,
            high,
            graph.src,
            graph.binds,
            self.edge_kind,
            self.unknown,
            self.recorded,
            self.on_host,
            self.piece,
            self.numbered,
            graph.instance,
            run.start,
            run.end,
            run.start_cause,
            run.end_cause,
        )
        none = (owner < 0) | (kind == TRANSFER_PIECE)
        return Ways(
            low=low,
            high=high,
            bounds=bounds,
            moment=moment,
            host=host,
            inferred=inferred,
            kept=kept,
            row=np.where(none, NONE, owner - np.repeat(first, np.diff(bounds))).astype(np.int32),
            kind=kind,
            stop=stop,
            onto=onto,
        )


def _pieces(event_graph: EventGraph, graphs: list[TraceGraph]) -> NDArray[np.int8]:
    """Return which piece every node is [N]."""
    piece = np.full(len(event_graph.own), HOST_PIECE, np.int8)
    kind = np.concatenate([graph.rows.kind for graph in graphs])
    of_graphs = piece[int(event_graph.base[0]) :]
    of_graphs[kind == KERNEL] = KERNEL_PIECE
    of_graphs[(kind == MEMCPY) | (kind == MEMSET)] = MEMORY_PIECE
    piece[event_graph.instance >= 0] = TRANSFER_PIECE
    return piece


def last_members(graph: EventGraph, result: Run) -> NDArray[np.int64]:
    """Return the member of each collective that was the last to start, or NONE for one without members."""
    last = np.full(len(graph.transfer), NONE)
    node = np.flatnonzero((graph.instance != NONE) & (result.end_cause == NONE))
    last[graph.instance[node]] = node
    return last


def path_shares(of_steps: Ways, of_collectives: Ways, way_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return how much of each step's path is host time, what inferred edges hand on, what nothing explains, ns [steps].

    Args:
        of_steps: the ways from the ends of steps.
        of_collectives: ways from where last members of collectives start.
        way_of: [collectives of the job] which of these is that of each.
    """
    whole = Ways.joined([of_steps, of_collectives])
    shares: tuple[NDArray[np.int64], ...] = loops.shares(
        of_steps.low,
        of_steps.high,
        len(of_steps.low) + way_of,
        whole.bounds,
        whole.moment,
        whole.host,
        whole.inferred,
        whole.kept,
        whole.stop,
        whole.onto,
    )
    return shares
