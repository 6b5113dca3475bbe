"""An estimated job as traces of a corpus: operators with the times that they would have, and the replay of their graph.

So whatever reads a corpus reads an estimate: views, reports, critical paths, timelines, and the next estimate.
"""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.errors import UnwritableError
from lumos_df.base.files import publish_over, unwritable
from lumos_df.corpus import table_files
from lumos_df.corpus.folder import scratch
from lumos_df.corpus.layout import MANIFEST, trace_folder
from lumos_df.corpus.staging import create
from lumos_df.graph import critical_path
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.replay import Replay
from lumos_df.graph.replayed_tables import words, write_replay
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import UNSET, forward_star
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE, RUNTIME, THREAD
from lumos_df.structure.axes import Axes
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations.kernel_times import PROVENANCE
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.durations.symbols import Symbols

_COPY_BITS: Final = 40
"""Correlations of copies are those of the original with the number of the copy above so many bits."""
_ALONG: Final = ("process_groups",)


def write(changed: ChangedJob, corpus: Path, into: Path, what: str) -> list[str]:
    """Store an estimated job; return the ids of its traces. Raise `CorpusError` where that cannot be done.

    Args:
        changed: the job.
        corpus: the corpus that it is from.
        into: the corpus to store it in, which may be the same; made where there is none.
        what: the change, for the job's name.
    """
    orders = [_order(after) for after in changed.after.replays]
    graphs: list[TraceGraph] = []
    # As of ranks of one file, which ran together also where the job is changed likewise from another run of it.
    stem = sha256(f"{changed.after.replays[0].graph.rows.trace_id} {what}".encode()).hexdigest()[: schema.ID_LENGTH]
    for new_rank, order in enumerate(orders):
        old = changed.after.replays[new_rank].graph.rows
        graph = _renumbered(changed.after.replays[new_rank], order)
        rows = replace(graph.rows, trace_id=f"{stem}-r{old.rank}", job=f"{old.job}: {what}")
        graphs.append(replace(graph, rows=rows))
    try:
        with scratch(into) as drafts:
            if not (into / MANIFEST).exists():
                create(into)
            table_files.make_known(into, schema.OPERATOR_SOURCES)
            for new_rank, (order, graph) in enumerate(zip(orders, graphs, strict=True)):
                _write_trace(changed, corpus, drafts, new_rank, order, graph)
            for graph in graphs:
                publish_over(*(trace_folder(place, graph.rows.trace_id) for place in (drafts, into)))
    except OSError as error:
        raise UnwritableError(unwritable(into, error)) from None
    instances = changed.job.instances and _instances(changed.job.instances, orders)
    job = Job(graphs, instances, event_graph(graphs, instances))
    played = job.replay()
    write_replay(into, job, played, critical_path.slack(played.event_graph, played.run, job.graphs, played.replays))
    return [graph.rows.trace_id for graph in graphs]


def _order(after: Replay) -> NDArray[np.int64]:
    """Return the rows of a replay in the order of their times."""
    start, end = _placed(after)
    return np.lexsort((np.arange(len(start)), start - end, start))


def _placed(after: Replay) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when every row begins and ends; what no replay places, as it was recorded."""
    rows = after.graph.rows
    placed = after.start != UNSET
    return np.where(placed, after.start, rows.ts), np.where(placed, after.end, rows.end)


def _renumbered(after: Replay, order: NDArray[np.int64]) -> TraceGraph:
    """Return the graph with its rows numbered by a new order, and with the replay's times as recorded ones."""
    graph = after.graph
    count = len(order)
    number = np.full(count + 1, NONE, np.int32)
    number[order] = np.arange(count)
    start, end = _placed(after)
    start, end = start[order], end[order]
    rows = graph.rows
    taken: dict[str, Any] = {
        name: getattr(rows, name)[order]
        for name in rows.__slots__
        if isinstance(getattr(rows, name), np.ndarray) and name not in {"stream_keys", "end"}
    }
    for name in ("parent", "forward"):
        taken[name] = number[taken[name]]
    moved = replace(rows, **{**taken, "ts": start, "dur": end - start})
    row = number[graph.atoms.row]
    by_row = np.lexsort((row,))
    place = np.full(len(row) + 1, NONE, np.int32)
    place[by_row] = np.arange(len(row))
    row = row[by_row]
    calls = moved.kind[row] == RUNTIME
    bounds, by_thread = forward_star(moved.thread[row], len(graph.atoms.bounds) - 1)
    atoms = replace(
        graph.atoms,
        row=row,
        thread=moved.thread[row],
        ts=start[row],
        dur=np.where(calls, (end - start)[row], 0),
        of_row=place[graph.atoms.of_row[order]],
        before=place[graph.atoms.before[by_row]],
        by_thread=by_thread,
        bounds=bounds,
    )
    gpu = replace(
        graph.gpu,
        row=number[graph.gpu.row],
        call=place[graph.gpu.call],
        before=number[graph.gpu.before],
        issued=place[graph.gpu.issued],
    )
    edges = replace(graph.edges, src=number[graph.edges.src], dst=number[graph.edges.dst])
    return replace(
        graph,
        rows=moved,
        atoms=atoms,
        gpu=gpu,
        edges=edges,
        order=number[graph.order],
        order_target=number[graph.order_target],
        own=graph.own[order],
        idle_before=_idle(edges.kind == THREAD, edges.dst, edges.lag, atoms, count),
        unknown=graph.unknown[order],
        carried=number[graph.carried],
    )


