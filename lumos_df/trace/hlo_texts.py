"""What the text of an HLO instruction says: its name, collective, sizes and replica groups."""

import math
import re
from typing import Final, NamedTuple

import numpy as np

from lumos_df.schema.dtypes import element_type

_INSTRUCTION: Final = re.compile(
    r"%?(?P<name>[\w.-]+) = (?P<result>.*?) (?P<opcode>[a-z][a-z0-9-]*)\((?P<operands>.*)", re.DOTALL
)
_SHAPE: Final = re.compile(r"\b(pred|[a-z]+[0-9]+\w*)\[([0-9,]*)\]")
_GROUPS: Final = re.compile(
    r"(?:replica_groups|source_target_pairs)=(\{\{.*?\}\}|\[[0-9,]+\]<=\[[0-9,]+\](?:T\([0-9,]+\))?)"
)
_COLLECTIVE: Final = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-broadcast|collective-permute|send|recv)"
    r"(?:-start|-done)?$"
)
_WORDS: Final = {
    "collective-broadcast": "broadcast",
    "collective-permute": "send_recv",
    "ragged-all-to-all": "all_to_all",
}


class HloInstruction(NamedTuple):
    """What is known of an instruction."""

    name: str
    """`all-reduce.3`"""
    collective: str | None = None
    """One of `schema.COLLECTIVES`."""
    dtype: str | None = None
    """Element type of the operands."""
    elements_in: int | None = None
    elements_out: int | None = None
    groups: str | None = None
    """Replica groups as written."""
    group_size: int | None = None


def instruction(text: str, category: str | None) -> HloInstruction:
    """Return what the text of an instruction says; a text of another kind is a name.

    Args:
        text: as XLA writes it, or its name alone.
        category: what the profiler says that it is (`hlo_category`), where the text does not.
    """
    match = _INSTRUCTION.match(text)
    opcode = match["opcode"] if match else category or ""
    kind = _COLLECTIVE.match(category or "") or _COLLECTIVE.match(opcode)
    name = match["name"] if match else text
    if kind is None:
        return HloInstruction(name)
    word = _WORDS.get(kind[1], kind[1].replace("-", "_"))
    if match is None:
        return HloInstruction(name, word)
    operands, _, attributes = match["operands"].partition("), ")
    given, got = _SHAPE.findall(operands), _SHAPE.findall(match["result"])
    groups = _GROUPS.search(attributes)
    dtype = element_type(_ELEMENT.get(given[0][0], given[0][0])) if given else None
    return HloInstruction(
        name,
        word,
        dtype.name if dtype else None,
        sum(map(_elements, given)) or None,
        sum(map(_elements, got)) or None,
        groups[1] if groups else None,
        _size(groups[1]) if groups else None,
    )


_ELEMENT: Final = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "s64": "int64",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
    "pred": "bool",
}
"""XLA's words for element types."""


def _elements(shape: tuple[str, str]) -> int:
    return math.prod(int(size) for size in shape[1].split(",") if size)


def _size(groups: str) -> int | None:
    """Return the ranks in a group: `{{0,1},{2,3}}` lists them, `[2,4]<=[8]` counts groups and members."""
    if groups.startswith("["):
        return int(groups[1 : groups.index("]")].rsplit(",", maxsplit=1)[-1])
    first = groups[2 : groups.index("}")]
    return first.count(",") + 1 if first else None


_MOST_IDS: Final = 1 << 20
"""Replica groups of more ids are not read: no job has as many devices, and a damaged text may state any number."""


def replica_groups(text: str) -> list[list[int]]:
    """Return the ids of each group of a text of replica groups, none where it is none [XLA's grammar of HLO].

    `[4,2]<=[2,4]T(1,0)` counts from 0 through an array of [2,4] whose axes are then exchanged, and takes groups of 2.
    """
    counted = _COUNTED.fullmatch(text)
    if counted is None:
        return [[int(id_) for id_ in group.split(",")] for group in _LISTED.findall(text)]
    shape, counts, axes = ([int(number) for number in (part or "").split(",") if number] for part in counted.groups())
    if not 0 < math.prod(counts) == math.prod(shape) <= _MOST_IDS or sorted(axes) not in ([], [*range(len(counts))]):
        return []
    ids = np.arange(math.prod(counts)).reshape(counts).transpose(axes or None)
    groups: list[list[int]] = ids.reshape(-1, shape[-1]).tolist()
    return groups


_COUNTED: Final = re.compile(r"\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?")
_LISTED: Final = re.compile(r"\{([0-9]+(?:,[0-9]+)*)\}")


def own_group(text: str, device: int, devices: int) -> str | None:
    """Return the name of the group that a device is in, None where the text does not tell.

    Ids count all devices of a job. A file has those of one host, whose ids follow one another, and does not say which
    host it is: the group is known where it takes in the same of its devices on every host.

    Args:
        text: replica groups.
        device: number of the device on its host.
        devices: how many there are on a host.
    """
    groups = replica_groups(text)
    of_id = {id_: group for group in groups for id_ in group}
    hosts, rest = divmod(len(of_id), devices)
    if rest or not hosts or sorted(of_id) != [*range(len(of_id))]:
        return None
    here = {
        tuple(sorted(id_ - host * devices for id_ in of_id[host * devices + device] if id_ // devices == host))
        for host in range(hosts)
    }
    if len(here) > 1:
        return None
    (members,) = here
    listed = ",".join(map(str, members))
    return f"{{{listed}}}" if hosts == 1 else f"{{{listed}}} of {text}"
