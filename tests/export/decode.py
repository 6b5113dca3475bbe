"""A reader of Chakra execution traces, from the text of et_def.proto and of the wire format, and of nothing else."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VALUES = {
    "double_val": 3, "float_val": 5, "int32_val": 7, "int64_val": 9, "uint32_val": 11, "uint64_val": 13,
    "bool_val": 27, "string_val": 29,
}  # fmt: skip
"""Members of AttributeProto's `value` that are no lists, and not zigzag or fixed."""
NODE_TYPES = {
    1: "METADATA_NODE", 2: "MEM_LOAD_NODE", 3: "MEM_STORE_NODE", 4: "COMP_NODE", 5: "COMM_SEND_NODE",
    6: "COMM_RECV_NODE", 7: "COMM_COLL_NODE",
}  # fmt: skip
"""Without INVALID_NODE: the type of a node that states none."""
COLLECTIVES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip


@dataclass
class Node:
    """A node; that a number is 0, or a list empty, a file may leave unsaid."""

    name: str
    type: str
    id: int = 0
    ctrl_deps: list[int] = field(default_factory=list)
    data_deps: list[int] = field(default_factory=list)
    start_time_micros: int = 0
    duration_micros: int = 0
    inputs: dict[str, str] | None = None
    outputs: dict[str, str] | None = None
    attr: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """Which member of `value` each attribute is."""


def read(file: Path) -> tuple[dict[str, Any], list[Node]]:
    """Return the attributes of the metadata, with `version`, and the nodes."""
    first, *rest = _messages(file.read_bytes())
    about: dict[str, Any] = {}
    for number, value in fields(first):
        if number == 1:
            about["version"] = value.decode()
        else:
            assert number == 2
            name, _, what = _attribute(value)
            about[name] = what
    return about, [_node(message) for message in rest]


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = _varint(data, at)
        assert at + size <= len(data), "the last message is cut"
        yield data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            assert value < 1 << 64
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of the fields of a message; what has a length, as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            assert at + size <= len(data)
            yield number, data[at : at + size]
            at += size
        else:
            size = {1: 8, 5: 4}[wire]
            yield number, struct.unpack("<d" if wire == 1 else "<f", data[at : at + size])[0]
            at += size


def _attribute(data: bytes) -> tuple[str, str, Any]:
    name, kind, value = "", "", None
    for number, raw in fields(data):
        if number == 1:
            name = raw.decode()
            continue
        (kind,) = (known for known, place in VALUES.items() if place == number)
        assert value is None, "one value an attribute"
        if kind in {"int32_val", "int64_val"}:
            value = raw - (1 << 64) if raw >= 1 << 63 else raw
        elif kind == "bool_val":
            assert raw in {0, 1}
            value = bool(raw)
        else:
            value = raw.decode() if kind == "string_val" else raw
    assert name
    assert kind
    return name, kind, value


def _node(data: bytes) -> Node:
    parts = list(fields(data))
    (name,) = (raw.decode() for number, raw in parts if number == 2)
    (kind,) = (NODE_TYPES[raw] for number, raw in parts if number == 3)
    node = Node(name, kind)
    for number, raw in parts:
        if number == 1:
            node.id = raw
        elif number in {2, 3}:
            continue
        elif number in {4, 5}:
            (node.ctrl_deps if number == 4 else node.data_deps).extend(packed(raw))
        elif number == 6:
            node.start_time_micros = raw
        elif number == 7:
            node.duration_micros = raw
        elif number in {8, 9}:
            told = {("", "values", "shapes", "types")[place]: text.decode() for place, text in fields(raw)}
            if number == 8:
                node.inputs = told
            else:
                node.outputs = told
        else:
            assert number == 10, f"no field {number} in Node"
            name, kind, value = _attribute(raw)
            assert name not in node.attr
            node.attr[name], node.kinds[name] = value, kind
    assert "is_cpu_op" in node.attr, f"{node.name}: on the host or on the GPU?"
    return node


def packed(data: bytes) -> list[int]:
    """Return the numbers of a packed field, without a sign."""
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
    return values
