"""Rows to Arrow: the stored tables of one trace, in the columns and types of `schema`."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.schema.arrow import arrow_schema
from lumos_df.trace import kineto, record
from lumos_df.trace.collectives import Collectives
from lumos_df.trace.derive import GPU, Derived
from lumos_df.trace.flops import flops
from lumos_df.trace.kineto import NONE, Operators
from lumos_df.trace.reader import RawTrace

_ROWS: Final = 1 << 17
"""Rows of a row group: what is gathered from the raw columns at a time."""

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())


def operator_schema() -> pa.Schema:
    """Return the schema in which operators are handed to the writer: texts as dictionaries, stored as they are."""
    fields = arrow_schema(schema.OPERATORS)
    return pa.schema([(field.name, _TEXT if field.type == pa.string() else field.type) for field in fields])


def empty(table: schema.Table) -> pa.Table:
    """Return a table without rows."""
    return arrow_schema(table).empty_table()


Indices = NDArray[np.int64]
Part = Callable[[slice], pa.Array]
"""Makes one column of the rows in a slice."""


def operator_batches(ops: Operators, derived: Derived, collectives: Collectives) -> Iterator[pa.Table]:
    """Yield the `operators` table, a row group at a time, so that no second copy of all columns is ever held."""
    parts = _operator_columns(ops, derived, collectives)
    target = operator_schema()
    for start in range(0, max(len(ops), 1), _ROWS):
        rows = slice(start, min(start + _ROWS, len(ops)))
        size = rows.stop - rows.start
        arrays = [parts[field.name](rows) if field.name in parts else pa.nulls(size, field.type) for field in target]
        yield pa.table(arrays, schema=target)


def _operator_columns(ops: Operators, derived: Derived, collectives: Collectives) -> dict[str, Part]:
    raw = ops.raw
    gpu = ops.is_kind(*GPU)
    on_stream = ops.is_kind(*GPU, kineto.SYNC)
    threads = kineto.thread_numbers(raw)
    kinds = pa.array(schema.KINDS)
    phases = pa.array(schema.PHASES)
    bytes_moved = _bytes_moved(ops, derived.parent)

    def wide(column: int) -> Part:
        return lambda rows: _nullable(raw.wide[column][ops.order[rows]], record.NULL)

    def text(column: int) -> Part:
        return _text(lambda rows: raw.narrow[column][ops.order[rows]], raw.narrow[column], raw.strings)

    def thread(rows: slice) -> pa.Array:
        values = threads[ops.track[rows]]
        return pa.array(
            values, mask=on_stream[rows] | (ops.kind[rows] == kineto.GPU_ANNOTATION) | (values == record.NULL)
        )

    def device(rows: slice) -> pa.Array:
        values = raw.narrow[record.OP_DEVICE][ops.order[rows]]
        return pa.array(values, mask=~on_stream[rows] | (values == record.NULL32))

    def stream(rows: slice) -> pa.Array:
        values = raw.wide[record.OP_STREAM][ops.order[rows]]
        values = np.where((values == record.NULL) & gpu[rows], threads[ops.track[rows]], values)
        return pa.array(values, mask=~on_stream[rows] | (values == record.NULL))

    def occupancy(rows: slice) -> pa.Array:
        values = raw.narrow[record.OP_OCCUPANCY][ops.order[rows]]
        return pa.array(values.astype(np.float32) / np.float32(100), mask=values == record.NULL32)

    columns: dict[str, Part] = {
        "rank": lambda rows: pa.array(np.full(rows.stop - rows.start, ops.rank, np.int32)),
        "op_id": lambda rows: pa.array(np.arange(rows.start, rows.stop, dtype=np.int32)),
        "parent_id": lambda rows: _nullable(derived.parent[rows], NONE),
        "kind": lambda rows: _words(ops.kind[rows], kinds),
        "family": _words_part(derived.family, derived.families),
        "name": _text(lambda rows: ops.name[rows], ops.name, raw.strings),
        "ts": lambda rows: pa.array(ops.ts[rows]),
        "dur": lambda rows: pa.array(ops.dur[rows]),
        "thread": thread,
        "device": device,
        "stream": stream,
        "correlation": wide(record.OP_CORRELATION),
        "external_id": wide(record.OP_EXTERNAL),
        "step": lambda rows: _nullable(derived.step[rows], NONE),
        "phase": lambda rows: _words(derived.phase[rows], phases),
        "input_dims": text(record.OP_DIMS),
        "input_types": text(record.OP_TYPES),
        "grid": text(record.OP_GRID),
        "block": text(record.OP_BLOCK),
        "occupancy": occupancy,
        "forward_id": lambda rows: _nullable(derived.forward[rows], NONE),
        "event": lambda rows: pa.array(ops.event[rows]),
    }
    if derived.modules:
        layers = np.append(derived.layer_of_module, NONE)
        columns["module"] = _words_part(derived.module, derived.modules)
        columns["layer"] = lambda rows: _nullable(layers[derived.module[rows]].astype(np.int32), NONE)
    flop_counts = flops(ops)
    if (flop_counts != record.NULL).any():
        columns["flops"] = lambda rows: _nullable(flop_counts[rows], record.NULL)
    sparse: dict[str, tuple[Indices, Any]] = {
        "sequence_number": (derived.sequence_rows.astype(np.int64), pa.array(derived.sequence)),
        "wait_stream": _sorted(*ops.sparse("wait_on_stream")),
        "wait_correlation": _sorted(*ops.sparse("wait_on_cuda_event_record_corr_id")),
        "collective": (collectives.rows, collectives.collective),
        "group": (collectives.rows, collectives.group),
        "group_size": (collectives.rows, collectives.group_size),
        "seq": (collectives.rows, collectives.seq),
        "seq_evidence": (collectives.rows, collectives.seq_evidence),
        "dtype": (collectives.rows, collectives.dtype),
        "in_bytes": _merge_bytes(bytes_moved, collectives.rows, collectives.in_bytes),
        "out_bytes": _merge_bytes(bytes_moved, collectives.rows, collectives.out_bytes),
    }
    columns |= {name: _scattered(where, values) for name, (where, values) in sparse.items() if len(where)}
    return columns


def _nullable(values: NDArray[Any], null: int) -> pa.Array:
    mask = values == null
    return pa.array(values, mask=mask) if mask.any() else pa.array(values)


def _words(numbers: NDArray[Any], words: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_nullable(numbers.astype(np.int32), NONE), words)


def _words_part(numbers: NDArray[Any], words: list[str]) -> Part:
    texts = pa.array(words, pa.string())
    return lambda rows: _words(numbers[rows], texts)


def _text(part: Callable[[slice], NDArray[np.int32]], whole: NDArray[np.int32], strings: list[str]) -> Part:
    """Return a column of texts by number; only the texts it uses go into its dictionary."""
    used = np.flatnonzero(np.bincount(whole[whole >= 0], minlength=1)) if len(whole) else np.empty(0, np.int64)
    place = np.full(len(strings) + 1, NONE, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    words = pa.array([strings[number] for number in used.tolist()], pa.string())
    return lambda rows: _words(place[np.maximum(part(rows), NONE)], words)


def _sorted(rows: NDArray[Any], values: NDArray[np.int64]) -> tuple[Indices, pa.Array]:
    order = np.argsort(rows, kind="stable")
    return rows[order].astype(np.int64), pa.array(values[order])


def _scattered(where: Indices, values: pa.Array) -> Part:
    """Return a column that has `values` at the rows `where` (ordered) and null elsewhere."""

    def part(rows: slice) -> pa.Array:
        size = rows.stop - rows.start
        first, last = np.searchsorted(where, (rows.start, rows.stop))
        if first == last:
            return pa.nulls(size, values.type)
        take = np.full(size, NONE, np.int64)
        take[where[first:last] - rows.start] = np.arange(first, last)
        return values.take(_nullable(take, NONE))

    return part


def _bytes_moved(ops: Operators, parent: NDArray[np.int32]) -> tuple[Indices, NDArray[np.int64]]:
    """Return (rows, bytes) of the copies and fills that say how much they move; HIP says it on the call."""
    stated = np.full(len(ops) + 1, record.NULL, np.int64)
    for key in ("size", "bytes"):
        rows, values = ops.sparse(key)
        stated[rows] = values
    copies = np.flatnonzero(ops.is_kind(kineto.MEMCPY, kineto.MEMSET))
    own = stated[copies]
    return copies, np.where(own == record.NULL, stated[parent[copies]], own)


def _merge_bytes(
    moved: tuple[Indices, NDArray[np.int64]], rows: Indices, of_collectives: pa.Array
) -> tuple[Indices, pa.Array]:
    known = moved[1] != record.NULL
    where = np.concatenate((moved[0][known], rows))
    values = pa.concat_arrays([pa.array(moved[1][known]), of_collectives])
    order = np.argsort(where, kind="stable")
    return where[order], values.take(pa.array(order))


def memory_events(ops: Operators) -> pa.Table:
    """Return the `memory_events` table: instants named `[memory]`."""
    raw = ops.raw
    named = raw.where(lambda text: text == "[memory]")
    marks = ops.marks[:, named[ops.marks[record.MARK_NAME]]]
    marks = marks[:, np.argsort(marks[record.MARK_TS], kind="stable")]
    events = marks[record.MARK_EVENT]
    value = {
        key: _at(raw, key, events)
        for key in ("Bytes", "Addr", "Total Allocated", "Total Reserved", "Device Type", "Device Id")
    }
    types = value["Device Type"]
    kinds = np.where(types == 0, "cpu", np.where(types == 1, "gpu", types.astype(str))).tolist()
    threads = kineto.thread_numbers(raw)[marks[record.MARK_TRACK]]
    device = np.where(value["Device Id"] == record.NULL, NONE, value["Device Id"]).astype(np.int32)
    return pa.table(
        [
            pa.array(np.full(len(events), ops.rank, np.int32)),
            pa.array(marks[record.MARK_TS]),
            _nullable(threads, record.NULL),
            pa.array(kinds, pa.string(), mask=types == record.NULL),
            pa.array(device),
            _nullable(value["Addr"], record.NULL),
            _nullable(value["Bytes"], record.NULL),
            _nullable(value["Total Allocated"], record.NULL),
            _nullable(value["Total Reserved"], record.NULL),
            pa.array(events.astype(np.int32)),
        ],
        schema=arrow_schema(schema.MEMORY_EVENTS),
    )


def _at(raw: RawTrace, key: str, events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sparse key's value at each event, `record.NULL` where it has none."""
    where, values = raw.sparse(key)
    column = np.full(len(events), record.NULL, np.int64)
    if len(where):
        place = np.searchsorted(where, events)
        place[place == len(where)] = 0
        hit = where[place] == events
        column[hit] = values[place[hit]]
    return column


