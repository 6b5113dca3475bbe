"""Critical paths and gains as stored rows."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.corpus import table_files
from lumos_df.graph.critical_path import step_paths
from lumos_df.graph.gains import Gains, gains
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.job import Job, Played
from lumos_df.graph.path_parts import Parts, parts_of
from lumos_df.graph.path_ways import WalkedGraph
from lumos_df.graph.replayed_tables import numbers, words
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import NONE, UNEXPLAINED_PIECE, UNKNOWN_PIECE, WAIT_PIECE
from lumos_df.schema.words import PIECES


def write_paths(corpus: Path, job: Job, played: Played, works: list[HostWork], slack: NDArray[np.int64]) -> None:
    """Store the critical path of every step of a job.

    Args:
        corpus: the corpus folder.
        job: the job.
        played: its simulation.
        works: the host work of each trace.
        slack: ns of every node, as `critical_path.slack` returns it.
    """
    walked = WalkedGraph.of(played.event_graph, played.run, job.graphs)
    paths = step_paths(walked, played.replays)
    base = job.event_graph.base
    of_trace = [np.flatnonzero(paths.trace == k) for k in range(len(works))]
    parts = Parts.joined(
        [
            parts_of(walked, k, works[k], slack[base[k] : base[k + 1]], paths.pieces(segment))
            for k, segment in enumerate(of_trace)
        ]
    )
    place = np.empty(len(paths.trace), np.int64)
    place[np.concatenate(of_trace)] = np.arange(len(place))
    steps = np.cumsum([0, *(len(replay.low) for replay in played.replays)]).tolist()
    for k, (replay, ways) in enumerate(zip(played.replays, pairwise(steps), strict=True)):
        bounds, segment = paths.of_steps(*ways)
        of_steps = PathSteps(
            trace_id=replay.graph.rows.trace_id,
            rank=replay.graph.rows.rank,
            shift=int(job.event_graph.shift[k]),
            number=replay.steps.number,
            high=replay.high,
            recorded=replay.steps.high - replay.steps.low,
            replayed=replay.high - replay.low,
            bounds=bounds,
        )
        write_path(corpus, of_steps, parts.of(place[segment]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSteps:
    """The steps of a trace, and which segments their paths have; [steps] and ns unless said otherwise."""

    trace_id: str
    rank: int
    shift: int
    """What to add to the trace's time to get job time."""
    number: NDArray[np.int32]
    """As in `Steps`."""
    high: NDArray[np.int64]
    """When each ends, simulated, on the trace's clock."""
    recorded: NDArray[np.int64]
    """How long it took as recorded."""
    replayed: NDArray[np.int64]
    """How long it took in the simulation."""
    bounds: NDArray[np.int64]
    """[steps + 1] where the segments of each begin, and the end."""


def write_path(corpus: Path, steps: PathSteps, parts: Parts) -> None:
    """Store the critical paths of the steps of a trace; `parts`: their segments, one after another."""
    table_files.write(corpus, steps.trace_id, schema.CRITICAL_PATH, _path_columns(steps, parts))


def write_gains(corpus: Path, job: Job, played: Played, works: list[HostWork]) -> None:
    """Store what every step of a job would gain; arguments as for `write_paths`."""
    for replay, gained in zip(played.replays, gains(job, played, works), strict=True):
        rows = replay.graph.rows
        write_trace_gains(corpus, rows.trace_id, rows.rank, replay.steps.number, gained)


def write_trace_gains(corpus: Path, trace_id: str, rank: int, number: NDArray[np.int32], gained: Gains) -> None:
    """Store what the steps of one trace would gain; `number`: [steps] as in `Steps`."""
    table_files.write(corpus, trace_id, schema.GAINS, _gain_columns(rank, number, gained))


def _gain_columns(rank: int, number: NDArray[np.int32], gained: Gains) -> dict[str, Any]:
    """Return the rows of `gains` of one trace."""
    steps, selectors = len(number), len(gained.selectors)
    selector = np.repeat(np.arange(selectors), steps)
    return {
        "rank": np.full(len(selector), rank),
        "step": numbers(np.tile(number, selectors)),
        "what": words(selector, [selector.field for selector in gained.selectors]),
        "value": words(selector, [selector.value for selector in gained.selectors]),
        "time_ns": gained.time.ravel(),
        "gain_ns": gained.none.ravel(),
        "half_gain_ns": gained.half.ravel(),
    }


def _path_columns(steps: PathSteps, parts: Parts) -> dict[str, Any]:
    """Return the rows of `critical_path` of a trace: the parts of each step, and then by what its replay is off."""
    lengths = np.diff(parts.bounds)
    first = parts.bounds[steps.bounds]
    count = np.diff(first) + 1
    step = np.repeat(np.arange(len(count)), count)
    own = np.cumsum(count) - 1
    last = np.zeros(len(step), np.bool_)
    last[own] = True

    def column(values: NDArray[Any], of_last: Any) -> NDArray[Any]:
        """Return a column of all rows from that of the parts."""
        whole = np.empty(len(step), values.dtype)
        whole[~last], whole[last] = values, of_last
        return whole

    own_trace = np.array([trace_id == steps.trace_id for trace_id in parts.trace_id], np.bool_)
    trace = np.repeat(parts.trace, lengths)
    waits = ~own_trace[trace] & (parts.row >= 0) & (parts.kind != UNKNOWN_PIECE)
    kind = np.where(waits | parts.unseen, WAIT_PIECE, parts.kind).astype(np.int8)
    on_trace = column(trace, len(parts.trace_id))
    return {
        "rank": np.full(len(step), np.int32(steps.rank)),
        "step": numbers(steps.number[step]),
        "piece": (np.arange(len(step)) - (own + 1 - count)[step]).astype(np.int32),
        "kind": words(column(kind, UNEXPLAINED_PIECE), PIECES),
        "on_rank": pa.array(
            np.append(parts.rank, np.int32(steps.rank))[on_trace], mask=column(parts.unseen, of_last=False)
        ),
        "on_trace_id": words(on_trace, [*parts.trace_id, steps.trace_id]),
        "op_id": numbers(column(parts.row, NONE)),
        "operator": words(column(parts.text, NONE), parts.texts),
        "family": words(column(parts.family, NONE), schema.FAMILIES),
        "ts": column(parts.begin, steps.high + steps.shift) - steps.shift,
        "dur": column(parts.dur, steps.recorded - steps.replayed),
        "slack_ns": numbers(column(parts.slack, UNSET), UNSET),
    }
