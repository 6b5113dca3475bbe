"""The graph of an estimated job as it was stored, where a recorded one has to be found.

An estimate knows what waits for what: it was made so. Its calls for events were never recorded, so from its operators
alone those dependencies would not be found again.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.graph import simulate as loops
from lumos_df.graph.collectives import Clock, Instances
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.edges import BINDS, COLLECTIVE, EVENT, KINDS, Edges
from lumos_df.graph.rows import NONE
from lumos_df.layout import trace_folder


def as_stored(corpus: Path, graph: Graph) -> Graph:
    """Return the graph of a trace with the edges that an estimate stored; of a recorded trace as it is."""
    table = _table(corpus, graph, schema.EDGES)
    if table is None:
        return graph
    # Those between ranks follow from the collectives.
    table = table.filter(pc.not_equal(table["kind"], KINDS[COLLECTIVE]))
    found = Edges(
        table["src"].to_numpy().astype(np.int32),
        table["dst"].to_numpy().astype(np.int32),
        _places(table["kind"], KINDS),
        _places(table["binds"], BINDS),
        table["lag"].to_numpy().astype(np.int64),
        pc.equal(table["evidence"], "recorded").to_numpy(),
    )
    rows, many = graph.rows, len(graph.rows)
    node = np.unique(np.concatenate((graph.order, found.src, found.dst)))
    node = node[np.lexsort((node, rows.on_gpu[node], rows.ts[node]))].astype(np.int32)
    pointer, edge = loops.forward_star(found.src, many)
    order = loops.topological(
        node, pointer, edge, found.dst, many, np.full(many, NONE, np.int32), np.empty(0, np.int32)
    )
    found = found.where(loops.goes_forward(found.src, found.dst, order, many))
    carried = graph.carried[~np.isin(graph.carried, found.dst[found.kind == EVENT])]
    return replace(graph, edges=found, order=order, order_target=found.dst, carried=carried)


def instances(corpus: Path, graphs: list[Graph]) -> Instances | None:
    """Return the collectives of a job as an estimate stored them; None where any trace is a recorded one."""
    found = [_table(corpus, graph, schema.COLLECTIVE_MEMBERS) for graph in graphs]
    tables = [table for table in found if table is not None]
    if len(tables) < len(found):
        return None
    many = [len(table) for table in tables]
    whole = pa.concat_tables(tables)
    number, row, lasts = (whole[name].to_numpy() for name in ("instance_id", "op_id", "transfer_ns"))
    trace = np.repeat(np.arange(len(tables)), many)
    _, first, instance = np.unique(number, return_index=True, return_inverse=True)
    instance = instance.reshape(-1)
    order = np.lexsort((trace, instance))
    return Instances(
        instance[order].astype(np.int32),
        trace[order].astype(np.int32),
        row[order].astype(np.int32),
        lasts[first].astype(np.int64),
        tuple(Clock(0, 0.0, 0, 0) for _ in graphs),
        (),
    )


def _table(corpus: Path, graph: Graph, of: schema.Table) -> pa.Table | None:
    """Return a table of an estimate; None of a recorded trace."""
    folder = trace_folder(corpus, graph.rows.trace_id)
    file = folder / f"{of.name}.parquet"
    if not (folder / f"{schema.OPERATOR_SOURCES.name}.parquet").exists() or not file.exists():
        return None
    return pq.read_table(file, partitioning=None)


def _places(column: pa.ChunkedArray, choices: tuple[str, ...]) -> NDArray[np.int8]:
    found: NDArray[np.int8] = pc.index_in(column, pa.array(choices)).to_numpy().astype(np.int8)
    return found
