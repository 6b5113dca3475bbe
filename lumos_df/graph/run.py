"""What the commands do: simulate jobs of a corpus and store what comes out."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lumos_df import schema
from lumos_df.base.errors import QueryError
from lumos_df.base.runner import Engine, map_items, results
from lumos_df.graph import critical_path as paths
from lumos_df.graph import replay_warnings, stored_graph
from lumos_df.graph.collective_waits import waits
from lumos_df.graph.exposed_waiting import recorded_waits, simulated_waiting
from lumos_df.graph.host_work import HostWork, host_work
from lumos_df.graph.job import Job, JobTraces, Played, jobs, load
from lumos_df.graph.path_tables import write_gains, write_paths
from lumos_df.graph.replay_by_rank import replay_by_rank
from lumos_df.graph.replayed_tables import replay_columns, write_replay
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.graph.steps import steps
from lumos_df.graph.switches import Change, changed, meant
from lumos_df.schema.codes import NONE

_AT_ONCE: Final = 4_000_000
"""Operators. A job of more is replayed rank by rank: at once, an operator takes some 280 bytes of memory."""


def replay(  # noqa: PLR0913  # each says one thing of the run
    corpus: Path,
    trace: str | None = None,
    step: int | None = None,
    *,
    job: str | None = None,
    path: bool = False,
    gains: bool = False,
    by_class: bool = False,
    engine: Engine | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> list[str]:
    """Simulate every job of a corpus, or that of one trace or name, and store edges, collectives, replays and steps.

    A job of several ranks that has many operators, or for which an engine is given, is replayed rank by rank. What is
    stored is the same.

    Args:
        corpus: the corpus folder.
        trace: id of a trace, or the beginning of it.
        step: a step that there has to be; all are simulated.
        job: name of a job.
        path: also store the critical path of every step.
        gains: also store what every step would gain from faster operators.
        by_class: of ranks that are alike, as `rank_classes.classes` tells them, simulate one for all, rank by rank;
            not with paths or gains.
        engine: where ranks are replayed; None: here, or in processes where ranks are replayed by themselves.
        workers, address: as for `runner.map_items`.

    Returns:
        The ids of the traces.

    Raises:
        LumosError: no such corpus, trace, job or step, or it cannot be read or written.
    """
    found = jobs(corpus, trace, job)
    whole = [one for one in found if not _rank_by_rank(corpus, one, engine, by_class=by_class)]
    seen: set[int] = set()
    at_once = partial(_replay_at_once, corpus, path=path, gains=gains)
    seen.update(*results(map_items(at_once, whole, engine=engine or Engine.SERIAL, workers=workers, address=address)))
    by_rank = partial(map_items, engine=engine or Engine.PROCESSES, workers=workers, address=address)
    seen.update(
        *(
            replay_by_rank(corpus, one.trace_ids, by_rank, path=path, gains=gains, by_class=by_class)
            for one in found
            if one not in whole
        )
    )
    _check_step(corpus, step, seen)
    return [trace_id for one in found for trace_id in one.trace_ids]


def _rank_by_rank(corpus: Path, job: JobTraces, engine: Engine | None, *, by_class: bool) -> bool:
    """Return whether a job's ranks are replayed by themselves; an estimate has its graph, and its collectives."""
    if len(job.trace_ids) == 1 or any(stored_graph.is_estimate(corpus, trace_id) for trace_id in job.trace_ids):
        return False
    return by_class or engine is not None or job.operators > _AT_ONCE


def _replay_at_once(corpus: Path, traces: JobTraces, *, path: bool, gains: bool) -> set[int]:
    """Simulate a job and store what comes out. Return the numbers of its steps."""
    job = load(corpus, traces.trace_ids, traces.doubled)
    played = job.replay()
    works = [host_work(graph) for graph in job.graphs] if path or gains else []
    write_simulated(corpus, job, played, works, path=path, gains=gains)
    return _numbers(played)


def write_simulated(
    corpus: Path, job: Job, played: Played, works: list[HostWork], *, path: bool = True, gains: bool = True
) -> None:
    """Store what the simulation of a job gave, as `replay` does; `works`: its host work, rank by rank."""
    played = played.in_the_long_run()
    slack = paths.slack(played.event_graph, played.run, job.graphs, played.replays)
    write_replay(corpus, job, played, slack)
    if path:
        write_paths(corpus, job, played, works, slack)
    if gains:
        write_gains(corpus, job, played, works)


