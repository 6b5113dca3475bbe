"""Chakra execution traces (https://github.com/mlcommons/chakra, schema 0.0.4): one file a rank.

A file is a `GlobalMetadata` and then one `Node` after another, each behind its length as a varint. Names, numbers and
types of the fields are those of `schema/protobuf/et_def.proto`; attributes are written with the types that Chakra's
feeder reads them as. An operator's node has its op_id + 1 for an id: 0 is the node that lists the process groups, because
ASTRA-sim issues what depends on nothing in the order of ids.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lumos_df import catalog
from lumos_df.errors import CorpusError, LumosError, QueryError
from lumos_df.export import wire
from lumos_df.export.nodes import Edges, Nodes, Operators, nodes
from lumos_df.export.ranks import Rank, ranks
from lumos_df.graph.job import groups
from lumos_df.layout import ESTIMATE
from lumos_df.output import whole_file
from lumos_df.schema import GPU_KINDS

if TYPE_CHECKING:
    import duckdb

SCHEMA: Final = "0.0.4"
_BATCH: Final = 1 << 17
"""Nodes that are encoded at once."""

@dataclass(frozen=True, slots=True)
class Group:
    """A process group of a job."""

    number: str
    """What it goes by in all files of the job: ASTRA-sim reads a number."""
    name: str
    """As recorded."""
    description: str | None
    backend: str | None
    size: int | None
    ranks: tuple[int, ...] | None
    """None where no trace lists them."""


def export(corpus: Path, output: Path, trace: str | None = None) -> tuple[list[Path], int]:
    """Write `output`.RANK.et for every rank of a job; return the files and the number of their nodes.

    All files appear, or none.

    Args:
        corpus: the corpus folder.
        output: what the files are called before the rank.
        trace: the job of the trace of this id, or the beginning of it; needed where the corpus has several.

    Raises:
        LumosError: the job is not told, not there or was not replayed, or other ranks' files are in the way.
        OSError: a file cannot be written.
    """
    if trace is not None and trace.startswith(ESTIMATE):
        stored = "lumos-df estimate --set NAME=VALUE --into CORPUS"
        raise QueryError(f"{trace}: an estimate of its parts, without a graph; a changed job has one: {stored}")
    jobs = groups(corpus, trace)
    if len(jobs) > 1:
        see = f"lumos-df sql 'SELECT job, rank, trace_id FROM traces' --corpus {corpus}"
        raise QueryError(f"{corpus}: holds {len(jobs)} jobs; name a trace of one with --trace ID; see: {see}")
    output = output.with_suffix("") if output.suffix == ".et" else output
    if output.is_dir():
        raise LumosError(f"{output}: a folder; give the files' name before the rank, as in {output}/step")
    with catalog.connect(corpus) as connection, ExitStack() as files:
        members = ranks(connection, jobs[0])
        replayed = {name for (name,) in connection.execute("SELECT DISTINCT trace_id FROM replays").fetchall()}
        if not all(member.trace_id in replayed for member in members):
            raise CorpusError(f"{corpus}: no dependencies are known yet; first run: lumos-df replay --corpus {corpus}")
        paths = [output.with_name(f"{output.name}.{member.rank}.et") for member in members]
        strangers = sorted(set(output.parent.glob(f"{output.name}.*.et")) - set(paths))
        if strangers:
            raise LumosError(f"{strangers[0]}: of another export, with other ranks; remove it or give another --output")
        known = _groups(connection, jobs[0])
        written = 0
        for member, path in zip(members, paths, strict=True):
            with files.enter_context(whole_file(path)).open("wb") as file:
                written += _write(connection, member, known, file)
    return paths, written


def _groups(connection: "duckdb.DuckDBPyConnection", job: list[str]) -> dict[tuple[str, str], Group]:
    """Return the group that a name means in a trace, by (trace_id, name).

    A group keeps its name where every name of the job is a number that means the same ranks everywhere.
    """
    found = connection.execute(
        """
        SELECT trace_id, "group" AS name, any_value(description) AS description, any_value(backend) AS backend,
          max(size) AS size, any_value(ranks) AS ranks
        FROM (
          SELECT trace_id, "group", description, backend, size, ranks FROM process_groups
          UNION ALL
          SELECT trace_id, "group", NULL, NULL, group_size, NULL FROM operators WHERE "group" IS NOT NULL
        )
        WHERE trace_id IN (SELECT unnest($job))
        GROUP BY ALL
        ORDER BY ALL
        """,
        {"job": job},
    ).fetchall()
    lists: dict[str, set[tuple[int, ...]]] = {}
    for _, name, *_, listed in found:
        lists.setdefault(name, set()).update([tuple(listed)] if listed else [])
    plain = all(name.isdecimal() and len(some) <= 1 for name, some in lists.items())
    made: dict[tuple[str, tuple[int, ...] | None], Group] = {}
    meant: dict[tuple[str, str], Group] = {}
    for trace_id, name, description, backend, size, listed in found:
        # A trace that does not list the ranks means those that the others list, where they agree.
        members = tuple(listed) if listed else next(iter(lists[name])) if len(lists[name]) == 1 else None
        number = name if plain else str(len(made) + 1)
        group = Group(number, name, description, backend, size, members)
        meant[trace_id, name] = made.setdefault((name, members), group)
    return meant


def _write(
    connection: "duckdb.DuckDBPyConnection", of: Rank, known: dict[tuple[str, str], Group], file: IO[bytes]
) -> int:
    """Write one rank's trace; return the number of its nodes."""
    rows, estimated = _rows(connection, of.trace_id)
    made = nodes(_operators(rows), _edges(connection, of.trace_id))
    named = {name: group.number for (trace_id, name), group in known.items() if trace_id == of.trace_id}
    every = {group.number: group for group in known.values()}
    file.write(_global(of, rows, every, estimated=estimated))
    listed = [group for group in every.values() if group.ranks]
    if listed:
        file.write(_group_node(listed))
    chosen = rows.take(pa.array(made.row))
    micros = _micros(made.dur, _lane(chosen))
    for begin in range(0, len(made.row), _BATCH):
        part = slice(begin, begin + _BATCH)
        file.write(_encoded(of, chosen.slice(begin, _BATCH), made, part, micros[part], named))
    return len(made.row) + bool(listed)


