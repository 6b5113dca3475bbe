"""Many trace files into one corpus."""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from lumos_df import schema
from lumos_df.errors import CorpusError, LumosError, TraceError
from lumos_df.jit import compiled
from lumos_df.layout import CATALOG
from lumos_df.runner import Report, map_items
from lumos_df.runner import shard as shard_of
from lumos_df.trace import kineto, record, sources, summary, tables
from lumos_df.trace.collectives import collectives
from lumos_df.trace.corpus import Staging, holds, open_for_writing, trace_ids
from lumos_df.trace.derive import derive
from lumos_df.trace.reader import read_trace


@dataclass(frozen=True, slots=True)
class Ingested:
    """A file that went in."""

    path: str
    trace_ids: tuple[str, ...]
    events: int
    operators: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file whose content was in already."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that could not go in."""

    path: str
    message: str
    """One line: file, place, remedy."""


Fate = TypeVar("Fate", Ingested, Skipped, Failed)


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of every file."""

    done: tuple[Ingested, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[Failed, ...]


def ingest(
    paths: Sequence[str | os.PathLike[str]],
    corpus: str | os.PathLike[str],
    *,
    rank: int | None = None,
    job: str | None = None,
    workers: int | None = None,
    shard: tuple[int, int] = (0, 1),
    report: Report | None = None,
) -> IngestResult:
    """Read trace files into a corpus, which is made if it is not there.

    Args:
        paths: files, folders, globs, URLs, or `-` for standard input.
        corpus: the corpus folder.
        rank: rank of the traces, over what the files say; for a single rank's file.
        job: job of the traces; by default the name of each file's folder.
        workers: processes; by default one a CPU, and no more than files.
        shard: (i, n): take only the i-th (from 0) of n parts of the files, for n independent jobs on one corpus.
        report: told how far it is.

    Returns:
        What became of every file; a bad file is a `Failed` and the others still go in.

    Raises:
        LumosError: the corpus cannot be written, or the paths name no file.
    """
    if sources.is_url(os.fspath(corpus)):
        raise CorpusError(
            f"{os.fspath(corpus)}: a corpus is written to a local folder; copy it to the store afterwards"
        )
    folder = Path(corpus)
    expanded, bad = sources.expand([os.fspath(path) for path in paths])
    if not expanded:
        raise TraceError("; ".join(message for _, message in bad))
    files = shard_of(expanded, *shard)
    _open(folder)
    looked_for = bool(trace_ids(folder))
    task = partial(_ingest_one, corpus=folder, rank=rank, job=job, look_first=looked_for)
    if sources.STDIN in files:
        workers = 1  # standard input belongs to this process
    done: dict[int, Ingested] = {}
    skipped: dict[int, Skipped] = {}
    failed = {index - len(bad): Failed(path, message) for index, (path, message) in enumerate(bad)}
    if not compiled():
        _compile()
    for outcome in map_items(task, files, workers=workers, report=report):
        path, value = files[outcome.index], outcome.value
        if isinstance(value, Ingested):
            done[outcome.index] = value
        elif isinstance(value, Skipped):
            skipped[outcome.index] = value
        else:
            failed[outcome.index] = Failed(path, _one_line(path, outcome.error))
    return IngestResult(_in_order(done), _in_order(skipped), _in_order(failed))


def _in_order(found: dict[int, Fate]) -> tuple[Fate, ...]:
    return tuple(found[index] for index in sorted(found))


def _compile() -> None:
    """Compile the scanner once, in this process, before every worker would; it is most of the kernels' time."""
    event = b'{"ph": "X", "ts": 0, "name": "", "cat": "", "args": {}}'
    read_trace(
        cast("sources.Readable", io.BytesIO(b'{"traceEvents": [%b], "end": 0}' % event)), "warm-up", lambda *_: None
    )


def _open(folder: Path) -> None:
    from lumos_df import catalog  # noqa: PLC0415  # DuckDB is needed only for a new corpus

    open_for_writing(folder)
    if not (folder / CATALOG).exists():
        catalog.write_catalog(folder)


def _one_line(path: str, error: Exception | None) -> str:
    if isinstance(error, LumosError):
        text = str(error)
    elif isinstance(error, MemoryError):
        text = "out of memory; give fewer --workers"
    elif isinstance(error, OSError):
        text = f"cannot be written to the corpus ({error.strerror or error}); check the disk's space and permissions"
    else:
        text = f"{type(error).__name__}: {error}; this is a fault of lumos-df, please report it with the file"
    text = " ".join(text.split())
    name = sources.STDIN_NAME if path == sources.STDIN else path
    return text if text.startswith((path, name)) else f"{name}: {text}"


def _ingest_one(path: str, corpus: Path, rank: int | None, job: str | None, *, look_first: bool) -> Ingested | Skipped:
    """Read one file into the corpus."""
    if look_first and path != sources.STDIN and not sources.is_url(path) and holds(corpus, _digest(path)):
        return Skipped(path, "already in the corpus")
    name = sources.STDIN_NAME if path == sources.STDIN else path
    with Staging(corpus) as staging:
        with sources.open_source(path) as stream:
            raw = read_trace(stream, name, staging.add_args)
        staging.close_args()
        if holds(corpus, raw.sha256):
            return Skipped(name, "already in the corpus")
        ranks = kineto.operators(raw, name, rank)
        ids: list[str] = []
        warnings: dict[str, None] = {}
        for ops in ranks:
            trace_id = raw.sha256[: schema.ID_LENGTH] + (f"-r{ops.rank}" if len(ranks) > 1 else "")
            warnings.update(
                dict.fromkeys(
                    _write(staging, trace_id, ops, name, job or sources.job_of(path), len(ranks), first=ops is ranks[0])
                )
            )
            ids.append(trace_id)
        published = sum(staging.publish(trace_id) for trace_id in ids)
        if not published:
            return Skipped(name, "another writer put it into the corpus meanwhile")
    operators = sum(len(ops) for ops in ranks)
    return Ingested(name, tuple(ids), int(raw.counts[record.EVENTS]), operators, tuple(warnings))


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with sources.open_source(path) as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _write(
    staging: Staging, trace_id: str, ops: kineto.Operators, path: str, job: str, ranks: int, *, first: bool
) -> list[str]:
    """Write every table of one rank into the staging folder; return the trace's warnings."""
    derived = derive(ops, summary.resolution(ops))
    found = collectives(ops, derived)
    with staging.writer(trace_id, schema.OPERATORS) as writer:
        for batch in tables.operator_batches(ops, derived, found):
            writer.write_table(batch)
    memory, counters = tables.memory_events(ops), tables.counters(ops)
    staging.write(trace_id, schema.MEMORY_EVENTS, memory)
    staging.write(trace_id, schema.COUNTERS, counters)
    staging.write(trace_id, schema.PROCESS_GROUPS, tables.process_groups(ops, found))
    staging.share_args(trace_id, ops.own)
    row = summary.trace_row(ops, path, job, ranks, memory.num_rows, counters.num_rows, derived.unlaunched, first=first)
    staging.write(trace_id, schema.TRACES, row)
    return [str(warning) for warning in row["warnings"][0]]
