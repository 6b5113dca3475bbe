"""The messages of Chakra's schema/protobuf/et_def.proto, a column of them from columns of operators."""

import json
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lumos_df.export import wire
from lumos_df.export.job_ranks import ExportedRank
from lumos_df.export.nodes import Nodes
from lumos_df.export.process_groups import ProcessGroup

SCHEMA: Final = "0.0.4"
_METADATA, _LOAD, _STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = range(1, 8)
_COLLECTIVES: Final = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all_to_all": 6,
    "send_recv": 6,
    "reduce_scatter": 7,
    "barrier": 9,
}
"""CollectiveCommType of each kind of collective; NCCL's all-to-all is sends and receives in one kernel."""


def nodes(rank: ExportedRank, rows: pa.Table, rank_nodes: Nodes, batch: slice, numbers: dict[str, str]) -> pa.Buffer:
    """Return delimited Nodes.

    Args:
        rank: the rank.
        rows: the operators of the nodes of this batch.
        rank_nodes: all nodes of the rank.
        batch: which of them are encoded.
        numbers: number of a process group, by its name.
    """
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    columns = {name: pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for name, c in columns.items()}
    work = pa.array(rank_nodes.work[batch])
    columns |= {name: _only(pc.invert(work), columns[name]) for name in columns.keys() - {"thread", "step"}}
    host = pc.is_valid(columns["thread"])
    kind = _kinds(columns)
    communicates = pc.greater_equal(kind, _SEND)
    started = np.maximum(rank_nodes.ts[batch] - rank.zero, 0) // 1000
    sends, receives = pc.equal(kind, _SEND), pc.equal(kind, _RECEIVE)
    direct = pc.or_(sends, receives)
    this_rank = pa.array(np.full(len(rows), rank.rank, np.int64))
    caller = rank_nodes.caller[batch]
    needs = rank_nodes.bounds[batch.start : batch.stop + 1]
    group = columns["group"].dictionary_encode()
    number = pa.array([numbers.get(name) for name in group.dictionary.to_pylist()], pa.string()).take(group.indices)
    code = columns["collective"].dictionary_encode()
    shape = pa.array([_COLLECTIVES.get(name) for name in code.dictionary.to_pylist()], pa.int64()).take(code.indices)
    return wire.delimited(
        wire.message(
            wire.number(1, pa.array(rank_nodes.id[batch])),
            wire.each_once(partial(wire.text, 2), pc.fill_null(columns["name"], "host work")),
            wire.each_once(partial(wire.number, 3), kind),
            wire.packed(4, np.append(0, np.cumsum(caller > 0)), caller[caller > 0]),
            wire.packed(5, needs - needs[0], rank_nodes.needs[needs[0] : needs[-1]]),
            wire.number(6, pa.array(started)),
            wire.number(7, pa.array(rank_nodes.micros[batch])),
            _tensors(8, columns["inputs"], columns["input_dims"], columns["input_types"]),
            _tensors(9, columns["outputs"], columns["output_dims"], columns["output_types"]),
            _attribute("is_cpu_op", _BOOL, pc.and_not(host, communicates)),
            _attribute("tid", _INT64, columns["thread"]),
            _attribute("stream", _INT64, columns["stream"]),
            _attribute("step", _INT64, columns["step"]),
            _attribute("op_schema", _STRING, columns["op_schema"]),
            _attribute("num_ops", _INT64, columns["flops"]),
            _attribute("tensor_size", _UINT64, columns["moved_bytes"]),
            _attribute("comm_type", _INT64, _only(pc.equal(kind, _COLLECTIVE), shape)),
            _attribute("comm_size", _INT64, _only(communicates, columns["comm_bytes"])),
            _attribute("pg_name", _STRING, _only(communicates, number)),
            _attribute("comm_src", _INT32, _only(direct, pc.if_else(sends, this_rank, columns["peer"]))),
            _attribute("comm_dst", _INT32, _only(direct, pc.if_else(sends, columns["peer"], this_rank))),
            _attribute("comm_tag", _INT32, _only(direct, columns["tag"])),
            _attribute("provenance", _STRING, columns["provenance"]),
        )
    )


