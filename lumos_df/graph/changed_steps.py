"""How long the steps of a job are after many changes, each by itself: simulated several at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.job import Played
from lumos_df.graph.simulate import backward, forward
from lumos_df.graph.simulate.variants import CHANGES, FACTORS, VARIANTS, simulate_variants
from lumos_df.graph.step_ends import StepEnds, step_ends
from lumos_df.schema.codes import END_END, NONE

SHARES: Final = (0.0, 0.5)
"""What is left of the changed times: one share a variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTimes:
    """What lasts less in which of the changes [c]; nothing is named twice for one change."""

    item: NDArray[np.int64]
    """Node, edge or collective of the event graph."""
    change: NDArray[np.int32]
    times: NDArray[np.int64]
    """[c, len(SHARES)] ns."""

    @classmethod
    def joined(cls, parts: "list[ChangedTimes]", base: NDArray[np.int64]) -> Self:
        """Return several as one; `base`: what to add to the items of each."""
        none = cls(item=np.empty(0, np.int64), change=np.empty(0, np.int32), times=np.empty((0, FACTORS), np.int64))
        every: list[ChangedTimes] = [none, *parts]
        return cls(
            item=np.concatenate([none.item, *(part.item + base[k] for k, part in enumerate(parts))]),
            change=np.concatenate([part.change for part in every]),
            times=np.concatenate([part.times for part in every]),
        )

    def only(self, which: NDArray[Any] | slice) -> Self:
        """Return some of them: their places, or for each whether it is one."""
        return replace(self, item=self.item[which], change=self.change[which], times=self.times[which])

    def by_change(self, moves: NDArray[np.bool_]) -> Self:
        """Return those of some changes, one change after another; `moves`: [changes] which."""
        here = np.flatnonzero(moves[self.change])
        return self.only(here[np.argsort(self.change[here], kind="stable")])

    def within(self, batch: NDArray[np.int64]) -> Self:
        """Return those of the changes from the first to the last of a batch, of such that `by_change` returned."""
        return self.only(slice(*np.searchsorted(self.change, (batch[0], batch[-1] + 1)).tolist()))

    def distinct(self) -> Self:
        """Return each once."""
        _, first = np.unique(np.stack((self.item, self.change)), axis=1, return_index=True)
        return self.only(first)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordered:
    """An event graph whose n nodes are numbered in the order in which they run, its m edges by source."""

    places: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
    """Number of each row of the job, edge and collective, as one sequence: nodes, edges, collectives."""
    pointer: NDArray[np.int32]
    dst: NDArray[np.int32]
    binds: NDArray[np.int8]
    lag: NDArray[np.int64]
    own: NDArray[np.int64]
    floor: NDArray[np.int64]
    instance: NDArray[np.int32]


def changed_steps(
    played: Played, changes: int, nodes: ChangedTimes, edges: ChangedTimes, collectives: ChangedTimes
) -> NDArray[np.int64]:
    """Return how long every step of a job is in every variant, ns [changes, len(SHARES), steps of all traces].

    What the ends of the steps do not follow from changes none of them, so it is not simulated.

    Args:
        played: the job's simulation.
        changes: how many there are.
        nodes: changed durations.
        edges: changed lags.
        collectives: changed transfers.
    """
    graph = played.event_graph
    ends = step_ends(graph, played.replays)
    usual = np.concatenate([replay.high - replay.low for replay in played.replays])
    parts = (nodes, edges, collectives)
    return lengths_of(graph, ends, usual, moving(graph, played.run, ends, changes, parts), parts)


def lengths_of(
    graph: EventGraph,
    ends: StepEnds,
    usual: NDArray[np.int64],
    moves: NDArray[np.bool_],
    parts: Sequence[ChangedTimes],
) -> NDArray[np.int64]:
    """Return how long every step of a job is in every variant, ns [changes, len(SHARES), steps].

    Args:
        graph: the job, or the contracted graphs of its traces.
        ends: the ends of its steps.
        usual: how long they are without changes, ns [steps].
        moves: [changes] which may move any of these ends.
        parts: changed durations, lags and transfers.
    """
    lengths = np.tile(usual, (len(moves), FACTORS, 1))
    simulated = np.flatnonzero(moves)
    # Those that move nothing come last, in a batch that is not simulated.
    number = np.full(len(moves), len(simulated) + CHANGES, np.int32)
    number[simulated] = np.arange(len(simulated))
    ordered = _ordered(graph)
    item = np.concatenate([place[part.item] for place, part in zip(ordered.places, parts, strict=True)])
    change = number[np.concatenate([part.change for part in parts])]
    times = np.concatenate([part.times for part in parts])
    lengths[simulated] = _simulated(graph, ordered, ends, len(simulated), item, change, times)
    return lengths