def _rows(connection: "duckdb.DuckDBPyConnection", trace_id: str) -> tuple[pa.Table, bool]:
    """Return the operators of a trace with what their nodes say, and whether it is an estimate."""
    rows = connection.sql(
        f"""
        WITH
        tied AS (
          SELECT src AS op_id FROM edges
          WHERE trace_id = $trace AND src_trace_id = $trace AND kind <> 'collective'
          UNION
          SELECT dst FROM edges WHERE trace_id = $trace AND src_trace_id = $trace AND kind <> 'collective'
        ),
        meeting AS (
          SELECT a.op_id, min(b.rank) AS peer, min(a.instance_id) AS tag
          FROM collectives a
          JOIN collectives b ON b.instance_id = a.instance_id AND b.trace_id <> a.trace_id
          JOIN traces s ON s.trace_id = a.trace_id
          JOIN traces t ON t.trace_id = b.trace_id AND t.job = s.job
          WHERE a.trace_id = $trace AND a.members = 2
          GROUP BY a.op_id
        ),
        row AS (
          SELECT o.*, CASE
              WHEN o.kind IN {GPU_KINDS} THEN TRUE
              -- Without a GPU, what gloo's threads do is the communication.
              WHEN o.kind = 'annotation' THEN o.in_bytes IS NOT NULL AND NOT EXISTS (
                FROM operators k WHERE k.trace_id = $trace AND k.kind = 'kernel'
              )
              ELSE FALSE
            END AS may_communicate,
            o.kind IN ('cpu_op', 'runtime', {", ".join(map(repr, GPU_KINDS))}) OR tied.op_id IS NOT NULL AS is_node
          FROM operators o
          LEFT JOIN tied ON tied.op_id = o.op_id
          WHERE o.trace_id = $trace
        )
        SELECT o.op_id, o.parent_id, o.kind, o.name, o.ts, o.dur, o.thread, o.device, o.stream, o.step, o.flops, o.group,
          o.is_node OR (o.may_communicate AND o.collective IS NOT NULL) AS is_node,
          CASE WHEN o.may_communicate THEN o.collective END AS collective,
          CASE
            WHEN NOT o.may_communicate OR o.collective IS NULL THEN NULL
            WHEN o.collective = 'recv' THEN coalesce(o.out_bytes, o.in_bytes)
            ELSE coalesce(o.in_bytes, o.out_bytes)
          END AS comm_bytes,
          CASE WHEN o.kind IN ('memcpy', 'memset') THEN o.in_bytes END AS moved_bytes,
          m.peer, m.tag,
          x.inputs, coalesce(x.input_dims, o.input_dims) AS input_dims, coalesce(x.input_types, o.input_types) AS input_types,
          x.outputs, x.output_dims, x.output_types, x.op_schema, s.provenance
        FROM row o
        LEFT JOIN meeting m ON m.op_id = o.op_id
        LEFT JOIN execution_nodes x ON x.trace_id = $trace AND x.op_id = o.op_id
        LEFT JOIN operator_sources s ON s.trace_id = $trace AND s.op_id = o.op_id
        ORDER BY o.op_id
        """,
        params={"trace": trace_id},
    ).to_arrow_table()
    return rows, rows["provenance"].null_count < len(rows)


def _operators(rows: pa.Table) -> Operators:
    thread = pc.is_valid(rows["thread"]).to_numpy()
    return Operators(
        parent=_filled(rows["parent_id"]),
        ts=_filled(rows["ts"]),
        dur=_filled(rows["dur"]),
        lane=_lane(rows),
        host=thread,
        call=pc.equal(rows["kind"], "runtime").to_numpy(),
        node=rows["is_node"].to_numpy(),
    )


def _edges(connection: "duckdb.DuckDBPyConnection", trace_id: str) -> Edges:
    """Return the edges within a trace; a collective's lead to other ranks, which meet again in its nodes."""
    found = connection.execute(
        """
        SELECT src::BIGINT AS src, dst::BIGINT AS dst, lag, kind = 'thread' AS thread, kind = 'launch' AS launch,
          kind = 'sync' AS sync, binds = 'end-end' AS to_end
        FROM edges
        WHERE trace_id = $trace AND src_trace_id = $trace AND kind <> 'collective'
        """,
        {"trace": trace_id},
    ).fetchnumpy()
    return Edges(**{name: np.asarray(column) for name, column in found.items()})