def _kinds(columns: dict[str, pa.Array]) -> pa.Array:
    """Return the NodeType of every row; a copy between host and GPU loads or stores, seen from the GPU."""
    code = columns["collective"].dictionary_encode()
    direct = {"send": _SEND, "recv": _RECEIVE}
    types = [direct.get(name, _COLLECTIVE if name in _COLLECTIVES else None) for name in code.dictionary.to_pylist()]
    copies = pc.fill_null(pc.equal(columns["kind"], "memcpy"), False)
    # Host work has no name: no copy, whatever null matches.
    loads = pc.and_kleene(copies, pc.match_substring_regex(columns["name"], "HtoD|HostToDevice"))
    stores = pc.and_kleene(copies, pc.match_substring_regex(columns["name"], "DtoH|DeviceToHost"))
    moves = pc.if_else(loads, _LOAD, pc.if_else(stores, _STORE, _COMPUTE))
    return pc.coalesce(pa.array(types, pa.int64()).take(code.indices), moves.cast(pa.int64()))


def _only(where: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(where, values, pa.scalar(None, values.type))


_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29
"""Fields of AttributeProto's value, by type."""


def _attribute(name: str, kind: int, values: pa.Array) -> pa.Array:
    """Return the field `attr` of a Node."""
    return wire.each_once(lambda distinct: wire.text(10, _named(name, kind, distinct)), values)


def _named(name: str, kind: int, values: pa.Array) -> pa.Array:
    value = wire.text(kind, values) if kind == _STRING else wire.number(kind, values)
    title = wire.text(1, pa.array([name])).take(pa.array(np.zeros(len(values), np.int64)))
    return _only(pc.is_valid(value), wire.message(title, value))


def _tensors(field: int, values: pa.Array, shapes: pa.Array, types: pa.Array) -> pa.Array:
    """Return a field IOInfo; none where nothing is known."""
    parts = [wire.each_once(partial(wire.text, k + 1), column) for k, column in enumerate((values, shapes, types))]
    whole = wire.message(*parts)
    return wire.text(field, _only(pc.greater(pc.binary_length(whole), 0), whole))


def metadata(rank: ExportedRank, rank_nodes: Nodes, groups: list[ProcessGroup], *, estimated: bool) -> bytes:
    """Return the delimited GlobalMetadata."""
    begun = (rank_nodes.ts - rank.zero) // 1000
    ended = (rank_nodes.ts + rank_nodes.dur - rank.zero) // 1000
    values = {
        "schema": (_STRING, SCHEMA),
        "start_ts": (_UINT64, max(int(begun.min()), 0) if len(begun) else 0),
        "finish_ts": (_UINT64, max(int(ended.max()), 0) if len(ended) else 0),
        "job": (_STRING, rank.job),
        "rank": (_INT64, rank.rank),
        "trace_id": (_STRING, rank.trace_id),
        "estimated": (_BOOL, estimated),
        "process_groups": (_STRING, json.dumps([_described(group) for group in groups])),
    }
    attributes = [wire.text(2, _named(name, kind, pa.array([value]))) for name, (kind, value) in values.items()]
    return bytes(wire.delimited(wire.message(wire.text(1, pa.array([SCHEMA])), *attributes)))


def groups(listed: list[ProcessGroup]) -> bytes:
    """Return the delimited node that lists the groups, as PyTorch's execution traces have it and ASTRA-sim reads it."""
    values = f"['{json.dumps([_described(group) for group in listed])}']"
    nothing: Any = pa.nulls(1, pa.string())
    described = wire.message(
        wire.text(2, pa.array(["## process_group:init ##"])),
        wire.number(3, pa.array([_METADATA])),
        _tensors(8, pa.array([values]), nothing, nothing),
        _attribute("is_cpu_op", _BOOL, pa.array([True])),
    )
    return bytes(wire.delimited(described))


def _described(group: ProcessGroup) -> dict[str, Any]:
    return {
        "pg_name": group.number,
        "pg_desc": group.description or group.name,
        "backend_config": group.backend or "",
        "ranks": list(group.ranks or ()),
        "group_size": group.size or len(group.ranks or ()),
    }
