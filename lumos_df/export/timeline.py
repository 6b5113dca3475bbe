"""Timelines for ui.perfetto.dev: a job as it ran, with arrows, and under it its replay and critical path."""

import gzip
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.base.errors import CorpusError
from lumos_df.corpus import catalog
from lumos_df.corpus.output import whole_file
from lumos_df.export import ExportKind
from lumos_df.export.counter_tracks import COUNTERS
from lumos_df.export.job_ranks import ExportedRank, ranks
from lumos_df.export.kernels.lanes import depths
from lumos_df.export.sides import LAUNCHES, NEXT, PATH, RECORDED, simulated
from lumos_df.graph import run
from lumos_df.graph.job import groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from lumos_df.graph.switches import Change

_BATCH: Final = 1 << 17


def export(
    corpus: Path,
    what: ExportKind,
    output: Path,
    trace: str | None = None,
    changes: "Sequence[Change]" = (),
    job: str | None = None,
) -> int:
    """Write a timeline as Chrome trace JSON, compressed where the name ends in `.gz`; return its number of events.

    Times start at 0 with the first operator of a job, the clocks of its ranks aligned as far as a replay has told them.
    The file appears whole or not at all.

    Args:
        corpus: the corpus folder.
        what: which timeline; not CHAKRA.
        output: the file.
        trace: only the job of the trace of this id, or the beginning of it.
        changes: for PERFETTO, what to change in a replay that is shown, too.
        job: only the job of this name.

    Raises:
        LumosError: nothing was replayed yet where that is shown, the trace or job is not there, a change means no
            operator.
        OSError: the file cannot be written.
    """
    jobs = groups(corpus, trace, job)
    changed = run.changed_replays(corpus, list(changes), trace, job) if changes else None
    with catalog.connect(corpus) as connection:
        if changed is not None:
            connection.register("_changed", changed)
        jobs = _stored(connection, corpus, what, jobs)
        with whole_file(output) as draft, _open(draft, compressed=output.suffix == ".gz") as file:
            writer = _Writer(connection, file)
            for trace_ids in jobs:
                for rank in ranks(connection, trace_ids):
                    of_job = f"{rank.job} {rank.trace_id[:8]} " if len(jobs) > 1 else ""
                    _write_rank(writer, rank, f"{of_job}rank {rank.rank}", what, changed=changed is not None)
            file.write(b"\n]}\n")
            return writer.events


def _stored(
    connection: "duckdb.DuckDBPyConnection", corpus: Path, what: ExportKind, jobs: list[list[str]]
) -> list[list[str]]:
    """Return the jobs of which there is what is asked for."""
    if what is ExportKind.PERFETTO:
        return jobs
    table = "replays" if what is ExportKind.REPLAY else "critical_path"
    stored = {name for (name,) in connection.execute(f"SELECT DISTINCT trace_id FROM {table}").fetchall()}
    jobs = [kept for job in jobs if (kept := [trace_id for trace_id in job if trace_id in stored])]
    if not jobs:
        raise CorpusError(f"{corpus}: nothing to export; first run: lumos-df {what} --corpus {corpus}")
    return jobs