def counters(ops: Operators) -> pa.Table:
    """Return the `counters` table: one row a value of each counter event."""
    raw = ops.raw
    own = np.flatnonzero(raw.sparse_key < 0)
    events = raw.sparse_event[own].astype(np.int64)
    order = np.argsort(ops.marks[record.MARK_EVENT], kind="stable")
    marks = ops.marks[:, order]
    place = np.searchsorted(marks[record.MARK_EVENT], events)
    place[place == marks.shape[1]] = 0
    mine = marks[record.MARK_EVENT][place] == events if marks.shape[1] else np.zeros(len(events), bool)
    own, events, place = own[mine], events[mine], place[mine]
    names = marks[record.MARK_NAME][place]
    series = -1 - raw.sparse_key[own]
    return pa.table(
        [
            pa.array(np.full(len(own), ops.rank, np.int32)),
            pa.array(marks[record.MARK_TS][place]),
            pa.array(ops.texts(names), pa.string()),
            pa.array(ops.texts(series), pa.string()),
            pa.array(raw.sparse_value[own].view(np.float64)),
            pa.array(events.astype(np.int32)),
        ],
        schema=arrow_schema(schema.COUNTERS),
    )


def process_groups(ops: Operators, collectives: Collectives) -> pa.Table:
    """Return the `process_groups` table: those of distributedInfo, and those named only on a collective."""
    groups: dict[str, dict[str, Any]] = {}
    info = ops.raw.metadata.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    for entry in config if isinstance(config, list) else []:
        if isinstance(entry, dict) and "pg_name" in entry:
            description, backend = entry.get("pg_desc"), entry.get("backend_config")
            groups[str(entry["pg_name"])] = {
                "description": None if description is None else str(description),
                "backend": None if backend is None else str(backend),
                "size": schema.within(entry.get("pg_size"), 32),
                "ranks": _rank_list(entry.get("ranks")),
            }
    for name, size, ranks, description in _stated_groups(ops, collectives):
        group = groups.setdefault(name, {"description": description, "backend": None, "size": size, "ranks": None})
        group["ranks"] = group["ranks"] or ranks
        group["size"] = group["size"] or size
    rows = [{"rank": ops.rank, "group": name, **group} for name, group in groups.items()]
    return pa.Table.from_pylist(rows, schema=arrow_schema(schema.PROCESS_GROUPS))


