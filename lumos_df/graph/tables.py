"""From simulations to stored rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.graph import simulate as loops
from lumos_df.graph import store, warnings
from lumos_df.graph.edges import BINDS, COLLECTIVE, KINDS
from lumos_df.graph.job import Job, Played
from lumos_df.graph.meetings import Meetings, meetings
from lumos_df.graph.replay import Replay
from lumos_df.graph.rows import NONE, Rows


def words(codes: NDArray[Any], choices: tuple[str, ...] | list[str]) -> pa.Array:
    """Return a column of words by their numbers; NONE is null."""
    codes = np.asarray(codes, np.int32)
    indices = pa.array(codes, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(choices, pa.string())).cast(pa.string())


def numbers(values: NDArray[Any], null: int = NONE) -> pa.Array:
    """Return a column of numbers; `null` is null."""
    return pa.array(values, mask=values == null)


def edge_columns(job: Job, met: Meetings | None, k: int) -> dict[str, Any]:
    """Return the rows of `edges` of the k-th trace."""
    graph = job.graphs[k]
    found, rows = graph.edges, graph.rows
    src, dst, kind, binds, lag, recorded = (
        found.src,
        graph.order_target,
        found.kind,
        found.binds,
        found.lag,
        found.recorded,
    )
    keep = dst >= 0
    # A copying call issues the row that it waits for: stored, what follows the call waits, so no two rows wait for each
    # other.
    binds = np.where(dst != found.dst, 0, binds)
    src, dst, kind, binds, lag, recorded = src[keep], dst[keep], kind[keep], binds[keep], lag[keep], recorded[keep]
    sources = np.full(len(src), k, np.int32)
    if met is not None:
        late = _late_edges(rows, met, k)
        src, dst, sources = (np.concatenate(pair) for pair in zip((src, dst, sources), late[:3], strict=True))
        lag = np.concatenate((lag, late[3]))
        many = len(late[0])
        kind = np.concatenate((kind, np.full(many, COLLECTIVE, np.int8)))
        binds = np.concatenate((binds, np.full(many, len(BINDS), np.int8)))
        recorded = np.concatenate((recorded, late[4]))
    return {
        "rank": np.full(len(src), rows.rank),
        "src": src,
        "dst": dst,
        "kind": words(kind, KINDS),
        "binds": words(binds, (*BINDS, "start-end")),
        "lag": lag,
        "evidence": words(recorded.astype(np.int8), ("inferred", "recorded")),
        "src_trace_id": words(sources, [graph.rows.trace_id for graph in job.graphs]),
    }


def _late_edges(rows: Rows, met: Meetings, k: int) -> tuple[NDArray[Any], ...]:
    """Return (src, dst, trace of src, lag, recorded) of the k-th trace's members that waited for a later one."""
    own = met.of(k)
    last = met.last[met.instance[own]]
    waited = last != np.arange(own.start, own.stop)
    instance, row, last = met.instance[own][waited], met.row[own][waited], last[waited]
    return met.row[last], row, met.trace[last], met.transfer[instance], rows.seq_recorded[row]


def collective_columns(job: Job, played: Played, met: Meetings | None, k: int) -> dict[str, Any] | None:
    """Return the rows of `collectives` of the k-th trace, or None without any."""
    if met is None:
        return None
    own = met.of(k)
    instance, row = met.instance[own], met.row[own]
    node = int(job.network.base[k]) + row
    rows = job.graphs[k].rows
    transfer = met.transfer[instance]
    lasted = played.run.end[node] - played.run.start[node]
    return {
        "rank": np.full(len(row), rows.rank),
        "instance_id": instance,
        "op_id": row,
        "members": met.size[instance],
        "arrival_ns": met.begin[own] - met.first[instance],
        "waiting_ns": rows.dur[row] - transfer,
        "transfer_ns": transfer,
        "waiting_replayed_ns": lasted - played.network.transfer[instance],
        "replayed_end": played.run.end[node],
    }


