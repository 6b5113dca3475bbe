"""What a corpus holds for the nodes of an execution trace: operators with what is said of them, and edges."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lumos_df.export.job_ranks import ExportedRank
from lumos_df.export.nodes import ExportedEdges, ExportedOperators
from lumos_df.schema import GPU_KINDS

if TYPE_CHECKING:
    import duckdb


def operator_rows(connection: "duckdb.DuckDBPyConnection", rank: ExportedRank) -> tuple[pa.Table, bool]:
    """Return the operators of a rank with what their nodes say, by op_id, and whether it is an estimate."""
    rows = connection.sql(
        f"""
        WITH
        tied AS (
          SELECT src AS op_id FROM edges
          WHERE trace_id = $trace AND src_trace_id = $trace AND kind <> 'collective'
          UNION
          SELECT dst FROM edges WHERE trace_id = $trace AND src_trace_id = $trace AND kind <> 'collective'
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
        ),
        peer AS (
          SELECT o.op_id, o.group, o.collective, coalesce(
              try_cast(a.args ->> CASE o.collective WHEN 'send' THEN '$."Dst Rank"' ELSE '$."Src Rank"' END AS INTEGER),
              CASE WHEN len(g.ranks) = 2 THEN list_sum(g.ranks) - $rank END
            ) AS peer
          FROM row o
          LEFT JOIN args a ON a.trace_id = $trace AND a.event = o.event
          LEFT JOIN process_groups g ON g.trace_id = $trace AND g.group = o.group
          WHERE o.may_communicate AND o.collective IN ('send', 'recv')
        ),
        message AS (
          -- What one rank sends another in a group arrives in the order in which it was sent.
          SELECT op_id, peer, row_number() OVER (PARTITION BY "group", collective, peer ORDER BY op_id) - 1 AS tag
          FROM peer
          WHERE peer IS NOT NULL
        )
        SELECT o.op_id, o.parent_id, o.kind, o.name, o.ts, o.dur, o.thread, o.device, o.stream, o.step, o.flops,
          o.group,
          o.is_node OR (o.may_communicate AND o.collective IS NOT NULL) AS is_node,
          CASE WHEN o.may_communicate THEN o.collective END AS collective,
          CASE
            WHEN NOT o.may_communicate OR o.collective IS NULL THEN NULL
            WHEN o.collective = 'recv' THEN coalesce(o.out_bytes, o.in_bytes)
            ELSE coalesce(o.in_bytes, o.out_bytes)
          END AS comm_bytes,
          CASE WHEN o.kind IN ('memcpy', 'memset') THEN o.in_bytes END AS moved_bytes,
          m.peer, m.tag,
          x.inputs, coalesce(x.input_dims, o.input_dims) AS input_dims,
          coalesce(x.input_types, o.input_types) AS input_types,
          x.outputs, x.output_dims, x.output_types, x.op_schema, s.provenance
        FROM row o
        LEFT JOIN message m ON m.op_id = o.op_id
        LEFT JOIN execution_nodes x ON x.trace_id = $trace AND x.op_id = o.op_id
        LEFT JOIN operator_sources s ON s.trace_id = $trace AND s.op_id = o.op_id
        ORDER BY o.op_id
        """,
        params={"trace": rank.trace_id, "rank": rank.rank},
    ).to_arrow_table()
    return rows, rows["provenance"].null_count < len(rows)


def operators(rows: pa.Table) -> ExportedOperators:
    """Return the numbers of these rows."""
    return ExportedOperators(
        parent=_filled(rows["parent_id"]),
        ts=_filled(rows["ts"]),
        dur=_filled(rows["dur"]),
        lane=_lane(rows),
        host=pc.is_valid(rows["thread"]).to_numpy(),
        call=pc.equal(rows["kind"], "runtime").to_numpy(),
        node=rows["is_node"].to_numpy(),
    )


def edges(connection: "duckdb.DuckDBPyConnection", trace_id: str) -> ExportedEdges:
    """Return the edges within a trace; a collective's lead to other ranks, and its nodes stand for them."""
    columns = connection.execute(
        """
        SELECT src::BIGINT AS src, dst::BIGINT AS dst, lag, kind = 'thread' AS thread, kind = 'launch' AS launch,
          kind = 'sync' AS sync, binds = 'end-end' AS to_end
        FROM edges
        WHERE trace_id = $trace AND src_trace_id = $trace AND kind <> 'collective'
        """,
        {"trace": trace_id},
    ).fetchnumpy()
    return ExportedEdges(**{name: np.asarray(column) for name, column in columns.items()})


def _filled(column: pa.ChunkedArray) -> NDArray[np.int64]:
    values: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return values


def _lane(rows: pa.Table) -> NDArray[np.int64]:
    """Return a number for each thread, and for each stream of a device; -1 for what runs on neither."""
    thread, device, stream = (_code(rows[name]) for name in ("thread", "device", "stream"))
    devices, streams = int(device.max(initial=0)) + 1, int(stream.max(initial=0)) + 1
    return (thread * devices + device) * streams + stream - 1


def _code(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a number from 1 for each value; 0 for null."""
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    codes: NDArray[np.int64] = pc.fill_null(coded.indices, -1).to_numpy().astype(np.int64) + 1
    return codes
