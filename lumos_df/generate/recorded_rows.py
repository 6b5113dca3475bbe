"""The rows of one recorded step of one rank, and the trees that its operators make."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.graph.issued_before import before_first_issued
from lumos_df.schema import GPU_KINDS

if TYPE_CHECKING:
    import duckdb

_ROWS = """
SELECT o.op_id, o.parent_id, o.kind, o.family, o.name, o.ts, o.dur, o.thread, o.device, o.stream, o.module,
  o.collective, o."group", o.group_size, o.dtype, o.in_bytes, o.out_bytes, o.flops,
  CASE WHEN o.kind = 'cpu_op' THEN coalesce(x.input_dims, o.input_dims) END AS dims,
  CASE WHEN o.kind = 'cpu_op' THEN coalesce(x.input_types, o.input_types) END AS types,
  CASE WHEN o.kind = 'cpu_op' THEN coalesce(x.input_strides, a.args ->> '$."Input Strides"') END AS strides,
  CASE WHEN o.kind = 'cpu_op' THEN a.args ->> '$."Concrete Inputs"' END AS concrete,
  CASE WHEN o.kind = 'cpu_op' THEN a.args ->> '$."Input Storages"' END AS storages,
  x.inputs AS given,
  CASE WHEN o.kind = 'kernel' THEN TRY_CAST(a.args ->> '$.grid[0]' AS BIGINT) END AS blocks
FROM operators o
LEFT JOIN args a ON a.trace_id = $trace AND a.event = o.event AND o.kind IN ('cpu_op', 'kernel')
LEFT JOIN execution_nodes x ON x.trace_id = $trace AND x.op_id = o.op_id
WHERE o.trace_id = $trace AND ($step IS NULL OR o.step = $step)
ORDER BY o.op_id
"""
_ON_STREAMS = f"""
SELECT op_id, dense_rank() OVER (ORDER BY device, stream) AS number, parent_id IS NOT NULL AS issued
FROM operators
WHERE trace_id = $trace AND stream >= 0 AND kind IN {GPU_KINDS}
ORDER BY ts, op_id
"""
NO_ROW = -1
"""Place of a row that is not there."""


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """n rows in the order of op_id; `place` is a row's number from 0."""

    frame: pl.DataFrame
    """Columns of `operators`; of those on the host also dims, types, strides, concrete, storages, given (JSON), of
    kernels the blocks along the first dimension of the grid."""
    parent: NDArray[np.int64]
    """[n] place of the row around it, or -1."""
    levels: list[NDArray[np.int64]]
    """Places by how many rows are around them: none, one, ..."""
    gpu: NDArray[np.bool_]
    """[n] whether it ran on a GPU."""
    start_ns: int
    end_ns: int

    @classmethod
    def read(cls, connection: "duckdb.DuckDBPyConnection", trace_id: str, step: int | None) -> Self:
        """Read a step; without a number the whole trace. What was issued before the recording is of no step in it."""
        frame = connection.sql(_ROWS, params={"trace": trace_id, "step": step}).pl()
        on_streams = connection.sql(_ON_STREAMS, params={"trace": trace_id}).fetchnumpy()
        early = on_streams["op_id"][before_first_issued(on_streams["number"], on_streams["issued"])]
        frame = frame.filter(~pl.col("op_id").is_in(early))
        op_id = frame["op_id"].to_numpy()
        above = frame["parent_id"].fill_null(NO_ROW).to_numpy()
        found = np.minimum(np.searchsorted(op_id, above), max(len(op_id) - 1, 0))
        parent = np.where(op_id[found] == above, found, NO_ROW) if len(op_id) else found
        gpu = frame["kind"].is_in(GPU_KINDS).to_numpy()
        ts, end = frame["ts"].to_numpy(), (frame["ts"] + frame["dur"]).to_numpy()
        whole = connection.execute(
            "SELECT ts, ts + dur FROM step WHERE trace_id = $1 AND step = $2", [trace_id, step]
        ).fetchall()
        start_ns, end_ns = whole[0] if whole else _span(ts, end)
        return cls(frame, parent, _levels(parent), gpu, start_ns, end_ns)

    @property
    def end(self) -> NDArray[np.int64]:
        """Return when each row ended, ns."""
        return (self.frame["ts"] + self.frame["dur"]).to_numpy()

    def sum_inside(self, amount: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the sum of an amount over the row and all rows inside it."""
        total = amount.astype(np.int64)
        for level in reversed(self.levels[1:]):
            np.add.at(total, self.parent[level], total[level])
        return total

    def most_inside(self, amount: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the largest amount of the row and all rows inside it."""
        most = amount.astype(np.int64)
        for level in reversed(self.levels[1:]):
            np.maximum.at(most, self.parent[level], most[level])
        return most

    def outermost(self, marked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return for each row the place of the outermost marked row that it is, or is inside; -1 where none is."""
        root = np.where(marked, np.arange(len(marked)), NO_ROW)
        for level in self.levels[1:]:
            around = root[self.parent[level]]
            root[level] = np.where(around >= 0, around, root[level])
        return root

    def innermost_around(self, marked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return for each row the place of the innermost marked row that it is, or is inside; -1 where none is."""
        near = np.where(marked, np.arange(len(marked)), NO_ROW)
        for level in self.levels[1:]:
            near[level] = np.where(near[level] >= 0, near[level], near[self.parent[level]])
        return near


def _span(ts: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[int, int]:
    return (int(ts.min()), int(end.max())) if len(ts) else (0, 0)


def _levels(parent: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return places by depth; the loop is over the depth of calls."""
    levels: list[NDArray[np.int64]] = []
    inside = np.zeros(len(parent) + 1, np.bool_)
    inside[-1] = True  # the last stands for no parent
    left = np.arange(len(parent))
    while len(left):
        here = inside[parent[left]]
        levels.append(left[here])
        if not here.any():
            break
        inside[left[here]] = True
        left = left[~here]
    return levels