_STATED_GROUP: Final = ["name", "size", "ranks", "description"]


def _stated_groups(ops: Operators, collectives: Collectives) -> set[tuple[str, int | None, Any, str | None]]:
    """Return the distinct (name, size, ranks, description) that collectives state."""
    raw, rows = ops.raw, ops.event[collectives.rows].astype(np.int64)
    lists, descriptions = _at(raw, "Process Group Ranks", rows), _at(raw, "Process Group Description", rows)
    found: dict[tuple[str, int | None], tuple[Any, str | None]] = {}
    columns = (collectives.group.dictionary_decode(), collectives.group_size, pa.array(lists), pa.array(descriptions))
    distinct = pa.table(columns, names=_STATED_GROUP).group_by(_STATED_GROUP).aggregate([])
    for name, size, listed, described in zip(*distinct.select(_STATED_GROUP).to_pydict().values(), strict=True):
        if name is not None:
            ranks = _int_list(raw.strings[listed]) if listed != record.NULL else None
            text = raw.strings[described] if described != record.NULL else None
            old = found.get((name, size), (None, None))
            found[name, size] = (old[0] or ranks, old[1] or text)
    return {(name, size, ranks, text) for (name, size), (ranks, text) in found.items()}


def _int_list(text: str) -> tuple[int, ...] | None:
    """Return the ranks in a text like `[0, 1]`; a shortened one (`[0, 1, ...]`) is no list."""
    try:
        return _rank_list(json.loads(text))
    except ValueError:
        return None


def _rank_list(values: object) -> tuple[int, ...] | None:
    if not isinstance(values, list):
        return None
    ranks = tuple(rank for value in values if (rank := schema.within(value, 32)) is not None)
    return ranks if len(ranks) == len(values) else None
