"""How long the steps of a job are after many changes, each by itself: simulated several at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph
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
    lengths = np.tile(usual, (changes, FACTORS, 1))
    parts = (nodes, edges, collectives)
    moving = _moving(played, ends, changes, parts)
    # Those that move nothing come last, in a batch that is not simulated.
    number = np.full(changes, len(moving) + CHANGES, np.int32)
    number[moving] = np.arange(len(moving))
    ordered = _ordered(graph)
    item = np.concatenate([place[part.item] for place, part in zip(ordered.places, parts, strict=True)])
    change = number[np.concatenate([part.change for part in parts])]
    times = np.concatenate([part.times for part in parts])
    lengths[moving] = _simulated(graph, ordered, ends, len(moving), item, change, times)
    return lengths


def _moving(played: Played, ends: StepEnds, changes: int, parts: Sequence[ChangedTimes]) -> NDArray[np.int64]:
    """Return the changes that may move the end of a step: those of anything that it follows from."""
    graph, result = played.event_graph, played.run
    moves = np.zeros(changes, np.bool_)
    counts = backward.decisive(
        ends.row,
        graph.src,
        graph.binds,
        graph.instance,
        len(graph.transfer),
        result.start_cause,
        result.end_cause,
    )
    for part, counted in zip(parts, counts, strict=True):
        moves[part.change[counted[part.item]]] = True
    # Without marks another row may become the first.
    return np.flatnonzero(moves | (len(ends.extent_step) > 0))


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
    pin = ordered.places[0][ends.row]
    kept, raised = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    kept[pin] = True
    raised[ordered.dst[ordered.binds == END_END]] = True
    extent = np.full(count, NONE, np.int32)
    extent[ordered.places[0][ends.gpu_row]] = ends.gpu_extent
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
        lengths[batch] = ends.lengths(start[pin], end[pin], first, last)
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
