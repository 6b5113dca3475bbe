"""From simulations to stored rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.corpus import table_files
from lumos_df.graph import replay_warnings
from lumos_df.graph.collective_instances import ClockSkew
from lumos_df.graph.collective_waits import CollectiveWaits, waits
from lumos_df.graph.edges.collective import waiting_members
from lumos_df.graph.exposed_waiting import recorded_waiting, recorded_waits, simulated_waiting
from lumos_df.graph.job import Job, Played
from lumos_df.graph.matching import collective_columns, write_clock
from lumos_df.graph.path_ways import WalkedGraph, Ways, last_members, path_shares
from lumos_df.graph.replay import Replay
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.graph.steps import steps as steps_of_host
from lumos_df.schema.arrow import each_once
from lumos_df.schema.codes import COLLECTIVE, END_START, NONE, START_END
from lumos_df.schema.words import BINDS, EDGE_KINDS


def words(codes: NDArray[Any], choices: tuple[str, ...] | list[str]) -> pa.Array:
    """Return a column of words by their numbers; NONE is null."""
    place, once = each_once(choices)
    return pa.DictionaryArray.from_arrays(numbers(place[codes]), once)


def numbers(values: NDArray[Any], null: int = NONE) -> pa.Array:
    """Return a column of numbers; `null` is null."""
    return pa.array(values, mask=values == null)


def edge_columns(job: Job, collectives: CollectiveWaits, k: int) -> dict[str, Any]:
    """Return the rows of `edges` of the k-th trace."""
    graph = job.graphs[k]
    # A copying call issues the row that it waits for: stored, what follows the call waits, so no two rows wait for each
    # other.
    binds = np.where(graph.order_target != graph.edges.dst, END_START, graph.edges.binds)
    keep = graph.order_target >= 0
    edges = graph.edges
    member, last = waiting_members(job.event_graph, collectives, k)
    row = collectives.row[member]
    columns: dict[str, NDArray[Any]] = {
        name: np.concatenate((within, between))
        for name, within, between in (
            ("src", edges.src[keep], collectives.row[last]),
            ("dst", graph.order_target[keep], row),
            ("kind", edges.kind[keep], np.full(len(row), COLLECTIVE, np.int8)),
            ("binds", binds[keep], np.full(len(row), START_END, np.int8)),
            ("lag", edges.lag[keep], graph.rows.dur[row] - collectives.waiting[member]),
            ("recorded", edges.recorded[keep], graph.rows.seq_recorded[row]),
            ("src_trace", np.full(np.count_nonzero(keep), k), collectives.trace[last]),
        )
    }
    return {
        "rank": np.full(len(columns["src"]), graph.rows.rank),
        "src": columns["src"],
        "dst": columns["dst"],
        "kind": words(columns["kind"], EDGE_KINDS),
        "binds": words(columns["binds"], BINDS),
        "lag": columns["lag"],
        "evidence": words(columns["recorded"].astype(np.int8), ("inferred", "recorded")),
        "src_trace_id": words(columns["src_trace"], collectives.trace_id),
    }


def _replayed_collectives(job: Job, played: Played, collectives: CollectiveWaits, k: int) -> dict[str, Any]:
    """Return the rows of `collectives` of the k-th trace; those that make a circle are not replayed as such."""
    kernels = collectives.of_trace(k)
    node = job.event_graph.base[k] + collectives.row[kernels]
    instance, end = played.event_graph.instance[node], played.run.end[node]
    apart = instance == NONE
    waited = end - played.run.start[node] - np.append(played.event_graph.transfer, 0)[instance]
    return {
        **collective_columns(collectives, k),
        "waiting_replayed_ns": pa.array(waited, mask=apart),
        "replayed_end": pa.array(end, mask=apart),
    }


def replay_columns(replay: Replay, slack: NDArray[np.int64]) -> dict[str, Any]:
    """Return the rows of `replays` of one trace."""
    rows = replay.graph.rows
    placed = np.flatnonzero(replay.start != UNSET)
    return {
        "rank": np.full(len(placed), rows.rank),
        "op_id": placed,
        "step": numbers(rows.step[placed]),
        # Beside the recorded operators: by the clock that these are recorded by.
        "ts": replay.start[placed] - rows.gpu_shift * rows.on_gpu[placed],
        "dur": replay.end[placed] - replay.start[placed],
        "slack_ns": numbers(slack[placed], UNSET),
    }


def step_columns(replay: Replay, of_trace: list[str]) -> dict[str, Any]:
    """Return the rows of `replay_steps` of one trace; `of_trace`: what each step should warn of besides its own."""
    rows, marks = replay.graph.rows, replay.steps
    steps = len(marks.low)
    row = np.flatnonzero(replay.start != UNSET)
    place = marks.place(rows.step[row])
    row, place = row[place >= 0], place[place >= 0]
    edge_place = marks.place(rows.step[replay.graph.edges.dst])
    apart = np.abs((replay.start[row] - replay.low[place]) - (rows.ts[row] - marks.low[place]))
    carried = replay.low - marks.low
    parts = {
        f"{part.name}_ns_{when}": getattr(breakdown, part.name)
        for when, breakdown in (("recorded", replay.recorded), ("replayed", replay.replayed))
        for part in schema.STEP_PARTS
    }
    return {
        "rank": np.full(steps, rows.rank),
        "step": numbers(marks.number),
        "recorded_ns": marks.high - marks.low,
        "replayed_ns": replay.high - replay.low,
        "unexplained_ns": replay.unexplained,
        "carried_ns": carried - carried[0],
        **_start_errors(apart, place, steps),
        "edges": np.bincount(edge_place[edge_place >= 0], minlength=steps),
        "operators": np.bincount(place, minlength=steps),
        **parts,
        "warnings": [of_trace + of_step for of_step in replay_warnings.of_steps(rows, steps_of_host(rows))],
    }


def _start_errors(apart: NDArray[np.int64], step: NDArray[np.int64], steps: int) -> dict[str, Any]:
    """Return the columns of `replay_steps` that say how far starts are off; `apart`: ns of some rows of each `step`."""
    span = apart.max(initial=0) + 1
    ordered = np.append(np.sort(step * span + apart) % span, 0)
    count = np.bincount(step, minlength=steps)
    first = np.cumsum(count) - count
    columns = {}
    for percent in (50, 99):
        # As `numpy.percentile` has it, for all steps at once.
        at = np.maximum(count - 1, 0) * (percent / 100)
        below = at.astype(np.int64)
        low, high = ordered[first + below], ordered[first + np.minimum(below + 1, np.maximum(count - 1, 0))]
        value = np.round(low + (high - low) * (at - below)).astype(np.int64)
        columns[f"start_error_p{percent}_ns"] = np.where(count > 0, value, 0)
    return columns


def _waiting_columns(played: Played, collectives: CollectiveWaits, k: int) -> dict[str, Any]:
    """Return the columns of `replay_steps` of the k-th trace that say how much communication only waits."""
    replay = played.replays[k]
    rows = replay.graph.rows
    waits_of_rows = recorded_waits(collectives, k, len(rows))
    return {
        "exposed_waiting_ns_recorded": numbers(recorded_waiting(rows, replay.steps, collectives, k)),
        "exposed_waiting_ns_replayed": numbers(simulated_waiting(played, k, replay, waits_of_rows)),
    }


def path_columns(job: Job, played: Played) -> Iterator[dict[str, Any]]:
    """Yield the columns of `replay_steps` that say of what each step's critical path is made, trace by trace."""
    walked = WalkedGraph.of(played.event_graph, played.run, job.graphs)
    of_steps = [walked.of_steps(replay, k) for k, replay in enumerate(played.replays)]
    of_collectives = walked.from_members(last_members(played.event_graph, played.run))
    return share_columns(of_steps, of_collectives, np.arange(len(of_collectives.stop)))


