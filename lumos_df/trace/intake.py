"""One trace file into the corpus: read, derive, write, publish."""

import hashlib
import io
from pathlib import Path
from typing import cast

import pyarrow as pa

from lumos_df import schema
from lumos_df.errors import TraceError
from lumos_df.layout import MANIFEST
from lumos_df.trace import kineto, record, sources, summary, tables
from lumos_df.trace.collectives import collectives
from lumos_df.trace.corpus import Staging, create, holds
from lumos_df.trace.derive import derive
from lumos_df.trace.execution import fill_shapes, nodes
from lumos_df.trace.reader import read_trace
from lumos_df.trace.result import Ingested, Skipped


def compile_kernels() -> None:
    """Compile the scanner once, in this process, before every worker would; it is most of the kernels' time."""
    event = b'{"ph": "X", "ts": 0, "name": "", "cat": "", "args": {}}'
    read_trace(
        cast("sources.Readable", io.BytesIO(b'{"traceEvents": [%b], "end": 0}' % event)), "warm-up", lambda *_: None
    )


def take_in(
    path: str, corpus: Path, rank: int | None, job: str | None, *, execution: str | None = None, look_first: bool
) -> Ingested | Skipped:
    """Read one file into the corpus, which is laid out by whoever comes first.

    Args:
        path: file, URL or `-`.
        corpus: the corpus folder, which exists.
        rank: rank of the trace, over what the file says.
        job: job of the trace; by default the name of its folder.
        execution: the PyTorch execution trace of the same run.
        look_first: the corpus has traces, so the file's digest is looked up before the file is read.
    """
    if not (corpus / MANIFEST).exists():
        create(corpus)
    if look_first and path != sources.STDIN and not sources.is_url(path) and holds(corpus, _digest(path)):
        return Skipped(path, _already(rank, job))
    name = sources.STDIN_NAME if path == sources.STDIN else path
    with Staging(corpus) as staging:
        with sources.open_source(path) as stream:
            raw = read_trace(stream, name, staging.add_args)
        staging.close_args()
        if holds(corpus, raw.sha256):
            return Skipped(name, _already(rank, job))
        ranks = kineto.operators(raw, name, rank)
        beside = _execution_nodes(execution, staging, ranks) if execution else None
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
        if beside is not None:
            staging.write(ids[0], schema.EXECUTION_NODES, beside)
        published = sum(staging.publish(trace_id) for trace_id in ids)
        if not published:
            return Skipped(name, "another writer put it into the corpus meanwhile")
    operators = sum(len(ops) for ops in ranks)
    return Ingested(name, tuple(ids), int(raw.counts[record.EVENTS]), operators, tuple(warnings))


def _execution_nodes(execution: str, staging: Staging, ranks: list[kineto.Operators]) -> pa.Table | None:
    """Return what an execution trace adds, its shapes filled in; a bad one costs a warning, not the trace."""
    if len(ranks) > 1:
        ranks[0].raw.warnings.append(f"{execution}: of one rank, beside a file of {len(ranks)}; left out")
        return None
    try:
        found = nodes(execution, staging.args_file, ranks[0])
    except TraceError as error:
        ranks[0].raw.warnings.append(" ".join(str(error).split()))
        return None
    fill_shapes(ranks[0], found)
    return found


def _already(rank: int | None, job: str | None) -> str:
    other = " and keeps its rank and job; give others in a new corpus" if rank is not None or job is not None else ""
    return f"already in the corpus{other}"


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