def _idle(
    chain: NDArray[np.bool_], dst: NDArray[np.int32], lag: NDArray[np.int64], atoms: Any, count: int
) -> NDArray[np.int64]:
    """Return how long a thread waited before each row: the time since its last atom that is no work."""
    idle = np.zeros(count, np.int64)
    follows = atoms.before >= 0
    end = atoms.ts + atoms.dur
    gap = np.zeros(count, np.int64)
    gap[atoms.row[follows]] = atoms.ts[follows] - end[atoms.before[follows]]
    idle[dst[chain]] = np.maximum(gap[dst[chain]] - lag[chain], 0)
    return idle


def _instances(instances: Instances, orders: list[NDArray[np.int64]]) -> Instances:
    row = instances.row.copy()
    for rank, order in enumerate(orders):
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order))
        mine = instances.trace == rank
        row[mine] = number[row[mine]]
    return replace(instances, row=row)


def _stored_operators(folder: Path) -> pa.Table:
    """Return the operators of a trace; columns in which all of them say something may have nulls, as new ones do."""
    table = pq.ParquetFile(folder / "operators.parquet").read()
    return table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))


def _write_trace(
    changed: ChangedJob, corpus: Path, drafts: Path, new_rank: int, order: NDArray[np.int64], graph: TraceGraph
) -> None:
    rows = graph.rows
    source = changed.sources[new_rank][order]
    old = [trace_folder(corpus, changed.played.replays[rank].graph.rows.trace_id) for rank in changed.makers[new_rank]]
    folder = trace_folder(drafts, rows.trace_id)
    folder.mkdir()
    table = _operators(
        [_stored_operators(old_folder) for old_folder in old],
        source,
        rows,
        changed.plan,
        [changed.plan.axes[rank] for rank in changed.makers[new_rank]],
    )
    pq.write_table(table, folder / "operators.parquet", compression="zstd", store_schema=False)
    about = pq.read_table(old[0] / "traces.parquet", partitioning=None).to_pylist()[0]
    about |= {
        "job": rows.job,
        "rank": rows.rank,
        "world_size": None if rows.world_size == NONE else rows.world_size,
        "operators": len(rows),
        "first_ts": int(rows.ts.min(initial=0)),
        "last_ts": int(rows.end.max(initial=0)),
        "warnings": [*(about["warnings"] or []), "estimated: this job never ran", *changed.warnings],
    }
    kinds = pq.read_schema(old[0] / "traces.parquet")
    pq.write_table(pa.Table.from_pylist([about], kinds), folder / "traces.parquet", store_schema=False)
    for name in _ALONG:
        # Groups name ranks by their numbers, which are others in other stages.
        if rows.world_size != NONE and (old[0] / f"{name}.parquet").exists():
            (folder / f"{name}.parquet").write_bytes((old[0] / f"{name}.parquet").read_bytes())
    base = np.cumsum([0, *(len(changed.played.replays[rank].graph.rows) for rank in changed.makers[new_rank])])
    which = np.searchsorted(base, np.maximum(source, 0), side="right") - 1
    table_files.write_in(
        folder,
        schema.OPERATOR_SOURCES,
        {
            "rank": np.full(len(source), rows.rank, np.int32),
            "op_id": np.arange(len(source), dtype=np.int32),
            "source_trace_id": pa.array([old_folder.name.removeprefix("trace_id=") for old_folder in old]).take(
                pa.array(which, mask=source < 0)
            ),
            "source_op_id": pa.array((source - base[which]).astype(np.int32), mask=source < 0),
            "provenance": words(changed.times[new_rank].provenance[order], PROVENANCE),
            "error_pct": pa.array(100 * np.abs(changed.times[new_rank].error[order])),
        },
    )


