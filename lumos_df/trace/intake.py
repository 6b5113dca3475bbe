"""One trace file into the corpus: read, derive, write, publish."""

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.errors import TraceError
from lumos_df.base.location import is_url
from lumos_df.corpus.layout import DIGEST, MANIFEST, OLD_DIGEST, digest_of_files
from lumos_df.corpus.staging import Staging, create, encode, holds
from lumos_df.corpus.table_files import check_columns, remove_replays_of_job
from lumos_df.trace import formats, origins, recorded_tables, sources
from lumos_df.trace.collectives import collectives
from lumos_df.trace.derive import derive
from lumos_df.trace.execution_trace import fill_shapes, nodes
from lumos_df.trace.malformed import without_malformed
from lumos_df.trace.named_ranges import as_named
from lumos_df.trace.ordered_operators import OrderedOperators, in_order
from lumos_df.trace.ranks import ranks_in_file
from lumos_df.trace.recording import ArgsSink
from lumos_df.trace.result import Ingested, Skipped
from lumos_df.trace.stored_file import Hasher, StoredFile
from lumos_df.trace.trace_row import trace_row

_HASHERS: Final[Mapping[str, Callable[[], Hasher]]] = {DIGEST: xxhash.xxh3_128, OLD_DIGEST: hashlib.sha256}
"""By the digest that a corpus knows its traces by."""
_LARGE: Final = 16 << 20
"""Bytes of a file, unpacked, from which on two threads take less time than one: a few more are read by then."""

_ENCODERS: Final = 2
"""Threads that encode columns; this one derives others meanwhile, and then waits for them."""


def take_in(  # noqa: PLR0913  # each says one thing of the file
    path: str,
    corpus: Path,
    rank: int | None,
    job: str | None,
    *,
    execution: str | None = None,
    step_from: str | None = None,
    rank_from: str | None = None,
    sampled: str | None = None,
    look_first: bool,
    meanwhile: Callable[[], None] | None = None,
) -> Ingested | Skipped:
    """Read one file into the corpus, which is laid out by whoever comes first.

    Args:
        path: file, URL or `-`.
        corpus: the corpus folder, which exists.
        rank: rank of the trace, over what the file says.
        job: job of the trace; by default the name of its folder.
        execution: the PyTorch execution trace of the same run.
        step_from: name of the ranges that are steps, as for `ingest`.
        rank_from: name of the ranges that say the rank, as for `ingest`.
        sampled: what its traces are warned of, because other files of the job are left out.
        look_first: the corpus has traces, so the file's digest is looked up before the file is read.
        meanwhile: called while a large file is read, in the midst of it: there is time for something else.
    """
    if not (corpus / MANIFEST).exists():
        create(corpus)
    else:
        check_columns(corpus)
    hasher = _HASHERS[digest_of_files(corpus)]
    if look_first and not is_url(path) and not sources.is_stream(path) and holds(corpus, _digest(path, hasher())):
        return Skipped(path, _already(rank, job))
    name = sources.STDIN_NAME if path == sources.STDIN else path
    with Staging(corpus) as staging:
        # Before it is opened: of an object that is replaced meanwhile the next ingest finds another version.
        version, before = origins.version_of(path), _written(path)
        with sources.open_source(path) as stream:
            file = StoredFile(stream, name, hasher())
            recording = formats.read(file, _with(meanwhile, file, staging.add_args) if meanwhile else staging.add_args)
            file.drain()
        _check_unwritten(path, before)
        staging.close_args()
        if holds(corpus, file.digest):
            return Skipped(name, _already(rank, job))
        recording = as_named(recording, step_from, rank_from if rank is None else None)
        ranks, rank_warnings = ranks_in_file(recording, name, rank)
        of_file = [*recording.warnings, *rank_warnings]
        if execution and len(ranks) > 1:
            of_file.append(f"{execution}: of one rank, beside a file of {len(ranks)}; left out")
            execution = None
        trace_ids: list[str] = []
        warnings: dict[str, None] = {}
        operators = 0
        for recorded_rank in ranks:
            ops = in_order(recording, recorded_rank)
            if not len(ops) and not recording.tables:
                of_file.append("no event of the file lasts any time: there is nothing to ask about")
            trace_id = file.digest[: schema.ID_LENGTH] + (f"-r{ops.rank.rank}" if len(ranks) > 1 else "")
            staging.write(trace_id, schema.ORIGINS, origins.rows(path, version))
            if execution:
                ops = _paired(ops, execution, staging, trace_id, of_file)
            row = _write(
                staging,
                trace_id,
                ops,
                file=file,
                job=job or sources.job_of(path),
                ranks_in_file=len(ranks),
                warnings=[*of_file, sampled] if sampled else of_file,
                first=not trace_ids,
            )
            # Who asked for a sample is told once of all files.
            warnings |= {warning: None for warning in row["warnings"][0].as_py() if warning != sampled}
            operators += len(ops)
            trace_ids.append(trace_id)
        if look_first:
            # Before the trace is there: a writer that is killed leaves no replay without one of the job's ranks.
            remove_replays_of_job(corpus, job or sources.job_of(path))
        published = sum(staging.publish(trace_id) for trace_id in trace_ids)
        if not published:
            return Skipped(name, "another writer put it into the corpus meanwhile")
    return Ingested(name, tuple(trace_ids), len(recording.event_types), operators, tuple(warnings))


