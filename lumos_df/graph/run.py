"""What the commands do: simulate jobs of a corpus and store what comes out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lumos_df import schema
from lumos_df.errors import QueryError
from lumos_df.graph import critical_path as paths
from lumos_df.graph import store, warnings
from lumos_df.graph.job import Job, Played, doubled, groups, load
from lumos_df.graph.rows import NONE, Rows
from lumos_df.graph.simulate import UNSET
from lumos_df.graph.tables import numbers, replay_columns, words, write_replay
from lumos_df.graph.whatif import Change, changed, gains, meant

_PARTS = ("exposed_compute", "overlapped", "exposed_communication", "other")


def replay(corpus: Path, trace: str | None = None, step: int | None = None, *, path: bool = False) -> list[str]:
    """Simulate every job of a corpus, or that of one trace, and store edges, collectives, replays and steps.

    Args:
        corpus: the corpus folder.
        trace: id of a trace, or the beginning of it.
        step: a step that there has to be; all are simulated.
        path: also store the critical path of every step, and what it would gain from faster operators.

    Returns:
        The ids of the traces.

    Raises:
        LumosError: no such corpus, trace or step, or it cannot be read or written.
    """
    done = []
    for job, played in _jobs(corpus, trace, step):
        slack = paths.slack(played.network, played.run, job.graphs, played.replays)
        write_replay(corpus, job, played, slack)
        if path:
            _write_paths(corpus, job, played, slack)
        done += [graph.rows.trace_id for graph in job.graphs]
    return done


def what_if(corpus: Path, changes: list[Change], trace: str | None = None, step: int | None = None) -> pa.Table:
    """Simulate with changes and return one row a step: the new duration and breakdown beside the old, ns.

    Raises `LumosError` as `replay` does; `QueryError` when a change means no operator.
    """
    rows: list[dict[str, Any]] = []
    for job, played, again in _changed(corpus, changes, trace, step):
        for before, after, told in zip(played.replays, again.replays, warnings.of_traces(job), strict=True):
            one = before.graph.rows
            of_step = warnings.of_steps(one, before.steps)
            for k, number in enumerate(before.steps.number.tolist()):
                if step is not None and number != step:
                    continue
                old, new = int(before.high[k] - before.low[k]), int(after.high[k] - after.low[k])
                rows.append(
                    {
                        "trace_id": one.trace_id,
                        "path": one.path,
                        "rank": one.rank,
                        "step": None if number == NONE else number,
                        "recorded_ns": int(before.steps.high[k] - before.steps.low[k]),
                        "replayed_ns": old,
                        "changed_ns": new,
                        "gain_pct": round(100 * (old - new) / old, 3) if old else 0.0,
                        **{
                            f"{part}_ns_{when}": int(getattr(of.replayed, part)[k])
                            for when, of in (("replayed", before), ("changed", after))
                            for part in _PARTS
                        },
                        "warnings": told + of_step[k],
                    }
                )
    return pa.Table.from_pylist(rows)


def changed_replays(corpus: Path, changes: list[Change], trace: str | None = None) -> pa.Table:
    """Simulate with changes and return one row an operator: trace_id and the columns of `replays`, slack unknown.

    Raises as `what_if` does.
    """
    columns = []
    for _, _, again in _changed(corpus, changes, trace, None):
        for replay in again.replays:
            rows = replay_columns(replay, np.full(len(replay.start), UNSET))
            columns.append(pa.table({"trace_id": [replay.graph.rows.trace_id] * len(rows["op_id"]), **rows}))
    return pa.concat_tables(columns)


def _changed(
    corpus: Path, changes: list[Change], trace: str | None, step: int | None
) -> Iterator[tuple[Job, Played, Played]]:
    """Simulate one job after another, without and with changes; at the end raise `QueryError` if one meant nothing."""
    used = [False] * len(changes)
    for job, played in _jobs(corpus, trace, step):
        used = [before or now for before, now in zip(used, meant(job.graphs, changes), strict=True)]
        yield job, played, job.replay(changed(job.network, job.graphs, changes))
    for change, has in zip(changes, used, strict=True):
        if not has:
            see = f"lumos-df sql 'SELECT DISTINCT rank, kind, family, name FROM operators' --corpus {corpus}"
            raise QueryError(f"{corpus}: no operator is meant by '{change.of}'; see: {see}")


def _jobs(corpus: Path, trace: str | None, step: int | None) -> Iterator[tuple[Job, Played]]:
    """Simulate one job after another; at the end raise `QueryError` if no step had that number."""
    found = groups(corpus, trace)
    seen: set[int] = set()
    twice = doubled(corpus)
    for ids in found:
        job = load(corpus, ids, twice[ids[0]])
        played = job.replay()
        seen.update(number for replay in played.replays for number in replay.steps.number.tolist())
        yield job, played
    if step is not None and step not in seen:
        see = f"lumos-df sql 'SELECT trace_id, step FROM step' --corpus {corpus}"
        raise QueryError(f"{corpus}: no step {step}; see: {see}")


def _write_paths(corpus: Path, job: Job, played: Played, slack: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    every = gains(job, played)
    found = paths.critical_paths(played.network, played.run, job.graphs, played.replays)
    for k, replay in enumerate(played.replays):
        numbers_of = replay.steps.number.tolist()
        columns = [
            _path_columns(job, k, number, path, slack) for number, path in zip(numbers_of, found[k], strict=True)
        ]
        whole = {name: pa.concat_arrays([column[name] for column in columns]) for name in columns[0]}
        store.write(corpus, replay.graph.rows.trace_id, schema.CRITICAL_PATH, whole)
        many = len(numbers_of)
        store.write(
            corpus,
            replay.graph.rows.trace_id,
            schema.GAINS,
            {
                "rank": [replay.graph.rows.rank] * many * len(every[k]),
                "step": [None if number == NONE else number for _ in every[k] for number in numbers_of],
                "what": [gain.of.field for gain in every[k] for _ in range(many)],
                "value": [gain.of.value for gain in every[k] for _ in range(many)],
                "time_ns": [int(value) for gain in every[k] for value in gain.time],
                "gain_ns": [int(value) for gain in every[k] for value in gain.none],
                "half_gain_ns": [int(value) for gain in every[k] for value in gain.half],
            },
        )


_WAIT = len(paths.PIECES)


def _path_columns(
    job: Job, k: int, number: int, path: paths.Path, slack: np.ndarray[Any, np.dtype[np.int64]]
) -> dict[str, pa.Array]:
    many = len(path.row)
    name = np.full(many, None, object)
    family = np.full(many, NONE, np.int8)
    for other in np.unique(path.trace).tolist():
        rows = job.graphs[other].rows
        here = np.flatnonzero((path.trace == other) & (path.row >= 0))
        family[here] = rows.family[path.row[here]]
        name[here] = np.array([*rows.names, None], object)[_name(rows, path.row[here], path.kind[here])]
    node = job.network.base[path.trace] + np.maximum(path.row, 0)
    room = np.full(many, np.iinfo(np.int64).min)
    room[path.row >= 0] = slack[node[path.row >= 0]]
    kind = np.where((path.trace != k) & (path.row >= 0), _WAIT, path.kind)
    return {
        "rank": pa.array(np.full(many, job.graphs[k].rows.rank, np.int32)),
        "step": numbers(np.full(many, number, np.int32)),
        "piece": pa.array(np.arange(many, dtype=np.int32)),
        "kind": words(kind, (*paths.PIECES, "wait")),
        "on_rank": pa.array(np.array([graph.rows.rank for graph in job.graphs], np.int32)[path.trace]),
        "on_trace_id": words(path.trace, [graph.rows.trace_id for graph in job.graphs]),
        "op_id": numbers(path.row),
        "operator": pa.array(name, pa.string()),
        "family": words(family, schema.FAMILIES),
        "ts": pa.array(path.ts),
        "dur": pa.array(path.dur),
        "slack_ns": pa.array(room, mask=room < -(1 << 61)),
    }


def _name(rows: Rows, row: np.ndarray[Any, Any], kind: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which name a piece goes by: host work by the operator around it."""
    around = rows.parent[row]
    host = (kind == paths.HOST) & (around >= 0) & (rows.thread[row] >= 0)
    return np.asarray(rows.name[np.where(host, around, row)])