@contextmanager
def _open(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    """Open a draft for writing; what is packed says neither the draft's name nor the time, so it is alike each time."""
    with path.open("wb") as plain:
        if not compressed:
            yield plain
            return
        with gzip.GzipFile("", "wb", compresslevel=4, fileobj=plain, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # it writes bytes


def _write_rank(writer: "_Writer", rank: ExportedRank, label: str, what: ExportKind, *, changed: bool) -> None:
    sources = "SELECT count(*) FROM operator_sources WHERE trace_id = $trace"
    (estimated,) = writer.connection.execute(sources, {"trace": rank.trace_id}).fetchall()[0]
    process = writer.process(rank, f"{label} {'estimated' if estimated else 'recorded'}", RECORDED, LAUNCHES)
    writer.counters(process, rank)
    if what is not ExportKind.PERFETTO:
        writer.process(rank, f"{label} replayed", simulated("replays", "c.waiting_replayed_ns"), LAUNCHES)
    elif changed:
        writer.process(rank, f"{label} changed", simulated("_changed", "NULL"), LAUNCHES)
    if what is ExportKind.CRITICAL_PATH:
        writer.process(rank, f"{label} critical path", PATH, NEXT)


class _Writer:
    """Writes processes one after another: their names, slices and arrows."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection", file: IO[bytes]) -> None:
        self.connection = connection
        self.events = 0
        self._file = file
        # Processes and lanes are counted together, from 1: a lane with the number of a process is that process's main
        # thread to Perfetto, 0 is an idle CPU, and slices that come to overlap there are dropped.
        self._numbers = itertools.count(1)
        self._arrows = 0
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')

    def process(self, rank: ExportedRank, name: str, slices: str, arrows: str) -> int:
        """Write a process with the slices of a query, and arrows between them (src, dst: their keys).

        Returns:
            its number.
        """
        parameters = {"trace": rank.trace_id, "zero": rank.zero}
        rows = self.connection.sql(f"{slices} ORDER BY ts, dur DESC, key", params=parameters).to_arrow_table()
        ts, dur = rows["ts"].to_numpy(), rows["dur"].to_numpy()
        lane = rows["lane"].combine_chunks().dictionary_encode()
        lane = lane.combine_chunks() if isinstance(lane, pa.ChunkedArray) else lane
        codes = lane.indices.to_numpy().astype(np.int64)
        depth = depths(codes, ts, ts + dur, len(lane.dictionary))
        # Lanes are numbered as they appear, those below one another as well.
        room = int(depth.max(initial=0)) + 1
        _, first, place = np.unique(codes * room + depth, return_index=True, return_inverse=True)
        process = next(self._numbers)
        number = np.empty(len(first), np.int64)
        number[np.argsort(first)] = [*itertools.islice(self._numbers, len(first))]
        self.connection.register("_placed", _numbered(rows, number[place.reshape(-1)]))
        self._write(
            """
            WITH about AS (
              SELECT $pid AS tid, 'process_name' AS what, 'name' AS key, to_json($name) AS value
              UNION ALL
              SELECT $pid, 'process_sort_index', 'sort_index', to_json($pid)
              UNION ALL
              SELECT tid, 'thread_name', 'name', to_json(any_value(lane)) FROM _placed GROUP BY tid
              UNION ALL
              SELECT DISTINCT tid, 'thread_sort_index', 'sort_index', to_json(tid) FROM _placed
            )
            SELECT '{"ph":"M","pid":' || $pid || ',"tid":' || tid || ',"name":"' || what || '","args":{"' || key || '":'
              || value || '}}'
            FROM about
            ORDER BY what, tid
            """,
            {"pid": process, "name": name},
        )
        slice_texts = self._texts(
            f"""
            SELECT '{{"ph":"X","pid":' || $pid || ',"tid":' || tid || ',"name":' || to_json(name) || ',"cat":"' || kind
              || '","ts":' || {_micros("ts")} || ',"dur":' || {_micros("dur")} || ',"args":' || args || '}}'
            FROM _placed
            ORDER BY place
            """,
            {"pid": process},
        )
        starts, ends, src, dst = self._arrow_points(process, rank, arrows)
        # An end of an arrow belongs to the innermost slice that is open when it is read: it stands right behind its
        # own, before what begins at the same moment, and the second end never before the first.
        last = np.maximum(src, dst)
        order = np.concatenate((3 * np.arange(len(slice_texts)), 3 * src + 1, 3 * last + 2)).argsort(kind="stable")
        texts = pa.concat_arrays([slice_texts, starts, ends])
        for begin in range(0, len(texts), _BATCH):
            self._append(texts.take(pa.array(order[begin : begin + _BATCH])).to_pylist())
        self.connection.unregister("_placed")
        return process

    def counters(self, process: int, rank: ExportedRank) -> None:
        """Write the counters of a trace: to Perfetto a track each, named by the event and by the key of its value."""
        self._write(
            f"""
            SELECT '{{"ph":"C","pid":' || $pid || ',"tid":' || $pid || ',"name":' || to_json(track) || ',"ts":'
              || {_micros("ts")} || ',"args":{{' || to_json(series) || ':' || value || '}}}}'
            FROM ({COUNTERS})
            """,
            {"pid": process, "trace": rank.trace_id, "zero": rank.zero},
        )

    def _arrow_points(
        self, process: int, rank: ExportedRank, arrows: str
    ) -> tuple[pa.Array, pa.Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return the two ends of arrows from the start of a slice to that of one that does not begin before it.

        Returns:
            (texts of the first ends, of the second ends, place of the first slices, of the second ones).
        """
        ends = self.connection.sql(
            f"""
            WITH
            arrow AS ({arrows}),
            forward AS (
              SELECT a.name, s.tid AS src_tid, s.ts AS src_ts, s.place AS src, d.tid AS dst_tid, d.ts AS dst_ts,
                d.place AS dst, $before + row_number() OVER (ORDER BY d.place, s.place) AS id
              FROM arrow a
              JOIN _placed s ON s.key = a.src
              JOIN _placed d ON d.key = a.dst
              WHERE s.ts <= d.ts
            ),
            told AS (
              SELECT *, '"name":"' || name || '","cat":"' || name || '","id":' || id || ',"pid":' || $pid AS said
              FROM forward
            )
            SELECT
              '{{"ph":"s",' || said || ',"tid":' || src_tid || ',"ts":' || {_micros("src_ts")} || '}}' AS first,
              '{{"ph":"f","bp":"e",' || said || ',"tid":' || dst_tid || ',"ts":' || {_micros("dst_ts")} || '}}'
                AS second,
              src, dst
            FROM told
            ORDER BY id
            """,
            params={"trace": rank.trace_id, "pid": process, "before": self._arrows},
        ).to_arrow_table()
        self._arrows += len(ends)
        return _array(ends["first"]), _array(ends["second"]), ends["src"].to_numpy(), ends["dst"].to_numpy()

    def _texts(self, query: str, parameters: dict[str, Any]) -> pa.Array:
        return _array(self.connection.sql(query, params=parameters).to_arrow_table().column(0))

    def _write(self, query: str, parameters: dict[str, Any]) -> None:
        """Write the events that a query gives as texts."""
        result = self.connection.sql(query, params=parameters).to_arrow_reader(_BATCH)
        for batch in result:
            self._append(batch.column(0).to_pylist())

    def _append(self, texts: list[str]) -> None:
        self._file.write((",\n" if self.events else "\n").encode())
        self._file.write(",\n".join(texts).encode())
        self.events += len(texts)


def _numbered(rows: pa.Table, tid: NDArray[np.int64]) -> pa.Table:
    """Return slices with the number of their lane and their place in the file."""
    return rows.append_column("tid", pa.array(tid)).append_column("place", pa.array(np.arange(len(rows))))


def _array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _micros(column: str) -> str:
    """Return SQL for nanoseconds as microseconds, to the last digit."""
    sign = f"CASE WHEN {column} < 0 THEN '-' ELSE '' END"
    return f"{sign} || (abs({column}) // 1000) || '.' || lpad((abs({column}) % 1000)::VARCHAR, 3, '0')"
