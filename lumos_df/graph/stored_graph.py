"""The graph of an estimated job as it was stored, where a recorded one has to be found.

An estimate knows what waits for what: it was made so. Its calls for events were never recorded, so from its operators
alone those dependencies would not be found again.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.collective_instances import ClockSkew, Instances
from lumos_df.graph.edges.columns import Edges
from lumos_df.graph.simulate import forward
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COLLECTIVE, EVENT, NONE
from lumos_df.schema.words import BINDS, EDGE_KINDS


def as_stored(corpus: Path, graph: TraceGraph) -> TraceGraph:
    """Return the graph of a trace with the edges that an estimate stored; of a recorded trace as it is."""
    table = _table(corpus, graph, schema.EDGES)
    if table is None:
        return graph
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only estimates need it

    # Those between ranks follow from the collectives.
    table = table.filter(pc.not_equal(table["kind"], EDGE_KINDS[COLLECTIVE]))
    stored = Edges(
        src=table["src"].to_numpy().astype(np.int32),
        dst=table["dst"].to_numpy().astype(np.int32),
        kind=_places(table["kind"], EDGE_KINDS),
        binds=_places(table["binds"], BINDS),
        lag=table["lag"].to_numpy().astype(np.int64),
        recorded=pc.equal(table["evidence"], "recorded").to_numpy(),
    )
    rows, count = graph.rows, len(graph.rows)
    node = np.unique(np.concatenate((graph.order, stored.src, stored.dst)))
    node = node[np.lexsort((node, rows.on_gpu[node], rows.ts[node]))].astype(np.int32)
    pointer, edge = forward.forward_star(stored.src, count)
    no_instance, no_members = np.full(count, NONE, np.int32), np.empty(0, np.int32)
    order = forward.topological(node, pointer, edge, stored.dst, count, no_instance, no_members)
    edges = stored.where(forward.goes_forward(stored.src, stored.dst, order, count))
    carried = graph.carried[~np.isin(graph.carried, edges.dst[edges.kind == EVENT])]
    return replace(graph, edges=edges, order=order, order_target=edges.dst, carried=carried)


def instances(corpus: Path, graphs: list[TraceGraph]) -> Instances | None:
    """Return the collectives of a job as an estimate stored them; None where any trace is a recorded one."""
    stored = [_table(corpus, graph, schema.COLLECTIVE_MEMBERS) for graph in graphs]
    tables = [table for table in stored if table is not None]
    if len(tables) < len(stored):
        return None
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only estimates need it

    tables = [table.filter(pc.greater(table["members"], 1)) for table in tables]
    members = pa.concat_tables(tables)
    number, row, waiting = (members[name].to_numpy() for name in ("instance_id", "op_id", "waiting_ns"))
    trace = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    lasted = [graph.rows.dur[table["op_id"].to_numpy()] for graph, table in zip(graphs, tables, strict=True)]
    transfer = np.concatenate(lasted) - waiting
    _, first, instance = np.unique(number, return_index=True, return_inverse=True)
    instance = instance.reshape(-1)
    order = np.lexsort((trace, instance))
    return Instances(
        instance=instance[order].astype(np.int32),
        trace=trace[order].astype(np.int32),
        row=row[order].astype(np.int32),
        transfer=transfer[first].astype(np.int64),
        clocks=tuple(ClockSkew(0, 0.0, 0, 0) for _ in graphs),
        warnings=(),
    )


def is_estimate(corpus: Path, trace_id: str) -> bool:
    """Return whether a trace was estimated from a recorded one."""
    return (trace_folder(corpus, trace_id) / f"{schema.OPERATOR_SOURCES.name}.parquet").exists()


def _table(corpus: Path, graph: TraceGraph, table: schema.Table) -> pa.Table | None:
    """Return a table of an estimate; None of a recorded trace."""
    file = trace_folder(corpus, graph.rows.trace_id) / f"{table.name}.parquet"
    if not is_estimate(corpus, graph.rows.trace_id) or not file.exists():
        return None
    return pq.read_table(file, partitioning=None)


def _places(column: pa.ChunkedArray, choices: tuple[str, ...]) -> NDArray[np.int8]:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only estimates need it

    places: NDArray[np.int8] = pc.index_in(column, pa.array(choices)).to_numpy().astype(np.int8)
    return places
