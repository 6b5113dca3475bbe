"""Rows to Arrow: the stored tables of one trace, in the columns and types of `schema`."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.corpus.staging import operator_schema
from lumos_df.schema.arrow import arrow_schema, each_once
from lumos_df.schema.codes import GPU, GPU_ANNOTATION, MEMCPY, MEMSET, NONE, NULL, NULL32, SYNC
from lumos_df.trace.collectives import Collectives, PlacedWords
from lumos_df.trace.derive import Derived
from lumos_df.trace.flops import flops
from lumos_df.trace.group_ranks import rank_list_in
from lumos_df.trace.ordered_operators import OrderedOperators, among
from lumos_df.trace.recording import Attribute, Recording

_ROWS: Final = 1 << 17
"""Rows of a row group: what is gathered from the recorded columns at a time."""

_SETS: Final = 3
"""Sets of derived columns: one thread encodes two of them while the other ends the recorded columns, and the third."""

Indices = NDArray[np.int64]
Part = Callable[[slice], pa.Array]
"""Makes one column of the rows in a slice."""


class OperatorColumns:
    """Some columns of the table `operators`, a row group at a time, so that no second copy of them is ever held."""

    def __init__(self, rows: int, columns: pa.Schema, parts: dict[str, Part], *, alike: bool = False) -> None:
        self.schema = columns
        self._parts = parts
        starts = range(0, max(rows, 1), _ROWS)
        self._slices = [slice(start, min(start + _ROWS, rows)) for start in starts]
        self.repeats = 1
        """Row groups that are as the first, of which only that is made."""
        if alike and len(starts) > 1:
            self.repeats = len(starts) - 1
            self._slices = [self._slices[0], self._slices[-1]]

    def row_groups(self) -> Iterator[pa.Table]:
        """Yield the row groups."""
        for rows in self._slices:
            yield pa.table([self._parts[name](rows) for name in self.schema.names], schema=self.schema)


def recorded_columns(ops: OrderedOperators) -> OperatorColumns:
    """Return the columns of `operators` that are recorded: to encode them takes as long as to derive the others."""
    parts = _recorded(ops)
    return OperatorColumns(len(ops), pa.schema([field for field in operator_schema() if field.name in parts]), parts)


def other_columns(
    ops: OrderedOperators, recorded: OperatorColumns, derived: Derived, collectives: Collectives
) -> list[OperatorColumns]:
    """Return all other columns: sets that take as long as one another, and those that say the same of each row."""
    parts = _derived(ops, derived, collectives)
    left = [field for field in operator_schema() if field.name not in recorded.schema.names]
    known = [field for field in left if field.name in parts]
    same = pa.schema([field for field in left if field.name not in parts])
    of_all = {field.name: _nulls(field.type) for field in same}
    of_all["rank"] = lambda rows: pa.array(np.full(rows.stop - rows.start, ops.rank.rank, np.int32))
    return [
        *(OperatorColumns(len(ops), pa.schema(known[first::_SETS]), parts) for first in range(_SETS)),
        OperatorColumns(len(ops), same, of_all, alike=True),
    ]


def _recorded(ops: OrderedOperators) -> dict[str, Part]:
    recorded = ops.recording.operators
    threads = np.append(ops.recording.threads, NULL)  # which NONE finds
    kinds = pa.array(schema.KINDS)

    def number(column: NDArray[np.int64]) -> Part:
        return lambda rows: _nullable(column[ops.order[rows]], NULL)

    def placed(column: NDArray[np.int32]) -> Part:
        return _text(lambda rows: column[ops.order[rows]], column, ops.recording)

    def thread(rows: slice) -> pa.Array:
        values = threads.take(ops.track[rows])
        return _known(values, ~among(ops.kind[rows], (*GPU, SYNC, GPU_ANNOTATION)) & (values != NULL))

    def device(rows: slice) -> pa.Array:
        values = recorded.device[ops.order[rows]]
        return _known(values, among(ops.kind[rows], (*GPU, SYNC)) & (values != NULL32))

    def stream(rows: slice) -> pa.Array:
        values = recorded.stream[ops.order[rows]]
        return _known(values, among(ops.kind[rows], (*GPU, SYNC)) & (values != NULL))

    def occupancy(rows: slice) -> pa.Array:
        values = recorded.occupancy[ops.order[rows]]
        return _known(values.astype(np.float32) / np.float32(100), values != NULL32)

    texts = {
        "input_dims": recorded.input_dims,
        "input_types": recorded.input_types,
        "grid": recorded.grid,
        "block": recorded.block,
    }
    return {
        "op_id": lambda rows: pa.array(np.arange(rows.start, rows.stop, dtype=np.int32)),
        "kind": lambda rows: _words(ops.kind[rows], kinds),
        "name": _text(lambda rows: ops.name[rows], ops.name, ops.recording),
        "ts": lambda rows: pa.array(ops.ts[rows]),
        "dur": lambda rows: pa.array(ops.dur[rows]),
        "thread": thread,
        "device": device,
        "stream": stream,
        "correlation": number(recorded.correlation),
        "external_id": number(recorded.external_id),
        **{name: placed(column) for name, column in texts.items() if column.max(initial=NONE) > NONE},
        "occupancy": occupancy,
        "event": lambda rows: pa.array(ops.event[rows]),
    }


def _derived(ops: OrderedOperators, derived: Derived, collectives: Collectives) -> dict[str, Part]:
    phases = pa.array(schema.PHASES)
    families = pa.array(schema.FAMILIES)
    target = operator_schema()
    bytes_moved = _bytes_moved(ops, derived.parent)
    columns: dict[str, Part] = {
        "parent_id": lambda rows: _nullable(derived.parent[rows], NONE),
        "family": lambda rows: _words(derived.family[rows], families),
        "inner_dur": lambda rows: _nullable(derived.inner[rows], 0),
        "step": lambda rows: _nullable(derived.step[rows], NONE),
        "phase": lambda rows: _words(derived.phase[rows], phases),
        "forward_id": lambda rows: _nullable(derived.forward[rows], NONE),
    }
    if derived.modules:
        layers = np.append(derived.layer_of_module, NONE)
        place, modules = each_once(derived.modules)
        columns["module"] = lambda rows: _words(place[derived.module[rows]], modules)
        columns["layer"] = lambda rows: _nullable(layers[derived.module[rows]].astype(np.int32), NONE)
    flop_counts = flops(ops)
    if (flop_counts != NULL).any():
        columns["flops"] = lambda rows: _nullable(flop_counts[rows], NULL)
    sparse: dict[str, tuple[Indices, NDArray[np.int64] | PlacedWords]] = {
        "sequence_number": (derived.sequence_rows.astype(np.int64), derived.sequence),
        "wait_stream": _sorted(*ops.attribute(Attribute.WAIT_STREAM)),
        "wait_correlation": _sorted(*ops.attribute(Attribute.WAIT_CORRELATION)),
        "collective": (collectives.rows, collectives.collective),
        "group": (collectives.rows, collectives.group),
        "group_size": (collectives.rows, collectives.group_size),
        "seq": (collectives.rows, collectives.seq),
        "seq_evidence": (collectives.rows, collectives.seq_evidence),
        "dtype": (collectives.rows, collectives.dtype),
        "in_bytes": _merge_bytes(bytes_moved, collectives.rows, collectives.in_bytes),
        "out_bytes": _merge_bytes(bytes_moved, collectives.rows, collectives.out_bytes),
    }
    columns |= {
        name: _scattered(where, values, target.field(name).type)
        for name, (where, values) in sparse.items()
        if len(where)
    }
    return columns


def _nullable(values: NDArray[Any], null: int) -> pa.Array:
    return _known(values, values != null)


def _known(values: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    """Return a column of values that are null where they are not known; numpy makes its bits, in half the time."""
    bits = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))])


def _words(numbers: NDArray[Any], words: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_nullable(numbers.astype(np.int32, copy=False), NONE), words)


def _text(part: Callable[[slice], NDArray[np.int32]], whole: NDArray[np.int32], recording: Recording) -> Part:
    """Return a column of texts by number; only the texts it uses go into its dictionary."""

    @cache
    def used() -> tuple[NDArray[np.int32], pa.Array]:
        numbers = recording.used(whole)
        place = np.full(len(recording.strings) + 1, NONE, np.int32)
        # A text has several numbers where it was escaped in several ways.
        places, once = each_once([recording.strings[number] for number in numbers.tolist()])
        place[numbers] = places[:-1]
        return place, once

    def texts(rows: slice) -> pa.Array:
        place, words = used()
        return _words(place.take(np.maximum(part(rows), NONE)), words)

    return texts


def _nulls(kind: pa.DataType) -> Part:
    return lambda rows: pa.nulls(rows.stop - rows.start, kind)


def _sorted(rows: NDArray[Any], values: NDArray[np.int64]) -> tuple[Indices, NDArray[np.int64]]:
    order = np.argsort(rows, kind="stable")
    return rows[order].astype(np.int64), values[order]


def _scattered(where: Indices, values: NDArray[np.int64] | PlacedWords, kind: pa.DataType) -> Part:
    """Return a column of `kind` that has `values` at the rows `where` (ordered) and null elsewhere.

    By numpy: the first `take` of pyarrow loads all that it can compute, as long as a small trace takes altogether.
    """
    numbers = values.places if isinstance(values, PlacedWords) else values
    null = NONE if isinstance(values, PlacedWords) else NULL
    words = pa.array(values.words, pa.string()) if isinstance(values, PlacedWords) else None

    def part(rows: slice) -> pa.Array:
        size = rows.stop - rows.start
        first, last = np.searchsorted(where, (rows.start, rows.stop))
        if first == last:
            return pa.nulls(size, kind)
        column = np.full(size, null, numbers.dtype)
        column[where[first:last] - rows.start] = numbers[first:last]
        if words is not None:
            return _words(column, words)
        return _known(column.astype(kind.to_pandas_dtype(), copy=False), column != null)

    return part


def _bytes_moved(ops: OrderedOperators, parent: NDArray[np.int32]) -> tuple[Indices, NDArray[np.int64]]:
    """Return (rows, bytes) of copies and fills, NULL where nobody says how much they move; HIP says it on the call."""
    stated = np.full(len(ops) + 1, NULL, np.int64)
    rows, values = ops.attribute(Attribute.BYTES_MOVED)
    stated[rows] = values
    copies = np.flatnonzero(ops.is_kind(MEMCPY, MEMSET))
    by_copy, by_call = stated[copies], stated[parent[copies]]
    return copies, np.where(by_copy == NULL, by_call, by_copy)


def _merge_bytes(
    moved: tuple[Indices, NDArray[np.int64]], rows: Indices, of_collectives: NDArray[np.int64]
) -> tuple[Indices, NDArray[np.int64]]:
    known = moved[1] != NULL
    return _sorted(np.concatenate((moved[0][known], rows)), np.concatenate((moved[1][known], of_collectives)))


def memory_events(ops: OrderedOperators) -> pa.Table:
    """Return the `memory_events` table of the rank, ordered by ts."""
    memory = ops.recording.memory
    rows = ops.own(memory.event)
    rows = rows[np.argsort(memory.ts[rows], kind="stable")]
    types = memory.device_type[rows]
    words = np.where(types == 0, "cpu", np.where(types == 1, "gpu", types.astype(str))).tolist()
    return pa.table(
        [
            pa.array(np.full(len(rows), ops.rank.rank, np.int32)),
            pa.array(memory.ts[rows]),
            _nullable(memory.thread[rows], NULL),
            pa.array(words, pa.string(), mask=types == NULL),
            pa.array(memory.device[rows]),
            _nullable(memory.address[rows], NULL),
            _nullable(memory.change_bytes[rows], NULL),
            _nullable(memory.allocated_bytes[rows], NULL),
            _nullable(memory.reserved_bytes[rows], NULL),
            pa.array(memory.event[rows]),
        ],
        schema=arrow_schema(schema.MEMORY_EVENTS),
    )


def counters(ops: OrderedOperators) -> pa.Table:
    """Return the `counters` table of the rank: one row a value."""
    recording, recorded = ops.recording, ops.recording.counters
    rows = ops.own(recorded.event)
    return pa.table(
        [
            pa.array(np.full(len(rows), ops.rank.rank, np.int32)),
            pa.array(recorded.ts[rows]),
            pa.array(recording.texts(recorded.name[rows]), pa.string()),
            pa.array(recording.texts(recorded.series[rows]), pa.string()),
            pa.array(recorded.value[rows]),
            pa.array(recorded.event[rows]),
        ],
        schema=arrow_schema(schema.COUNTERS),
    )


def of_rank(table: pa.Table, rank: int) -> pa.Table:
    """Return a table with the rank of all its rows filled in."""
    place = table.schema.get_field_index("rank")
    return table.set_column(place, table.schema.field(place), pa.array(np.full(table.num_rows, rank, np.int32)))


def process_groups(ops: OrderedOperators, collectives: Collectives) -> pa.Table:
    """Return the `process_groups` table: those that the file lists, and those named only on a collective."""
    groups: dict[str, dict[str, Any]] = {
        group.name: {
            "description": group.description,
            "backend": group.backend,
            "size": group.size,
            "ranks": group.ranks,
        }
        for group in ops.recording.groups
    }
    for (name, size), (ranks, description) in _stated_groups(ops, collectives).items():
        group = groups.setdefault(name, {"description": description, "backend": None, "size": size, "ranks": None})
        group["ranks"] = group["ranks"] or ranks
        group["size"] = group["size"] or size
    rows = [{"rank": ops.rank.rank, "group": name, **group} for name, group in groups.items()]
    return pa.Table.from_pylist(rows, schema=arrow_schema(schema.PROCESS_GROUPS))


def _stated_groups(
    ops: OrderedOperators, collectives: Collectives
) -> dict[tuple[str, int | None], tuple[tuple[int, ...] | None, str | None]]:
    """Return what collectives state of groups: (name, size) to (ranks, description), in the order of the rows."""
    strings = ops.recording.strings
    stated = (
        collectives.group.places.astype(np.int64),
        collectives.group_size,
        ops.attribute_at(Attribute.GROUP_RANKS, collectives.rows),
        ops.attribute_at(Attribute.GROUP_DESCRIPTION, collectives.rows),
    )
    distinct, first = np.unique(np.stack(stated), axis=1, return_index=True)
    groups: dict[tuple[str, int | None], tuple[tuple[int, ...] | None, str | None]] = {}
    for place, stated_size, listed, described in distinct.T[np.argsort(first)].tolist():
        if place != NONE:
            name, size = collectives.group.words[place], None if stated_size == NULL else stated_size
            ranks = rank_list_in(strings[listed]) if listed != NULL else None
            text = strings[described] if described != NULL else None
            before = groups.get((name, size), (None, None))
            groups[name, size] = (before[0] or ranks, before[1] or text)
    return groups