def moving(
    graph: EventGraph,
    result: Run,
    ends: StepEnds,
    changes: int,
    parts: Sequence[ChangedTimes],
    others: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """Return the changes that may move the end of a step: those of anything that it follows from [changes].

    Args:
        graph, result: a simulation.
        ends: the ends of its steps.
        changes: how many there are.
        parts: as for `lengths_of`.
        others: further nodes that are not to move either.
    """
    # Without marks another row may become the first.
    moves = np.full(changes, len(ends.extent_step) > 0)
    counts = backward.decisive(
        np.concatenate([ends.start_node, ends.end_node, *([] if others is None else [others])]),
        graph.src,
        graph.binds,
        graph.instance,
        len(graph.transfer),
        result.start_cause,
        result.end_cause,
    )
    for part, counted in zip(parts, counts, strict=True):
        moves[part.change[counted[part.item]]] = True
    return moves


def _simulated(
    graph: EventGraph,
    ordered: _Ordered,
    ends: StepEnds,
    changes: int,
    item: NDArray[np.int32],
    change: NDArray[np.int32],
    times: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how long every step is, ns [changes, len(SHARES), steps]; the changes as `simulate_variants` has them."""
    count, items = len(ordered.own), len(ordered.own) + len(ordered.dst) + len(graph.transfer)
    starts, stops = ordered.places[0][ends.start_node], ordered.places[0][ends.end_node]
    kept, raised = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    kept[stops] = True
    raised[ordered.dst[ordered.binds == END_END]] = True
    extent = np.full(count, NONE, np.int32)
    extent[ordered.places[0][ends.gpu_node]] = ends.gpu_extent
    first_time = np.full(items, NONE, np.int32)
    start, end = (np.empty((count, VARIANTS), np.int64) for _ in range(2))
    batches = -(-changes // CHANGES)
    bounds, by_batch = forward.forward_star(np.minimum(change // CHANGES, batches), batches + 1)
    lengths = np.empty((batches, VARIANTS, len(ends.recorded)), np.int64)
    for batch in range(batches):
        here = by_batch[bounds[batch] : bounds[batch + 1]]
        first, last = simulate_variants(
            ordered.pointer,
            ordered.dst,
            ordered.binds,
            ordered.lag,
            ordered.own,
            ordered.floor,
            ordered.instance,
            graph.members,
            graph.transfer,
            raised,
            kept,
            extent,
            len(ends.extent_step),
            item[here],
            (change[here] % CHANGES).astype(np.int8),
            times[here],
            first_time,
            start,
            end,
        )
        lengths[batch] = ends.lengths(start[starts], end[stops], first, last)
    return lengths.reshape(batches * CHANGES, FACTORS, len(ends.recorded))[:changes]


def _ordered(graph: EventGraph) -> _Ordered:
    order = graph.order
    nodes, edges, collectives = len(order), len(graph.src), len(graph.transfer)
    place = np.full(len(graph.own), NONE, np.int32)
    place[order] = np.arange(nodes)
    pointer, edge = forward.forward_star(place[graph.src], nodes)
    edge_place = np.empty(edges, np.int32)
    edge_place[edge] = np.arange(nodes, nodes + edges)
    return _Ordered(
        places=(place, edge_place, np.arange(nodes + edges, nodes + edges + collectives, dtype=np.int32)),
        pointer=pointer,
        dst=place[graph.dst[edge]],
        binds=graph.binds[edge],
        lag=graph.lag[edge],
        own=graph.own[order],
        floor=graph.floor[order],
        instance=graph.instance[order],
    )