def what_if(
    corpus: Path, changes: list[Change], trace: str | None = None, step: int | None = None, job: str | None = None
) -> pa.Table:
    """Simulate with changes and return one row a step: the new duration and breakdown beside the old, ns.

    Raises `LumosError` as `replay` does; `QueryError` when a change means no operator.
    """
    rows: list[dict[str, Any]] = []
    for loaded, played, again in _changed(corpus, changes, trace, step, job):
        collectives = waits([graph.rows for graph in loaded.graphs], loaded.instances)
        for place, of_trace in enumerate(replay_warnings.of_traces(loaded)):
            before, after = played.replays[place], again.replays[place]
            waited = recorded_waits(collectives, place, len(before.graph.rows))
            waiting = {
                f"exposed_waiting_ns_{when}": simulated_waiting(simulated, place, replay, waited).tolist()
                for when, simulated, replay in (("replayed", played, before), ("changed", again, after))
            }
            operators = before.graph.rows
            of_step = replay_warnings.of_steps(operators, steps(operators))
            for k, number in enumerate(before.steps.number.tolist()):
                if step is not None and number != step:
                    continue
                old, new = int(before.high[k] - before.low[k]), int(after.high[k] - after.low[k])
                rows.append(
                    {
                        "trace_id": operators.trace_id,
                        "path": operators.path,
                        "job": operators.job,
                        "rank": operators.rank,
                        "step": None if number == NONE else number,
                        "recorded_ns": int(before.steps.high[k] - before.steps.low[k]),
                        "replayed_ns": old,
                        "changed_ns": new,
                        "gain_pct": round(100 * (old - new) / old, 3) if old else 0.0,
                        **{
                            f"{part.name}_ns_{when}": int(getattr(replay.replayed, part.name)[k])
                            for when, replay in (("replayed", before), ("changed", after))
                            for part in schema.STEP_PARTS
                        },
                        **{name: None if ns[k] == NONE else ns[k] for name, ns in waiting.items()},
                        "warnings": of_trace + of_step[k],
                    }
                )
    return pa.Table.from_pylist(rows)


def changed_replays(corpus: Path, changes: list[Change], trace: str | None = None, job: str | None = None) -> pa.Table:
    """Simulate with changes and return one row an operator: trace_id and the columns of `replays`, slack unknown.

    Raises as `what_if` does.
    """
    columns = []
    for _, _, again in _changed(corpus, changes, trace, None, job):
        for replay in again.replays:
            rows = replay_columns(replay, np.full(len(replay.start), UNSET))
            columns.append(pa.table({"trace_id": [replay.graph.rows.trace_id] * len(rows["op_id"]), **rows}))
    return pa.concat_tables(columns)


def _changed(
    corpus: Path, changes: list[Change], trace: str | None, step: int | None, job: str | None
) -> Iterator[tuple[Job, Played, Played]]:
    """Simulate one job after another, without and with changes; at the end raise `QueryError` if one means nothing."""
    used = [False] * len(changes)
    for loaded, played in _jobs(corpus, trace, step, job):
        used = [before or now for before, now in zip(used, meant(loaded.graphs, changes), strict=True)]
        again = loaded.replay(changed(loaded.event_graph, loaded.graphs, changes))
        yield loaded, played.in_the_long_run(), again.in_the_long_run()
    for change, has in zip(changes, used, strict=True):
        if not has:
            see = f"lumos-df sql 'SELECT DISTINCT rank, kind, family, name FROM operators' --corpus {corpus}"
            raise QueryError(f"{corpus}: no operator is meant by '{change.selector}'; see: {see}")


def _jobs(corpus: Path, trace: str | None, step: int | None, job: str | None) -> Iterator[tuple[Job, Played]]:
    """Simulate one job after another; at the end raise `QueryError` if no step had that number."""
    seen: set[int] = set()
    for traces in jobs(corpus, trace, job):
        loaded = load(corpus, traces.trace_ids, traces.doubled)
        played = loaded.replay()
        seen |= _numbers(played)
        yield loaded, played
    _check_step(corpus, step, seen)


def _numbers(played: Played) -> set[int]:
    return {number for replay in played.replays for number in replay.steps.number.tolist()}


def _check_step(corpus: Path, step: int | None, seen: set[int]) -> None:
    """Raise `QueryError` if no step had that number."""
    if step is not None and step not in seen:
        see = f"lumos-df sql 'SELECT trace_id, step FROM step' --corpus {corpus}"
        raise QueryError(f"{corpus}: no step {step}; see: {see}")
