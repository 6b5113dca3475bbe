"""Timelines for ui.perfetto.dev: the recording beside its replay, and the critical path with arrows."""

import gzip
import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

from lumos_df import catalog
from lumos_df.errors import CorpusError
from lumos_df.graph.job import groups
from lumos_df.output import whole_file

_BATCH: Final = 50_000
_SIDES: Final = ("recorded", "replayed", "critical path")


class What(StrEnum):
    """What to export."""

    REPLAY = "replay"
    CRITICAL_PATH = "critical-path"


def export(corpus: Path, what: What, output: Path, trace: str | None = None) -> int:
    """Write a timeline as Chrome trace JSON, compressed where the name ends in `.gz`; return its number of events.

    Times start at 0 with the first operator of a job, the clocks of its ranks aligned. The file appears whole or not at
    all.

    Args:
        corpus: the corpus folder.
        what: which timeline.
        output: the file.
        trace: only the job of the trace of this id, or the beginning of it.

    Raises:
        LumosError: nothing was replayed yet, or the trace is not there.
        OSError: the file cannot be written.
    """
    written = 0
    jobs = groups(corpus, trace)
    with whole_file(output) as draft, _open(draft, compressed=output.suffix == ".gz") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for event in _events(corpus, what, jobs):
            file.write(",\n" if written else "")
            file.write(json.dumps(event, separators=(",", ":")))
            written += 1
        file.write("\n]}\n")
    return written


def _open(path: Path, *, compressed: bool) -> IO[str]:
    return gzip.open(path, "wt", compresslevel=4, encoding="utf-8") if compressed else path.open("w", encoding="utf-8")


def _events(corpus: Path, what: What, jobs: list[list[str]]) -> Iterator[dict[str, Any]]:
    table = "replays" if what is What.REPLAY else "critical_path"
    with catalog.connect(corpus) as connection:
        stored = {name for (name,) in connection.execute(f"SELECT DISTINCT trace_id FROM {table}").fetchall()}
        jobs = [there for job in jobs if (there := [name for name in job if name in stored])]
        if not jobs:
            raise CorpusError(f"{corpus}: nothing to export; first run: lumos-df {what} --corpus {corpus}")
        place = 0
        for job in jobs:
            for trace_id, name, rank, zero in _ranks(connection, job):
                label = f"rank {rank}" if len(jobs) == 1 else f"{name} {trace_id[:8]} rank {rank}"
                for side in range(3 if what is What.CRITICAL_PATH else 2):
                    lanes = _Lanes(place, f"{label} {_SIDES[side]}")
                    yield from lanes.names()
                    if side == 2:
                        yield from _path(connection, trace_id, zero, lanes)
                    else:
                        yield from _timeline(connection, trace_id, zero, lanes, replayed=side == 1)
                    place += 1


def _ranks(connection: Any, job: list[str]) -> list[tuple[str, str, int, int]]:
    """Return (trace_id, job, rank, moment that is 0 on the trace's clock) of a job's traces, by rank."""
    found: list[tuple[str, str, int, int]] = connection.execute(
        """
        WITH started AS (
          SELECT t.trace_id, t.job, t.rank, t.first_ts,
            coalesce(t.clock_origin_ns, 0) - coalesce(c.offset_ns, 0) AS to_job_time
          FROM traces t
          LEFT JOIN clocks c ON c.trace_id = t.trace_id
          WHERE t.trace_id IN (SELECT unnest($job))
        )
        SELECT trace_id, job, rank, coalesce(min(first_ts + to_job_time) OVER () - to_job_time, 0)
        FROM started
        ORDER BY rank, trace_id
        """,
        {"job": job},
    ).fetchall()
    return found


