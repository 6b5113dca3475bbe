"""A PyTorch execution trace beside a Kineto file: what operators read and wrote, and so what depends on what.

Both number operators by the same "record function id" (rf_id). Read by DuckDB, which is loaded only where there is such
a file: its nested lists of mixed types are no work for the scanner, and it is rare.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.errors import TraceError
from lumos_df.schema.arrow import arrow_schema
from lumos_df.trace.ordered_operators import OrderedOperators

_SHAPE: Final = json.dumps(
    {
        "nodes": [
            {
                "id": "BIGINT",
                "ctrl_deps": "BIGINT",
                **{
                    side: dict.fromkeys(("values", "shapes", "types", "strides"), "JSON")
                    for side in ("inputs", "outputs")
                },
                "attrs": [{"name": "VARCHAR", "value": "JSON"}],
            }
        ]
    }
)
"""What is read of a file, as DuckDB's json_transform wants it."""

_NODES: Final = """
CREATE TEMP TABLE node AS
SELECT
  rows.op_id,
  rows.ts,
  rows.ts + rows.dur AS finish,
  listed.n.id AS node,
  listed.n.ctrl_deps AS parent_node,
  listed.n.inputs AS inputs,
  listed.n.outputs AS outputs,
  list_filter(listed.n.attrs, lambda a: a.name = 'op_schema')[1].value ->> '$' AS op_schema
FROM (SELECT unnest(json_transform($text, $shape).nodes) AS n) AS listed
JOIN (
  SELECT event, (args ->> '$."Record function id"')::BIGINT AS rf_id FROM read_parquet($args)
) AS stated ON stated.rf_id = (list_filter(listed.n.attrs, lambda a: a.name = 'rf_id')[1].value)::BIGINT
JOIN rows ON rows.event = stated.event
WHERE stated.rf_id > 0
"""

# A tensor is [tensor, storage, offset, elements, bytes of one, device], alone or in a list. An operator depends on the
# last one to write each storage that it reads; of nested ones that is the outermost that had ended.
_RESULT: Final = """
WITH
used AS (
  SELECT
    op_id,
    ts,
    finish,
    unnest(json_extract(side."values", '$[*]') || json_extract(side."values", '$[*][*]')) AS value,
    wrote
  FROM (
    SELECT op_id, ts, finish, inputs AS side, false AS wrote FROM node
    UNION ALL
    SELECT op_id, ts, finish, outputs, true FROM node
  )
),
tensor AS (
  SELECT DISTINCT op_id, ts, finish, wrote, (value ->> '$[1]')::BIGINT AS storage, value ->> '$[5]' AS device
  FROM used
  WHERE json_type(value) = 'ARRAY' AND json_array_length(value) = 6 AND json_type(value, '$[5]') = 'VARCHAR'
),
reads AS (
  SELECT reader.op_id, list_sort(list_distinct(list(writer.op_id))) AS reads_from
  FROM (FROM tensor WHERE NOT wrote) AS reader
  ASOF JOIN (FROM tensor WHERE wrote) AS writer
    ON writer.storage = reader.storage AND writer.device = reader.device AND writer.finish <= reader.ts
  GROUP BY reader.op_id
)
SELECT
  $rank AS rank,
  node.op_id,
  node.node,
  node.parent_node,
  node.inputs."values"::VARCHAR AS inputs,
  node.inputs.shapes::VARCHAR AS input_dims,
  regexp_replace(
    regexp_replace(node.inputs.types::VARCHAR, '"GenericList\\[Tensor[^"]*"', '"TensorList"', 'g'),
    '"Tensor\\(([^"]*)\\)"', '"\\1"', 'g'
  ) AS input_types,
  node.inputs.strides::VARCHAR AS input_strides,
  node.outputs."values"::VARCHAR AS outputs,
  node.outputs.shapes::VARCHAR AS output_dims,
  node.outputs.types::VARCHAR AS output_types,
  node.op_schema,
  reads.reads_from
FROM node
LEFT JOIN reads ON reads.op_id = node.op_id
ORDER BY node.op_id
"""


def nodes(file: str, args: Path, ops: OrderedOperators) -> pa.Table:
    """Return the `execution_nodes` of the operators that an execution trace knows, ordered by op_id.

    Args:
        file: the execution trace.
        args: Parquet file of the raw args of the trace's own file, which hold the ids.
        ops: operators of the rank.

    Raises `TraceError` where the file does not read, or shares no operator with the trace.
    """
    import duckdb  # noqa: PLC0415 - only for such a file

    rows = pa.table({"op_id": np.arange(len(ops), dtype=np.int32), "event": ops.event, "ts": ops.ts, "dur": ops.dur})
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        try:
            connection.execute(_NODES, {"text": _text(file), "shape": _SHAPE, "args": str(args)})
            result = connection.sql(_RESULT, params={"rank": ops.rank.rank}).to_arrow_table()
        except (duckdb.Error, OSError, EOFError, ValueError) as error:
            raise TraceError(
                f"{file}: no execution trace of schema 1.1 ({error}); record it with torch 2.3 or later"
            ) from None
    if not result.num_rows:
        raise TraceError(f"{file}: has no operator of the trace beside it; record both in one run of the profiler")
    target = arrow_schema(schema.EXECUTION_NODES)
    return result.select(target.names).cast(target)


def _text(file: str) -> str:
    data = Path(file).read_bytes()
    return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8", "replace")


def fill_shapes(ops: OrderedOperators, execution_nodes: pa.Table) -> OrderedOperators:
    """Return the operators with the input shapes and types that their own file was recorded without."""
    recording, strings = ops.recording, list(ops.recording.strings)
    places = ops.order[execution_nodes["op_id"].to_numpy()]

    def filled(column: NDArray[np.int32], texts: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return a column with these texts at `places`, where it had none."""
        words = texts.combine_chunks().dictionary_encode()
        column = column.copy()
        empty = column[places] < 0
        column[places[empty]] = len(strings) + words.indices.to_numpy()[empty]
        strings.extend(words.dictionary.to_pylist())
        return column

    operators = replace(
        recording.operators,
        input_dims=filled(recording.operators.input_dims, execution_nodes["input_dims"]),
        input_types=filled(recording.operators.input_types, execution_nodes["input_types"]),
    )
    return replace(ops, recording=replace(recording, strings=strings, operators=operators))
