"""Timelines for ui.perfetto.dev: the recording beside its replay, and the critical path with arrows."""

import gzip
import json
import secrets
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from lumos_df import catalog
from lumos_df.errors import CorpusError

_BATCH: Final = 50_000


class What(StrEnum):
    """What to export."""

    REPLAY = "replay"
    CRITICAL_PATH = "critical-path"


def export(corpus: Path, what: What, output: Path, trace: str | None = None) -> int:
    """Write a timeline as Chrome trace JSON, compressed where the name ends in `.gz`; return its number of events.

    Times start at 0 with the first operator of each trace. The file appears whole or not at all.

    Raises:
        LumosError: nothing was replayed yet, or the trace is not there.
        OSError: the file cannot be written.
    """
    draft = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    written = 0
    try:
        with gzip.open(draft, "wt", compresslevel=4) if output.suffix == ".gz" else draft.open("w") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            for event in _events(corpus, what, trace):
                file.write(",\n" if written else "")
                file.write(json.dumps(event, separators=(",", ":")))
                written += 1
            file.write("\n]}\n")
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
    return written


def _events(corpus: Path, what: What, trace: str | None) -> Iterator[dict[str, Any]]:
    chosen = "" if trace is None else "AND starts_with(trace_id, $trace)"
    table = "replays" if what is What.REPLAY else "critical_path"
    with catalog.connect(corpus) as connection:
        ids = connection.execute(
            f"SELECT DISTINCT trace_id, rank FROM {table} WHERE true {chosen} ORDER BY rank, trace_id", _given(trace)
        ).fetchall()
        if not ids:
            raise CorpusError(f"{corpus}: nothing to export; first run: lumos-df {what} --corpus {corpus}")
        for place, (trace_id, rank) in enumerate(ids):
            for side, name in enumerate(("recorded", "replayed", "critical path")):
                yield _label(3 * place + side, f"rank {rank} {name}", 3 * place + side)
            yield from _timeline(connection, trace_id, 3 * place)
            if what is What.CRITICAL_PATH:
                yield from _path(connection, trace_id, 3 * place + 2)


def _given(trace: str | None) -> dict[str, str]:
    return {} if trace is None else {"trace": trace}


def _label(process: int, name: str, order: int) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name, "sort_index": order}}


def _timeline(connection: Any, trace_id: str, process: int) -> Iterator[dict[str, Any]]:
    found = connection.execute(
        """
        SELECT o.name, o.kind, coalesce(o.stream, o.thread, -1), o.ts - t.first_ts, o.dur,
          r.ts - t.first_ts, r.dur, r.slack_ns
        FROM operators o
        JOIN traces t ON t.trace_id = o.trace_id
        JOIN replays r ON r.trace_id = o.trace_id AND r.op_id = o.op_id
        WHERE o.trace_id = $trace AND o.kind NOT IN ('python', 'sync', 'other')
        ORDER BY o.op_id
        """,
        {"trace": trace_id},
    )
    while rows := found.fetchmany(_BATCH):
        for name, kind, lane, ts, dur, replayed, lasted, slack in rows:
            args = {} if slack is None else {"slack_us": slack / 1000}
            yield {
                "ph": "X",
                "pid": process,
                "tid": lane,
                "name": name,
                "cat": kind,
                "ts": ts / 1000,
                "dur": dur / 1000,
            }
            yield {
                "ph": "X",
                "pid": process + 1,
                "tid": lane,
                "name": name,
                "cat": kind,
                "ts": replayed / 1000,
                "dur": lasted / 1000,
                "args": args,
            }


def _path(connection: Any, trace_id: str, process: int) -> Iterator[dict[str, Any]]:
    found = connection.execute(
        """
        SELECT p.kind, coalesce(p.operator, p.kind), p.on_rank, p.ts - t.first_ts, p.dur, p.step, p.piece
        FROM critical_path p
        JOIN traces t ON t.trace_id = p.trace_id
        WHERE p.trace_id = $trace AND p.dur > 0
        ORDER BY p.step, p.piece
        """,
        {"trace": trace_id},
    )
    before: tuple[int, int, float] | None = None
    number = process << 32
    while rows := found.fetchmany(_BATCH):
        for kind, name, rank, ts, dur, step, piece in rows:
            lane = rank
            yield {
                "ph": "X",
                "pid": process,
                "tid": lane,
                "name": name,
                "cat": kind,
                "ts": ts / 1000,
                "dur": dur / 1000,
                "args": {"kind": kind, "piece": piece, "step": step},
            }
            if before is not None and before[0] == step:
                number += 1
                flow = {"cat": "critical path", "name": "critical path", "id": number, "pid": process}
                yield {"ph": "s", "tid": before[1], "ts": before[2], **flow}
                yield {"ph": "f", "bp": "e", "tid": lane, "ts": ts / 1000, **flow}
            before = (step, lane, ts / 1000)