class _Lanes:
    """The lanes of one process of a timeline: slices of a lane nest, so what only overlaps goes to a lane below."""

    def __init__(self, process: int, name: str) -> None:
        self.process = process
        self._name = name
        self._numbers: dict[tuple[str, int], int] = {}
        self._open: dict[int, list[int]] = {}

    def names(self) -> Iterator[dict[str, Any]]:
        """Give the events that name the process and say where it stands."""
        yield self._about("process_name", name=self._name)
        yield self._about("process_sort_index", sort_index=self.process)

    def slice(
        self, lane: str, name: str, kind: str, ts: int, dur: int, args: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Give a slice, and before it the name of its lane if that is new; a lane's slices come by ts, then -dur."""
        depth = 0
        while not self._fits(number := self._numbers.get((lane, depth), -1), ts, dur):
            depth += 1
        if number < 0:
            number = self._numbers[lane, depth] = len(self._numbers)
            yield self._about("thread_name", number, name=lane)
            yield self._about("thread_sort_index", number, sort_index=number)
        self._open.setdefault(number, []).append(ts + dur)
        event = {"ph": "X", "pid": self.process, "tid": number, "name": name, "cat": kind}
        yield event | {"ts": ts / 1000, "dur": dur / 1000, "args": args}

    def _fits(self, number: int, ts: int, dur: int) -> bool:
        """Whether a slice follows, or lies in, what is open on a lane."""
        ends = self._open.get(number, [])
        while ends and ends[-1] <= ts:
            ends.pop()
        return not ends or ts + dur <= ends[-1]

    def _about(self, what: str, lane: int = 0, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "pid": self.process, "tid": lane, "name": what, "args": args}


_LANE: Final = (
    "CASE WHEN o.stream IS NULL THEN 'thread ' || o.thread ELSE 'GPU ' || o.device || ' stream ' || o.stream END"
)


def _timeline(connection: Any, trace_id: str, zero: int, lanes: _Lanes, *, replayed: bool) -> Iterator[dict[str, Any]]:
    side = "r" if replayed else "o"
    found = connection.execute(
        f"""
        SELECT coalesce({_LANE}, 'elsewhere'), o.name, o.kind, {side}.ts - $zero, {side}.dur, r.slack_ns
        FROM operators o
        JOIN replays r ON r.trace_id = o.trace_id AND r.op_id = o.op_id
        WHERE o.trace_id = $trace AND o.kind NOT IN ('python', 'sync', 'other')
        ORDER BY {side}.ts, {side}.dur DESC, o.op_id
        """,
        {"trace": trace_id, "zero": zero},
    )
    while rows := found.fetchmany(_BATCH):
        for lane, name, kind, ts, dur, slack in rows:
            args = {"slack_us": slack / 1000} if replayed and slack is not None else {}
            yield from lanes.slice(lane, name, kind, ts, dur, args)


def _path(connection: Any, trace_id: str, zero: int, lanes: _Lanes) -> Iterator[dict[str, Any]]:
    found = connection.execute(
        f"""
        SELECT 'rank ' || p.on_rank || coalesce(' ' || {_LANE}, ''), coalesce(p.operator, p.kind), p.kind, p.ts - $zero,
          p.dur, p.step, p.piece
        FROM critical_path p
        LEFT JOIN operators o ON o.trace_id = p.on_trace_id AND o.op_id = p.op_id
        WHERE p.trace_id = $trace AND p.dur > 0
        ORDER BY p.ts, p.piece
        """,
        {"trace": trace_id, "zero": zero},
    )
    before: dict[int | None, dict[str, Any]] = {}
    number = lanes.process << 32
    while rows := found.fetchmany(_BATCH):
        for lane, name, kind, ts, dur, step, piece in rows:
            *named, event = lanes.slice(lane, name, kind, ts, dur, {"kind": kind, "step": step, "piece": piece})
            yield from named
            yield event
            if step in before:
                number += 1
                flow = {"cat": "critical path", "name": "critical path", "id": number, "pid": lanes.process}
                yield {"ph": "s", "tid": before[step]["tid"], "ts": before[step]["ts"], **flow}
                yield {"ph": "f", "bp": "e", "tid": event["tid"], "ts": event["ts"], **flow}
            before[step] = event