def _with(meanwhile: Callable[[], None], file: StoredFile, sink: ArgsSink) -> ArgsSink:
    """Return a sink that calls `meanwhile` when it gets args of a large file."""

    def both(events: NDArray[np.int32], offsets: NDArray[np.int32], text: NDArray[np.uint8]) -> None:
        if file.taken_bytes >= _LARGE:
            meanwhile()
        sink(events, offsets, text)

    return both


def _paired(
    ops: OrderedOperators, execution: str, staging: Staging, trace_id: str, warnings: list[str]
) -> OrderedOperators:
    """Write what an execution trace adds to a trace, and return the operators with their shapes filled in.

    A bad execution trace costs a warning, which is added to `warnings`, not the trace.
    """
    try:
        execution_nodes = nodes(execution, staging.args_file, ops)
    except TraceError as error:
        warnings.append(" ".join(str(error).split()))
        return ops
    staging.write(trace_id, schema.EXECUTION_NODES, execution_nodes)
    return fill_shapes(ops, execution_nodes)


def _already(rank: int | None, job: str | None) -> str:
    other = " and keeps its rank and job; give others in a new corpus" if rank is not None or job is not None else ""
    return f"already in the corpus{other}"


def _written(path: str) -> tuple[int, int] | None:
    """Return the size of a file and when it was last written, ns; None of what is no file of this machine."""
    if is_url(path) or not Path(path).is_file():
        return None
    state = Path(path).stat()
    return state.st_size, state.st_mtime_ns


def _check_unwritten(path: str, before: tuple[int, int] | None) -> None:
    """Raise `TraceError` where a file is no longer as `_written` returned it before it was read.

    What came after the last event that was read would count as read, and the whole file as known.
    """
    if _written(path) != before:
        raise TraceError(f"{path}: was written to while it was read; ingest it again when it is whole")


def _digest(path: str, hasher: Hasher) -> str:
    with sources.open_source(path) as stream:
        file = StoredFile(stream, path, hasher)
        file.drain()
    return file.digest


def _write(
    staging: Staging,
    trace_id: str,
    ops: OrderedOperators,
    *,
    file: StoredFile,
    job: str,
    ranks_in_file: int,
    warnings: list[str],
    first: bool,
) -> pa.Table:
    """Write every table of one rank into the staging folder; return its row of `traces`."""
    ops, malformed = without_malformed(ops)
    with ThreadPoolExecutor(_ENCODERS, thread_name_prefix="lumos-df-encoder") as encoders:
        recorded = recorded_tables.recorded_columns(ops)
        sets = [encoders.submit(encode, recorded.schema, recorded.row_groups())]
        derived = derive(ops)
        described = collectives(ops, derived)
        sets += [
            encoders.submit(encode, part.schema, part.row_groups(), part.repeats)
            for part in recorded_tables.other_columns(ops, recorded, derived, described)
        ]
        # While they are encoded:
        counters = recorded_tables.counters(ops)
        staging.write(trace_id, schema.MEMORY_EVENTS, recorded_tables.memory_events(ops))
        staging.write(trace_id, schema.COUNTERS, counters)
        staging.write(trace_id, schema.PROCESS_GROUPS, recorded_tables.process_groups(ops, described))
        for table in schema.TABLES:
            if table.name in ops.recording.tables:
                staging.write(trace_id, table, recorded_tables.of_rank(ops.recording.tables[table.name], ops.rank.rank))
        staging.share_args(trace_id, ops.rank.events)
        row = trace_row(
            ops,
            file,
            job,
            ranks_in_file=ranks_in_file,
            counters=counters.num_rows,
            unlaunched=derived.unlaunched,
            warnings=[*warnings, *malformed],
            first=first,
        )
        staging.write(trace_id, schema.TRACES, row)
        staging.write_operators(trace_id, [part.result() for part in sets])
    return row