def _operators(
    tables: list[pa.Table], source: NDArray[np.int32], rows: Rows, plan: PlannedChange, axes: list[Axes]
) -> pa.Table:
    """Return the operators of a trace as they are stored.

    Args:
        tables: operators of the traces that it is made from.
        source: which of theirs, one table behind the other, each operator is from, NONE for what was inserted.
        rows: the operators, with their new times.
        plan: what axes of shapes become.
        axes: what is known of those of each trace.
    """
    whole = pa.concat_tables(tables)
    table = whole.take(pa.array(source, mask=source < 0))
    copy = np.zeros(len(source), np.int64)
    by_source = np.lexsort((np.arange(len(source)), source))
    start = np.searchsorted(source[by_source], source[by_source])
    copy[by_source] = np.arange(len(source)) - start
    new: dict[str, pa.Array] = {
        "rank": pa.array(np.full(len(source), rows.rank, np.int32)),
        "op_id": pa.array(np.arange(len(source)), pa.int32()),
        "parent_id": _nullable(rows.parent),
        "forward_id": _nullable(rows.forward),
        "ts": pa.array(rows.ts),
        "dur": pa.array(rows.dur),
        **{
            name: pa.array(
                table[name].to_numpy(zero_copy_only=False) + (copy << _COPY_BITS), pa.int64(), from_pandas=True
            )
            for name in ("correlation", "wait_correlation")
            if not table[name].null_count
        },
        "input_dims": _shapes(table["input_dims"], plan.symbols, axes),
        **_renamed(table, rows),
    }
    if (source < 0).any() or len(tables) > 1:
        new |= _moved(table, source, len(tables[0]), rows)
    for name, column in new.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def _renamed(table: pa.Table, rows: Rows) -> dict[str, pa.Array]:
    """Return the names and kinds of collectives, of which some were inserted and some became others."""
    names, kinds = pa.array(rows.names), pa.array([*rows.collectives, None], pa.string())
    words, names = kinds.take(pa.array(rows.collective % len(kinds))), names.take(pa.array(rows.name))
    other = pc.not_equal(pc.fill_null(words, ""), pc.fill_null(table["collective"], ""))
    columns = {"collective": words, "name": names}
    return {name: pc.if_else(other, value, table[name]).combine_chunks() for name, value in columns.items()}


def _moved(table: pa.Table, source: NDArray[np.int32], first: int, rows: Rows) -> dict[str, pa.Array]:
    """Return what is not as it was recorded where operators were inserted, or come from two traces.

    Args:
        table: the operators as recorded, null where inserted.
        source: where they are from, as for `_operators`.
        first: operators of the first trace.
        rows: the operators.
    """
    inserted = pa.array(source < 0)
    said: dict[str, Any] = {
        "kind": "kernel",
        "family": "communication",
        "phase": "communication",
        "group_size": pa.array(rows.group_size),
        "step": _nullable(rows.step),
    }
    columns = {name: pc.if_else(inserted, value, table[name]).combine_chunks() for name, value in said.items()}
    # A thread goes by the number that it has in the first trace that has it.
    recorded = table["thread"].fill_null(NONE).to_numpy()
    number = np.flatnonzero(rows.thread >= 0)
    number = number[np.argsort(source[number] >= first, kind="stable")]
    thread = np.full(int(rows.thread.max(initial=NONE)) + 2, NONE)
    thread[rows.thread[number[::-1]]] = recorded[number[::-1]]
    on_gpu, keys = rows.on_gpu, np.vstack((rows.stream_keys, [(NONE, NONE)]))
    columns["thread"] = pa.array(thread[rows.thread], mask=rows.thread < 0)
    columns["stream"] = pa.array(keys[rows.stream, 1], mask=rows.stream < 0)
    columns["device"] = pa.array(keys[rows.stream, 0].astype(np.int32), mask=~on_gpu | (rows.stream < 0))
    return columns


def _nullable(values: NDArray[np.int32]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _shapes(column: pa.ChunkedArray, symbols: Symbols, axes: list[Axes]) -> pa.Array:
    """Return the recorded shapes as they are in the changed job."""
    labels = {text: known for rank in axes for text, known in rank.of_text.items()}
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    told = [symbols.rescaled_text(text, labels.get(text, ())) for text in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(told, pa.string())).cast(pa.string())