def share_columns(of_steps: list[Ways], of_collectives: Ways, way_of: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """Yield the same from the ways back from the steps of each trace, and from collectives; `way_of`: as there."""
    shares = path_shares(Ways.joined(of_steps), of_collectives, way_of)
    bounds = np.cumsum([len(ways.low) for ways in of_steps])[:-1]
    for host, inferred, unknown in zip(*(np.split(share, bounds) for share in shares), strict=True):
        yield {"host_ns": host, "inferred_ns": inferred, "unknown_ns": unknown}


def write_rank(
    corpus: Path, job: Job, played: Played, collectives: CollectiveWaits, k: int, slack: NDArray[np.int64]
) -> bool:
    """Store edges, collectives and replayed operators of the k-th trace; return whether any differ from before.

    Args:
        corpus: the corpus folder.
        job, played: its job, or the rank alone, and the simulation.
        collectives: how long the kernels of the job, or those of the rank, wait.
        k: number of the trace in all of these.
        slack: ns of its rows.
    """
    trace_id = job.graphs[k].rows.trace_id
    written = (
        (schema.EDGES, edge_columns(job, collectives, k)),
        (schema.COLLECTIVE_MEMBERS, _replayed_collectives(job, played, collectives, k)),
        (schema.REPLAYS, replay_columns(played.replays[k], slack)),
    )
    differ = [table_files.write(corpus, trace_id, table, columns) for table, columns in written]
    return any(differ)


def columns_of_steps(played: Played, collectives: CollectiveWaits, k: int, of_trace: list[str]) -> dict[str, Any]:
    """Return the rows of `replay_steps` of the k-th trace, but for what `path_columns` yields."""
    return step_columns(played.replays[k], of_trace) | _waiting_columns(played, collectives, k)


def write_replay(corpus: Path, job: Job, played: Played, slack: NDArray[np.int64]) -> None:
    """Store edges, collectives, clocks, replayed operators and steps of a job.

    What an earlier replay stored and this one has not goes. Where it differs in anything, so do paths and gains, which
    are of one replay.
    """
    collectives = waits([graph.rows for graph in job.graphs], job.instances)
    warnings = replay_warnings.of_traces(job)
    base = job.event_graph.base
    differs = False
    for k, (graph, of_path) in enumerate(zip(job.graphs, path_columns(job, played), strict=True)):
        differs |= write_rank(corpus, job, played, collectives, k, slack[int(base[k]) : int(base[k + 1])])
        clock = None if job.instances is None else job.instances.clocks[k]
        differs |= write_steps(
            corpus, graph.rows, clock, columns_of_steps(played, collectives, k, warnings[k]) | of_path
        )
    if differs:
        remove_paths(corpus, [graph.rows.trace_id for graph in job.graphs])


def write_steps(corpus: Path, rows: Rows, clock: ClockSkew | None, columns: dict[str, Any]) -> bool:
    """Store the replayed steps and the clock of a trace; return whether any differ from before."""
    differs = table_files.write(corpus, rows.trace_id, schema.REPLAY_STEPS, columns)
    return write_clock(corpus, rows.trace_id, rows.rank, clock) or differs


def remove_paths(corpus: Path, trace_ids: list[str]) -> None:
    """Remove critical paths and gains of an earlier replay."""
    for trace_id in trace_ids:
        table_files.remove(corpus, trace_id, schema.CRITICAL_PATH)
        table_files.remove(corpus, trace_id, schema.GAINS)