def clock_columns(job: Job, k: int) -> dict[str, Any] | None:
    """Return the row of `clocks` of the k-th trace, or None without a job."""
    if job.instances is None:
        return None
    clock = job.instances.clocks[k]
    return {
        "rank": [job.graphs[k].rows.rank],
        "offset_ns": [clock.offset_ns],
        "drift_ppm": [clock.drift_ppm],
        "residual_ns": [clock.residual_ns],
        "collectives": [clock.collectives],
    }


def replay_columns(replay: Replay, slack: NDArray[np.int64]) -> dict[str, Any]:
    """Return the rows of `replays` of one trace."""
    rows = replay.graph.rows
    placed = np.flatnonzero(replay.start != loops.UNSET)
    return {
        "rank": np.full(len(placed), rows.rank),
        "op_id": placed,
        "step": numbers(rows.step[placed]),
        "ts": replay.start[placed],
        "dur": replay.end[placed] - replay.start[placed],
        "slack_ns": numbers(slack[placed], loops.UNSET),
    }


def step_columns(replay: Replay, of_trace: list[str]) -> dict[str, Any]:
    """Return the rows of `replay_steps` of one trace; `of_trace`: what each step should warn of besides its own."""
    rows, marks = replay.graph.rows, replay.steps
    many = len(marks.low)
    edge_step = rows.step[replay.graph.edges.dst]
    placed = replay.start != loops.UNSET
    error = np.zeros((many, 2), np.int64)
    edges = np.zeros(many, np.int64)
    operators = np.zeros(many, np.int64)
    by_step = np.argsort(rows.step, kind="stable")
    bounds = np.searchsorted(rows.step[by_step], np.stack((marks.number, marks.number + 1)))
    to_step = np.bincount(edge_step[edge_step >= 0], minlength=int(marks.number.max()) + 1)
    for k, number in enumerate(marks.number.tolist()):
        own = np.flatnonzero(placed) if number == NONE else by_step[bounds[0, k] : bounds[1, k]]
        own = own[placed[own]]
        off = np.abs((replay.start[own] - replay.low[k]) - (rows.ts[own] - marks.low[k]))
        error[k] = np.percentile(off, (50, 99)).round() if len(own) else 0
        operators[k] = len(own)
        edges[k] = len(edge_step) if number == NONE else to_step[number]
    parts = {
        f"{part}_ns_{when}": getattr(of, part)
        for when, of in (("recorded", replay.recorded), ("replayed", replay.replayed))
        for part in ("exposed_compute", "overlapped", "exposed_communication", "other")
    }
    return {
        "rank": np.full(many, rows.rank),
        "step": numbers(marks.number),
        "recorded_ns": marks.high - marks.low,
        "replayed_ns": replay.high - replay.low,
        "unexplained_ns": replay.unexplained,
        "start_error_p50_ns": error[:, 0],
        "start_error_p99_ns": error[:, 1],
        "edges": edges,
        "operators": operators,
        **parts,
        "warnings": [of_trace + own for own in warnings.of_steps(rows, marks)],
    }


def write_replay(corpus: Path, job: Job, played: Played, slack: NDArray[np.int64]) -> None:
    """Store edges, collectives, clocks, replayed operators and steps of a job.

    What an earlier replay stored and this one has not goes: paths and gains are of one replay, collectives of one job.
    """
    met, told = meetings(job), warnings.of_traces(job)
    for k, replay in enumerate(played.replays):
        one: Rows = replay.graph.rows
        room = slack[int(job.network.base[k]) : int(job.network.base[k + 1])]
        written = (
            (schema.EDGES, edge_columns(job, met, k)),
            (schema.COLLECTIVE_MEMBERS, collective_columns(job, played, met, k)),
            (schema.CLOCKS, clock_columns(job, k)),
            (schema.REPLAYS, replay_columns(replay, room)),
            (schema.REPLAY_STEPS, step_columns(replay, told[k])),
            (schema.CRITICAL_PATH, None),
            (schema.GAINS, None),
        )
        for table, columns in written:
            if columns is None:
                store.remove(corpus, one.trace_id, table)
            else:
                store.write(corpus, one.trace_id, table, columns)
