"""Why a step took as long as it did: the chain of work that ends with it, and how much room the rest has.

A path is made of segments of ways, each of which lies on one trace and may be part of many paths.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import EventGraph, Run
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.path_ways import WalkedGraph, Ways, last_members
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate import backward
from lumos_df.graph.simulate import path_shares as loops
from lumos_df.graph.step_nodes import last_nodes, step_nodes
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMembers:
    """The member of each collective of a job that starts last [collectives]."""

    trace: NDArray[np.int32]
    """Place in the job of the trace on which it is."""
    row: NDArray[np.int32]
    """Its row in that trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPieces:
    """The pieces of s segments of one trace: p in all, from first to last; ns, job time."""

    bounds: NDArray[np.int64]
    """[s + 1] where the pieces of each segment begin, and the end."""
    row: NDArray[np.int32]
    """[p] row of the operator: what runs, or what waits to begin; NONE where none is known."""
    kind: NDArray[np.int8]
    """[p] place in `schema.words.PIECES`."""
    begin: NDArray[np.int64]
    """[p]"""
    dur: NDArray[np.int64]
    """[p]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPaths:
    """The paths of the steps of all traces of a job, trace by trace: s segments, each once; ns, job time."""

    trace: NDArray[np.int32]
    """[s] place in the job of the trace on which a segment lies."""
    first: NDArray[np.int64]
    """[s] the stretches that it has: `first:after` of `ways`, the last one first."""
    after: NDArray[np.int64]
    """[s]"""
    until: NDArray[np.int64]
    """[s] when it ends."""
    since: NDArray[np.int64]
    """[s] when it begins."""
    row: NDArray[np.int32]
    """[s] the row whose transfer it is, or NONE where it is none."""
    bounds: NDArray[np.int64]
    """[steps + 1] where the segments of each step begin in `segment`, and the end."""
    segment: NDArray[np.int64]
    """The segments of each step, from first to last."""
    ways: Ways
    """Of all steps and collectives."""

    @classmethod
    def of(cls, of_steps: list[Ways], of_collectives: Ways, way_of: NDArray[np.int64], last: LastMembers) -> Self:
        """Follow the ways of all steps.

        Args:
            of_steps: the ways from the ends of the steps of each trace.
            of_collectives: ways from where last members of collectives start.
            way_of: [collectives of the job] which of these is that of each.
            last: where the way of each collective begins.
        """
        ways = Ways.joined([*of_steps, of_collectives])
        steps = [len(of_trace.low) for of_trace in of_steps]
        count = sum(steps)
        bounds, first, after, until, since, collective = loops.segments(
            ways.low[:count],
            ways.high[:count],
            count + way_of,
            ways.bounds,
            ways.moment,
            ways.kind,
            ways.stop,
            ways.onto,
        )
        code = dense(packed(first, after, until, since))
        any_one = np.empty(int(code.max(initial=NONE)) + 1, np.int64)
        any_one[code] = np.arange(len(code))
        trace_of_way = np.full(len(ways.stop), NONE, np.int32)
        trace_of_way[count + way_of] = last.trace
        trace_of_way[:count] = np.repeat(np.arange(len(steps)), steps)
        first, collective = first[any_one], collective[any_one]
        on_way = trace_of_way[np.searchsorted(ways.bounds, first, side="right") - 1]
        # Within each step from first to last.
        order = np.repeat(bounds[:-1] + bounds[1:] - 1, np.diff(bounds)) - np.arange(len(code))
        return cls(
            trace=np.where(collective >= 0, np.append(last.trace, np.int32(NONE))[collective], on_way),
            first=first,
            after=after[any_one],
            until=until[any_one],
            since=since[any_one],
            row=np.where(collective >= 0, np.append(last.row, np.int32(NONE))[collective], np.int32(NONE)),
            bounds=bounds,
            segment=code[order],
            ways=ways,
        )

    def of_steps(self, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the segments of the paths of some steps of the job, `low` to `high`, and where those of each begin."""
        first, after = self.bounds[low], self.bounds[high]
        return self.bounds[low : high + 1] - first, self.segment[first:after]

    def pieces(self, segment: NDArray[np.int64]) -> SegmentPieces:
        """Return what some segments are made of."""
        first, after = self.first[segment], self.after[segment]
        count = after - first
        bounds = np.cumsum([0, *count])
        stretch = np.repeat(after - 1 + bounds[:-1], count) - np.arange(bounds[-1])
        of_segment = np.repeat(segment, count)
        begin = np.maximum(self.ways.moment[stretch], self.since[of_segment])
        end = np.where(stretch == self.first[of_segment], self.until[of_segment], self.ways.moment[stretch - 1])
        transfer = self.row[of_segment]
        return SegmentPieces(
            bounds=bounds,
            row=np.where(transfer >= 0, transfer, self.ways.row[stretch]),
            kind=self.ways.kind[stretch],
            begin=begin,
            dur=end - begin,
        )


def step_paths(walked: WalkedGraph, replays: list[Replay]) -> StepPaths:
    """Return the paths of all steps of a job that was simulated at once; `replays`: its traces."""
    base = walked.event_graph.base
    member = last_members(walked.event_graph, walked.run)
    trace = np.searchsorted(base, member, side="right") - 1
    return StepPaths.of(
        [walked.of_steps(replay, k) for k, replay in enumerate(replays)],
        walked.from_members(member),
        np.arange(len(member)),
        LastMembers(trace=trace.astype(np.int32), row=(member - base[trace]).astype(np.int32)),
    )


def slack(event_graph: EventGraph, result: Run, graphs: list[TraceGraph], replays: list[Replay]) -> NDArray[np.int64]:
    """Return [N] ns by which each node may begin later without any step ending later; UNSET where unbounded."""
    limit = np.full(len(event_graph.own), backward.FAR)
    for k, (graph, replay) in enumerate(zip(graphs, replays, strict=True)):
        ends = result.end[int(event_graph.base[k]) : int(event_graph.base[k + 1])]
        node, step = step_nodes(graph, replay.steps)
        last = last_nodes(graph, replay.steps, ends)
        limit[int(event_graph.base[k]) + node] = ends[last[step]]
    room, _ = late(event_graph, result, limit)
    return room


def late(event_graph: EventGraph, result: Run, limit: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `simulate.backward.slack` of an event graph and its simulation."""
    room, decided = backward.slack(
        event_graph.order,
        event_graph.pointer,
        event_graph.edge,
        event_graph.dst,
        event_graph.binds,
        event_graph.lag,
        event_graph.own,
        event_graph.instance,
        event_graph.transfer,
        limit,
        result.start,
    )
    return room, decided
